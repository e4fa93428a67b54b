//! Compares the filters with those of Firecracker's `seccompiler` for the same rules: both allow the same
//! calls. Its refusals all have the same error, so errors are not compared.

use std::collections::BTreeMap;

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::super::{Arch, Check, Preset, Surroundings, Verdict, syscall_number, syscalls};
use super::arguments::samples;
use super::interpreter::{Answer, Call, answer};
use super::{ARCHES, instructions, preset_filters};
use sandfork_jail::program::BpfProgram;

/// Compiles the guest's table with seccompiler, without the rules that it cannot express.
fn second_opinion(arch: Arch, surroundings: Surroundings) -> BpfProgram {
    let guest = Preset::of(surroundings).guest;
    let rules: BTreeMap<i64, Vec<SeccompRule>> = guest
        .iter()
        .filter_map(|(name, rule)| {
            let number = i64::from(syscall_number(arch, name)?);
            match rule.verdict {
                Verdict::Allow => Some((number, vec![])),
                Verdict::AllowIf { checks, .. } | Verdict::AskIf { checks, .. } => {
                    Some((number, alternatives(checks)))
                }
                Verdict::Refuse { .. } => None,
            }
        })
        .collect();
    let target = match arch {
        Arch::X86_64 => TargetArch::x86_64,
        Arch::Aarch64 => TargetArch::aarch64,
    };
    let filter =
        SeccompFilter::new(rules, SeccompAction::Errno(1), SeccompAction::Allow, target).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    program.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect()
}

/// Converts checks to disjunctive normal form: seccompiler joins the conditions of a rule by "and", and the
/// rules of a call by "or".
fn alternatives(checks: &[Check]) -> Vec<SeccompRule> {
    if checks.is_empty() {
        return vec![];
    }
    checks
        .iter()
        .fold(vec![vec![]], |alternatives, check| {
            let choices = conditions(check);
            alternatives
                .iter()
                .flat_map(|so_far: &Vec<SeccompCondition>| {
                    choices
                        .iter()
                        .map(|choice| [so_far.clone(), choice.clone()].concat())
                })
                .collect()
        })
        .into_iter()
        .map(|conditions| SeccompRule::new(conditions).unwrap())
        .collect()
}

fn conditions(check: &Check) -> Vec<Vec<SeccompCondition>> {
    use SeccompCmpArgLen::Dword;
    let condition = |argument, length, operator, value| {
        SeccompCondition::new(argument, length, operator, value).unwrap()
    };
    match *check {
        Check::OneOf {
            argument,
            mask,
            values,
        } => values
            .iter()
            .map(|&value| {
                let operator = SeccompCmpOp::MaskedEq(u64::from(mask));
                vec![condition(argument, Dword, operator, u64::from(value))]
            })
            .collect(),
        Check::NoneOf {
            argument,
            mask,
            values,
        } => {
            assert_eq!(mask, u32::MAX, "seccompiler has no masked inequality");
            let differs =
                |&value: &u32| condition(argument, Dword, SeccompCmpOp::Ne, u64::from(value));
            vec![values.iter().map(differs).collect()]
        }
        Check::When { .. } => unreachable!("only the rules for loopback use it"),
    }
}

#[test]
fn seccompiler_allows_the_same_calls() {
    for arch in ARCHES {
        for surroundings in [
            Surroundings::Namespaces,
            Surroundings::SharedHost { landlock_abi: 6 },
        ] {
            let theirs = second_opinion(arch, surroundings);
            let ours = preset_filters(arch, surroundings);
            let guest = Preset::of(surroundings).guest;
            for (name, number) in syscalls(arch) {
                let verdict = guest
                    .get(name)
                    .map_or(Verdict::Allow, |rule| rule.verdict.without_asking());
                for arguments in samples(&verdict) {
                    let call = Call::new(arch, number, arguments);
                    let loaded = ours.zygote.iter().chain(&ours.worker);
                    assert_eq!(
                        matches!(answer(loaded, &call), Answer::Allow | Answer::Ask),
                        answer([&theirs], &call) == Answer::Allow,
                        "{name} {arguments:x?}"
                    );
                }
            }
        }
    }
}

/// This is the reason not to use seccompiler.
#[test]
fn programs_are_shorter_than_those_of_seccompiler() {
    for arch in ARCHES {
        let theirs = second_opinion(arch, Surroundings::Namespaces).len();
        let ours = instructions(&preset_filters(arch, Surroundings::Namespaces).zygote);
        assert!(5 * ours < theirs, "{ours} and {theirs}");
    }
}
