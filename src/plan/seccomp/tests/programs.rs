//! Tests that the kernel accepts the programs, and that they are short.

use std::collections::BTreeMap;

use proptest::collection::btree_map;
use proptest::prelude::*;

use super::super::assemble::{Fallback, assemble};
use super::super::rule::{Answered, Refusals};
use super::super::{Arch, Check, Errno, Grant, Surroundings, Verdict, compile};
use super::arguments::{meaning, samples};
use super::interpreter::{Answer, Call, answer, assert_loadable};
use super::{ARCHES, SURROUNDINGS, instructions, preset_filters};

#[test]
fn every_program_passes_the_kernels_checks() {
    for arch in ARCHES {
        for surroundings in SURROUNDINGS {
            let filters = preset_filters(arch, surroundings);
            filters
                .zygote
                .iter()
                .chain(&filters.worker)
                .for_each(assert_loadable);
        }
    }
}

/// Loading the filter is part of every start.
#[test]
fn worker_filter_is_short() {
    for arch in ARCHES {
        for surroundings in SURROUNDINGS {
            // With a loopback interface, the filter also checks the arguments of socket.
            let most = if surroundings == Surroundings::Loopback {
                138
            } else {
                124
            };
            let preset = instructions(&preset_filters(arch, surroundings).worker);
            assert!(preset <= most, "{surroundings:?}: {preset}");
            let no_exec = compile(arch, surroundings, &[] as &[&str], &["execve", "execveat"]);
            assert!(instructions(&no_exec.unwrap().worker) <= most + 4);
        }
    }
}

#[test]
fn zygote_filter_is_not_long() {
    for arch in ARCHES {
        for surroundings in SURROUNDINGS {
            let preset = instructions(&preset_filters(arch, surroundings).zygote);
            // With a loopback interface, the filter also lists socket options.
            let most = if surroundings == Surroundings::Loopback {
                320
            } else {
                308
            };
            assert!(preset <= most, "{surroundings:?}: {preset}");
        }
    }
}

const ERRNOS: [Errno; 4] = [Errno::Perm, Errno::NoSys, Errno::NotTty, Errno::Nothing];

/// So many values that a jump over their comparisons can exceed the range of a conditional jump.
static MANY: [u32; 120] = {
    let mut values = [0; 120];
    let mut index = 1;
    while index < values.len() {
        values[index] = values[index - 1] + 7;
        index += 1;
    }
    values
};

fn check() -> impl Strategy<Value = Check> {
    let mask = prop_oneof![Just(u32::MAX), any::<u32>()];
    (any::<bool>(), 0..6_u8, mask, 1..MANY.len()).prop_map(|(one, argument, mask, length)| {
        let values = &MANY[..length];
        if one {
            Check::OneOf {
                argument,
                mask,
                values,
            }
        } else {
            Check::NoneOf {
                argument,
                mask,
                values,
            }
        }
    })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let errno = || prop::sample::select(&ERRNOS[..]);
    prop_oneof![
        4 => Just(Verdict::Allow),
        2 => errno().prop_map(|errno| Verdict::Refuse { errno, grant: Grant::Never }),
        1 => (check(), errno()).prop_map(|(check, otherwise)| {
            // Checks must be `'static`, so a test leaks its few.
            Verdict::AllowIf { ignored: &[], checks: Vec::leak(vec![check]), otherwise }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn compiled_tables_match_their_meaning(verdicts in btree_map(0..500_u32, verdict(), 0..150)) {
        for (fallback, otherwise) in
            [(Fallback::Allow, Answer::Allow), (Fallback::NoSys, Answer::Errno(38))]
        {
            let unreported = |verdict: &Verdict| Answered {
                verdict: *verdict,
                refusals: Refusals::Unreported,
            };
            let answered = verdicts.iter().map(|(number, verdict)| (*number, unreported(verdict)));
            let program = assemble(Arch::X86_64, &answered.collect(), fallback);
            assert_loadable(&program);
            assert_means(&program, &verdicts, otherwise);
        }
    }
}

fn assert_means(
    program: &sandfork_jail::program::BpfProgram,
    verdicts: &BTreeMap<u32, Verdict>,
    otherwise: Answer,
) {
    for number in (0..520).chain([0x4000_0000, u32::MAX]) {
        let Some(verdict) = verdicts.get(&number) else {
            let call = Call::new(Arch::X86_64, number, [0; 6]);
            assert_eq!(answer([program], &call), otherwise, "{number}");
            continue;
        };
        for arguments in samples(verdict)
            .into_iter()
            .step_by(97)
            .chain([[0; 6], [7; 6]])
        {
            let call = Call::new(Arch::X86_64, number, arguments);
            assert_eq!(
                answer([program], &call),
                meaning(verdict, &arguments),
                "{number}"
            );
        }
    }
}
