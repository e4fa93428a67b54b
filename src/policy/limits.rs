//! Formats the amounts of limits, and applies the limits that a request overrides.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::outcome::{LimitName, Limits, Scope};

impl Limits {
    /// Formats an amount as in a policy file and `--set`: `30s`, `512MiB`, `64`.
    pub fn text(&self, name: LimitName) -> String {
        name.spec().unit.text(self.amount(name))
    }

    /// Formats the value to try if the limit was too low: twice the amount, or the maximum. Returns `None` if the
    /// limit cannot be raised.
    pub fn raised_text(&self, name: LimitName) -> Option<String> {
        let (spec, amount) = (name.spec(), self.amount(name));
        let raised = amount.saturating_mul(2).min(*spec.range.end());
        (raised > amount).then(|| spec.unit.text(raised))
    }
}

/// The limits that a request overrides. All of them have [`Scope::Run`]: other limits are part of the jail and
/// so of the zygote, which a request cannot change.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LimitOverrides(BTreeMap<LimitName, u64>);

/// The error for a request that raises a limit above its policy.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "the request sets `{}` to {wanted}, but the policy allows at most {allowed}: lower it in the request, or \
     raise it in the policy",
    .name.key()
)]
pub struct AbovePolicy {
    /// The limit.
    pub name: LimitName,
    /// The amount in the request.
    pub wanted: String,
    /// The amount in the policy.
    pub allowed: String,
}

impl LimitOverrides {
    /// Overrides one limit. The amount is in the base of its [`Unit`](crate::outcome::Unit).
    pub(crate) fn set(&mut self, name: LimitName, amount: u64) {
        debug_assert_eq!(name.spec().scope, Scope::Run);
        self.0.insert(name, amount);
    }

    /// Returns the effective limits: those of the policy, lowered by this request.
    ///
    /// # Errors
    /// If the request raises a limit.
    pub(crate) fn resolve(&self, policy: &Limits) -> Result<Limits, AbovePolicy> {
        for (name, wanted) in &self.0 {
            let allowed = policy.amount(*name);
            if *wanted > allowed {
                let text = |amount| name.spec().unit.text(amount);
                return Err(AbovePolicy {
                    name: *name,
                    wanted: text(*wanted),
                    allowed: text(allowed),
                });
            }
        }
        let amount = |name| self.0.get(&name).copied();
        Ok(Limits::new(|name| {
            amount(name).unwrap_or(policy.amount(name))
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::outcome::Unit;
    use crate::policy::{BuiltInsOnly, Policy};

    fn limits(overrides: &[&str]) -> Limits {
        let overrides: Vec<_> = overrides.iter().map(|text| text.parse().unwrap()).collect();
        let policy = Policy::load("standard", &overrides, &BuiltInsOnly).unwrap();
        policy.limits
    }

    #[test]
    fn limit_text_is_a_valid_override() {
        let texts = [
            "1500ms", "2m", "768MiB", "7", "100", "1GiB", "3001B", "0.5", "5MB", "99", "4KiB", "16",
        ];
        for (name, text) in LimitName::ALL.into_iter().zip(texts) {
            let limits = limits(&[&format!("{}={text}", name.key())]);
            assert_eq!(limits.text(name), text);
            let raised = limits.raised_text(name).unwrap();
            self::limits(&[&format!("{}={raised}", name.key())]);
        }
    }

    #[test]
    fn raised_limit_is_doubled_within_its_range() {
        let raised = |set: &str, name| limits(&[set]).raised_text(name);
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

    #[test]
    fn document_has_unit_and_range_of_each_limit() {
        let document = include_str!("../../docs/policy.md");
        for name in LimitName::ALL {
            let (unit, range) = (name.spec().unit, &name.spec().range);
            let noun = match unit {
                Unit::Duration => "duration",
                Unit::Size => "size",
                Unit::Count | Unit::Cores => "number",
            };
            let row = format!(
                "| `{}` | {noun}, {} to {} |",
                name.key(),
                unit.text(*range.start()),
                unit.text(*range.end())
            );
            assert!(document.contains(&row), "{row}");
        }
    }

    fn overridden(name: LimitName, amount: u64) -> Result<Limits, AbovePolicy> {
        let mut overrides = LimitOverrides::default();
        overrides.set(name, amount);
        overrides.resolve(&limits(&[]))
    }

    #[test]
    fn no_overrides_keep_the_limits_of_the_policy() {
        let policy = limits(&[]);
        assert_eq!(LimitOverrides::default().resolve(&policy), Ok(policy));
    }

    #[test]
    fn equal_and_lower_amounts_are_accepted() {
        let policy = limits(&[]);
        let equal = policy.amount(LimitName::Wall);
        assert_eq!(overridden(LimitName::Wall, equal), Ok(policy));
        let lower = overridden(LimitName::Cpu, 5).unwrap();
        assert_eq!(lower, limits(&["limits.cpu=5ms"]));
        assert_eq!(overridden(LimitName::Output, 0).unwrap().output(), 0);
    }

    #[test]
    fn higher_amounts_are_rejected_by_name() {
        let refusal = |name, amount| overridden(name, amount).unwrap_err().to_string();
        assert_eq!(
            refusal(LimitName::Wall, 30_500),
            "the request sets `limits.wall` to 30500ms, but the policy allows at most 30s: lower it in the \
             request, or raise it in the policy"
        );
        assert!(refusal(LimitName::Cpu, 11_000).contains("`limits.cpu` to 11s"));
        let output = refusal(LimitName::Output, (1 << 20) + 1);
        assert!(output.contains("`limits.output` to 1048577B"), "{output}");
    }
}
