//! Mutants of the seccomp filters: a refused call is allowed, an allowed call is refused, or one condition
//! or one of its values is missing.
//!
//! They are derived from the preset's own tables, so that there is one for each rule, and from the list of
//! all system calls, so that there is one for each call that no rule names.

use std::iter;

use sandfork::Layer;
use sandfork::internals::plan::seccomp::{
    Arch, Check, Preset, Surroundings, Verdict, syscall_number, syscalls,
};
use sandfork_jail::program::BpfInstruction;

use crate::bench::LOOPBACK;
use crate::edit::{Act, Edit, Site};
use crate::family::Role;
use crate::mutant::Mutant;

// linux/bpf_common.h, linux/seccomp.h
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const ERROR: u32 = 0x0005_0000;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const I386: u32 = 0x4000_0003;
const X32: u32 = 0x4000_0000;
const NO_SUCH_CALL: u32 = 38;

/// The calls that a program decides before the original filter.
#[derive(Clone, Copy, Debug)]
enum Calls {
    Number(u32),
    /// Calls with this value of an argument, under a mask.
    Argument {
        number: u32,
        argument: u8,
        mask: u32,
        value: u32,
    },
    X32,
    OtherArchitecture,
}

impl Calls {
    fn answered(self, answer: u32) -> Vec<BpfInstruction> {
        let reply = (RETURN, 0, 0, answer);
        match self {
            Self::Number(number) => vec![(LOAD, 0, 0, NUMBER), (EQUAL, 0, 1, number), reply],
            Self::Argument {
                number,
                argument,
                mask,
                value,
            } => vec![
                (LOAD, 0, 0, NUMBER),
                (EQUAL, 0, 4, number),
                // The lower half of a 64-bit word, which is what the kernel uses of the argument.
                (LOAD, 0, 0, 16 + 8 * u32::from(argument)),
                (AND, 0, 0, mask),
                (EQUAL, 0, 1, value),
                reply,
            ],
            Self::X32 => vec![(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, X32), reply],
            Self::OtherArchitecture => {
                vec![(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 0, 1, I386), reply]
            }
        }
    }
}

/// Returns every mutant of the filters of a guest with namespaces, with and without a loopback interface.
pub fn mutants() -> Vec<Mutant> {
    let guest = Preset::of(Surroundings::Namespaces).guest;
    let mut all: Vec<Mutant> = syscalls(Arch::X86_64)
        .filter(|(name, _)| !guest.contains_key(name))
        .map(|(name, number)| allowing(name, Calls::Number(number)))
        .collect();
    all.extend(
        guest
            .iter()
            .flat_map(|(name, rule)| of_rule(name, rule.verdict)),
    );
    // Mutants of the rules that differ with a loopback interface.
    let others = Preset::of(Surroundings::Loopback).guest;
    let replaced = others.iter().filter(|(name, rule)| {
        let verdict = guest.get(*name).map(|rule| rule.verdict);
        verdict != Some(rule.verdict)
    });
    let replaced = replaced.flat_map(|(name, rule)| of_rule(name, rule.verdict));
    all.extend(replaced.map(|mutant| Mutant {
        name: format!("{} with a loopback", mutant.name),
        ..mutant.with(LOOPBACK)
    }));
    all.push(allowing("calls of x32", Calls::X32));
    all.push(allowing("another architecture", Calls::OtherArchitecture));
    all
}

/// Returns every mutant of the rule of one call.
fn of_rule(name: &str, verdict: Verdict) -> Vec<Mutant> {
    let Some(number) = syscall_number(Arch::X86_64, name) else {
        return Vec::new();
    };
    match verdict {
        Verdict::Allow => vec![forgets(name, Calls::Number(number))],
        Verdict::Refuse { .. } => vec![allowing(name, Calls::Number(number))],
        Verdict::AllowIf { checks, .. } | Verdict::AskIf { checks, .. } => {
            let any = format!("{name} with any arguments");
            let any = allowing(&any, Calls::Number(number));
            let each = checks
                .iter()
                .flat_map(|check| of_check(name, number, check));
            let ignored = match verdict {
                Verdict::AllowIf { ignored, .. } => ignored,
                _ => &[],
            };
            let done = ignored.iter().flat_map(|check| match *check {
                Check::OneOf {
                    argument,
                    mask,
                    values,
                } => values
                    .iter()
                    .map(|value| {
                        let with = Calls::Argument {
                            number,
                            argument,
                            mask,
                            value: *value,
                        };
                        allowing(&format!("{name} with {value:#x}"), with)
                    })
                    .collect(),
                _ => Vec::new(),
            });
            iter::once(any).chain(each).chain(done).collect()
        }
    }
}

/// Returns a mutant for each value that a condition names.
fn of_check(name: &str, number: u32, check: &Check) -> Vec<Mutant> {
    let with = |argument, mask, value| Calls::Argument {
        number,
        argument,
        mask,
        value,
    };
    let title = |value: u32| format!("{name} with {value:#x}");
    match *check {
        // Bits that must be clear.
        Check::OneOf {
            argument,
            mask,
            values: [0],
        } => (0..32)
            .map(|bit| 1 << bit)
            .filter(|bit| mask & bit != 0)
            .map(|bit| allowing(&title(bit), with(argument, bit, bit)))
            .collect(),
        Check::OneOf {
            argument,
            mask,
            values,
        } => values
            .iter()
            .map(|value| forgets(&title(*value), with(argument, mask, *value)))
            .collect(),
        Check::NoneOf {
            argument,
            mask,
            values,
        } => values
            .iter()
            .map(|value| allowing(&title(*value), with(argument, mask, *value)))
            .collect(),
        // The condition and the inner check concern one argument each; together they are what `name` does with any.
        Check::When { then, .. } => of_check(name, number, then),
    }
}

/// Makes both filters allow the calls.
fn allowing(name: &str, calls: Calls) -> Mutant {
    let roles = [Role::Zygote, Role::Worker];
    let edits = roles.map(|role| Edit {
        at: Site::every(role, "seccomp"),
        act: Act::Filter(calls.answered(ALLOW)),
    });
    Mutant::new(
        Layer::Seccomp,
        format!("seccomp: lets {name}"),
        edits.into(),
    )
}

/// Makes the worker's filter refuse the calls as if no rule existed. The set-up may need the zygote's.
fn forgets(name: &str, calls: Calls) -> Mutant {
    let edit = Edit {
        at: Site::every(Role::Worker, "seccomp"),
        act: Act::Filter(calls.answered(ERROR | NO_SUCH_CALL)),
    };
    Mutant::new(
        Layer::Seccomp,
        format!("seccomp: forgets {name}"),
        vec![edit],
    )
}
