//! Arguments around the boundaries of a rule's checks, and the checks' meaning in plain terms.

use super::super::{Check, Verdict};
use super::interpreter::Answer;

/// The kernel takes the low half of an argument, so the upper half must never change an answer.
const GARBAGE: u64 = 0xdead_beef_0000_0000;

/// The answer that a filter must give, computed without BPF.
pub(super) fn meaning(verdict: &Verdict, arguments: &[u64; 6]) -> Answer {
    match verdict {
        Verdict::Allow => Answer::Allow,
        Verdict::Refuse { errno, .. } => Answer::Errno(*errno as u16),
        Verdict::AskIf { asked, .. } if holds(asked, arguments) => Answer::Ask,
        Verdict::AllowIf { checks, otherwise }
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
    }
}

/// Argument vectors around every boundary of a verdict's checks. One argument at a time varies, beside others
/// that pass and that do not.
pub(super) fn samples(verdict: &Verdict) -> Vec<[u64; 6]> {
    let mut samples = vec![[0; 6], [u64::MAX; 6], [GARBAGE; 6]];
    let checks = match verdict {
        Verdict::AllowIf { checks, .. } => checks.to_vec(),
        Verdict::AskIf { asked, checks, .. } => [&[*asked], *checks].concat(),
        Verdict::Allow | Verdict::Refuse { .. } => return samples,
    };
    samples.push(passing(&checks));
    let beside = samples.clone();
    for check in &checks {
        let (argument, values) = values_around(check);
        for sample in &beside {
            samples.extend(values.iter().map(|value| {
                let mut sample = *sample;
                sample[argument] = *value;
                sample
            }));
        }
    }
    samples
}

/// Arguments that have one of the values wherever a check demands one.
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

fn values_around(check: &Check) -> (usize, Vec<u64>) {
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
    };
    let mut around = vec![0, u64::MAX, 1 << 32, u64::from(!mask)];
    for &value in values {
        let bits = (0..32).map(|bit| value ^ (1 << bit));
        let near = bits.chain([
            value,
            value.wrapping_add(1),
            value.wrapping_sub(1),
            value | !mask,
        ]);
        around.extend(near.flat_map(|value| [u64::from(value), u64::from(value) | GARBAGE]));
    }
    (usize::from(argument), around)
}
