//! Generates arguments around the boundaries of a rule's checks, and evaluates the checks without BPF.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Check, Errno, Verdict};
use super::interpreter::Answer;

/// An upper half of an argument. The kernel uses only the low half, so the upper half must never change an answer.
const GARBAGE: u64 = 0xdead_beef_0000_0000;

/// Computes, without BPF, the answer that a filter must give.
pub(super) fn meaning(verdict: &Verdict, arguments: &[u64; 6]) -> Answer {
    match verdict {
        Verdict::Allow => Answer::Allow,
        Verdict::Refuse { errno, .. } => Answer::Errno(*errno as u16),
        Verdict::AskIf { asked, .. } if holds(asked, arguments) => Answer::Ask,
        Verdict::AllowIf { ignored, .. } if all_hold(ignored, arguments) => {
            Answer::Errno(Errno::Nothing as u16)
        }
        Verdict::AllowIf {
            checks, otherwise, ..
        }
        | Verdict::AskIf {
            checks, otherwise, ..
        } => {
            if checks.iter().all(|check| holds(check, arguments)) {
                Answer::Allow
            } else {
                Answer::Errno(*otherwise as u16)
            }
        }
    }
}

/// Returns whether there are checks and all of them hold.
fn all_hold(checks: &[Check], arguments: &[u64; 6]) -> bool {
    !checks.is_empty() && checks.iter().all(|check| holds(check, arguments))
}

fn holds(check: &Check, arguments: &[u64; 6]) -> bool {
    let low = |argument: u8| {
        let low = arguments[usize::from(argument)] & 0xffff_ffff;
        u32::try_from(low).unwrap()
    };
    match *check {
        Check::OneOf {
            argument,
            mask,
            values,
        } => values.contains(&(low(argument) & mask)),
        Check::NoneOf {
            argument,
            mask,
            values,
        } => !values.contains(&(low(argument) & mask)),
        Check::When {
            argument,
            values,
            then,
        } => !values.contains(&low(argument)) || holds(then, arguments),
    }
}

/// Generates argument vectors around the boundaries of a verdict's checks. Each argument varies while the others pass
/// or fail, and each pair of arguments varies while the others pass, because a check reads at most two arguments.
pub(super) fn samples(verdict: &Verdict) -> Vec<[u64; 6]> {
    let mut samples = vec![[0; 6], [u64::MAX; 6], [GARBAGE; 6]];
    let checks = match verdict {
        Verdict::AllowIf {
            ignored, checks, ..
        } => [*ignored, *checks].concat(),
        Verdict::AskIf { asked, checks, .. } => [&[*asked], *checks].concat(),
        Verdict::Allow | Verdict::Refuse { .. } => return samples,
    };
    let mut around = BTreeMap::new();
    for check in &checks {
        add_values_around(check, &mut around);
    }
    let passing = passing(&checks);
    samples.push(passing);
    let mut varied = Vec::new();
    for (argument, values) in &around {
        let single = samples.iter();
        varied.extend(single.flat_map(|sample| varying(*sample, *argument, values)));
        for (other, others) in around.range(argument + 1..) {
            let first = varying(passing, *argument, values);
            varied.extend(first.flat_map(|sample| varying(sample, *other, others)));
        }
    }
    samples.extend(varied);
    samples
}

fn varying(
    sample: [u64; 6],
    argument: usize,
    values: &BTreeSet<u64>,
) -> impl Iterator<Item = [u64; 6]> {
    values.iter().map(move |value| {
        let mut sample = sample;
        sample[argument] = *value;
        sample
    })
}

/// Returns arguments that pass every unconditional `OneOf` check.
fn passing(checks: &[Check]) -> [u64; 6] {
    let mut arguments = [0; 6];
    for check in checks {
        if let Check::OneOf {
            argument, values, ..
        } = *check
        {
            arguments[usize::from(argument)] = u64::from(values[0]);
        }
    }
    arguments
}

/// Adds the values to try for each argument that a check reads.
fn add_values_around(check: &Check, around: &mut BTreeMap<usize, BTreeSet<u64>>) {
    let (argument, mask, values) = match *check {
        Check::OneOf {
            argument,
            mask,
            values,
        }
        | Check::NoneOf {
            argument,
            mask,
            values,
        } => (argument, mask, values),
        Check::When {
            argument,
            values,
            then,
        } => {
            add_values_around(then, around);
            (argument, u32::MAX, values)
        }
    };
    let around = around.entry(usize::from(argument)).or_default();
    around.extend([0, u64::MAX, 1 << 32, u64::from(!mask)]);
    for (index, &value) in values.iter().enumerate() {
        // In a long list, flipping the upper bits of the first value suffices.
        let bits = if index == 0 || values.len() < 8 {
            32
        } else {
            8
        };
        let bits = (0..bits).map(|bit| value ^ (1 << bit));
        let near = bits.chain([
            value,
            value.wrapping_add(1),
            value.wrapping_sub(1),
            value | !mask,
        ]);
        around.extend(near.flat_map(|value| [u64::from(value), u64::from(value) | GARBAGE]));
    }
}
