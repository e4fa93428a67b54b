//! The amounts of limits as texts, and the limits that a request overrides.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::outcome::{LimitName, Limits, Scope};

impl Limits {
    /// An amount as a policy file and `--set` write it: `30s`, `512MiB`, `64`.
    pub fn text(&self, name: LimitName) -> String {
        name.spec().unit.text(self.amount(name))
    }

    /// Twice the amount, or the maximum: the value to try if the limit was too low. `None` if the limit
    /// cannot be raised.
    pub fn raised_text(&self, name: LimitName) -> Option<String> {
        let (spec, amount) = (name.spec(), self.amount(name));
        let raised = amount.saturating_mul(2).min(*spec.range.end());
        (raised > amount).then(|| spec.unit.text(raised))
    }
}

/// The limits that a request overrides. They have [`Scope::Run`]: the others are part of the jail, and so of
/// the zygote.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LimitOverrides(BTreeMap<LimitName, u64>);

/// A request for more than its policy allows.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "the request asks for `{}` of {wanted}, and the policy allows {allowed}: ask for less, or raise it in \
     the policy",
    .name.key()
)]
pub struct AbovePolicy {
    /// The limit.
    pub name: LimitName,
    /// What the request asks for.
    pub wanted: String,
    /// What the policy allows.
    pub allowed: String,
}

impl LimitOverrides {
    /// Overrides one limit, in the base of its unit.
    pub(crate) fn set(&mut self, name: LimitName, amount: u64) {
        debug_assert_eq!(name.spec().scope, Scope::Run);
        self.0.insert(name, amount);
    }

    /// The effective limits: the policy's, with the lower amounts of this request.
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
    fn a_text_is_what_an_override_takes() {
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
    fn a_raised_limit_is_twice_as_high_and_in_range() {
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
    fn each_limit_has_its_unit_and_its_range_in_the_document() {
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
    fn without_overrides_the_limits_are_the_policys() {
        let policy = limits(&[]);
        assert_eq!(LimitOverrides::default().resolve(&policy), Ok(policy));
    }

    #[test]
    fn as_much_is_allowed_and_less() {
        let policy = limits(&[]);
        let as_much = policy.amount(LimitName::Wall);
        assert_eq!(overridden(LimitName::Wall, as_much), Ok(policy));
        let less = overridden(LimitName::Cpu, 5).unwrap();
        assert_eq!(less, limits(&["limits.cpu=5ms"]));
        assert_eq!(overridden(LimitName::Output, 0).unwrap().output(), 0);
    }

    #[test]
    fn more_is_refused_by_name() {
        let refusal = |name, amount| overridden(name, amount).unwrap_err().to_string();
        assert_eq!(
            refusal(LimitName::Wall, 30_500),
            "the request asks for `limits.wall` of 30500ms, and the policy allows 30s: ask for less, or \
             raise it in the policy"
        );
        assert!(refusal(LimitName::Cpu, 11_000).contains("`limits.cpu` of 11s"));
        let output = refusal(LimitName::Output, (1 << 20) + 1);
        assert!(output.contains("`limits.output` of 1048577B"), "{output}");
    }
}
