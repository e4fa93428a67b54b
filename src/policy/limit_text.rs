//! Limits in readable units, for messages that explain how to raise one.

use super::effective::Policy;
use super::numbers::{Cores, Count};
use super::units::{ByteSize, Milliseconds};
use crate::outcome::LimitName;

impl Policy {
    /// A limit's value, as a policy file and `--set` write it: `30s`, `512MiB`, `64`.
    pub fn limit_text(&self, name: LimitName) -> String {
        name.text(self.limit_amount(name))
    }

    /// Twice the value, or the maximum of the key: the value to try if a limit was too low. `None`
    /// if the limit cannot be raised.
    pub fn raised_limit_text(&self, name: LimitName) -> Option<String> {
        let amount = self.limit_amount(name);
        let (_, most) = name.range();
        let raised = amount.saturating_mul(2).min(most);
        (raised > amount).then(|| name.text(raised))
    }

    /// A limit's value in the base unit of its key.
    fn limit_amount(&self, name: LimitName) -> u64 {
        let (limits, filesystem) = (&self.limits(), &self.filesystem());
        match name {
            LimitName::Wall => milliseconds(limits.wall),
            LimitName::Cpu => milliseconds(limits.cpu),
            LimitName::Memory => limits.memory,
            LimitName::Pids => limits.pids.into(),
            LimitName::OpenFiles => limits.open_files.into(),
            LimitName::FileSize => limits.file_size,
            LimitName::Output => limits.output,
            LimitName::Cores => limits.cores.millicores().into(),
            LimitName::WorkSize => filesystem.work.size,
            LimitName::WorkInodes => filesystem.work.inodes,
            LimitName::TmpSize => filesystem.tmp.size,
            LimitName::TmpInodes => filesystem.tmp.inodes,
        }
    }
}

impl LimitName {
    fn text(self, amount: u64) -> String {
        let narrow = || u32::try_from(amount).unwrap_or(u32::MAX);
        match self {
            Self::Wall | Self::Cpu => Milliseconds(amount).to_string(),
            Self::Memory | Self::FileSize | Self::Output | Self::WorkSize | Self::TmpSize => {
                ByteSize(amount).to_string()
            }
            Self::Pids | Self::OpenFiles | Self::WorkInodes | Self::TmpInodes => {
                Count(narrow()).to_string()
            }
            Self::Cores => Cores::from_millicores(narrow()).to_string(),
        }
    }
}

/// Limits have at most millisecond precision.
fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{BuiltInsOnly, LimitName, Policy};

    fn policy(overrides: &[&str]) -> Policy {
        let overrides: Vec<_> = overrides.iter().map(|text| text.parse().unwrap()).collect();
        Policy::load("standard", &overrides, &BuiltInsOnly).unwrap()
    }

    #[test]
    fn a_text_is_what_an_override_takes() {
        let texts = [
            (LimitName::Wall, "1500ms"),
            (LimitName::Cpu, "2m"),
            (LimitName::Memory, "768MiB"),
            (LimitName::Pids, "7"),
            (LimitName::OpenFiles, "100"),
            (LimitName::FileSize, "1GiB"),
            (LimitName::Output, "3001B"),
            (LimitName::Cores, "0.5"),
            (LimitName::WorkSize, "5MB"),
            (LimitName::WorkInodes, "99"),
            (LimitName::TmpSize, "4KiB"),
            (LimitName::TmpInodes, "16"),
        ];
        for (name, text) in texts {
            let policy = policy(&[&format!("{}={text}", name.key())]);
            assert_eq!(policy.limit_text(name), text);
            let raised = policy.raised_limit_text(name).unwrap();
            self::policy(&[&format!("{}={raised}", name.key())]);
        }
    }

    #[test]
    fn a_raised_limit_is_twice_as_high_and_in_range() {
        let raised = |set: &str, name| policy(&[set]).raised_limit_text(name);
        assert_eq!(
            raised("limits.wall=30s", LimitName::Wall),
            Some("1m".into())
        );
        assert_eq!(
            raised("limits.pids=4000000", LimitName::Pids),
            Some("4194304".into())
        );
        assert_eq!(raised("limits.pids=4194304", LimitName::Pids), None);
    }
}
