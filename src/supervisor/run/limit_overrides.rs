//! Limits that a request may lower below its policy's.

use std::time::Duration;

use super::RunLimits;
use crate::outcome::LimitName;
use crate::supervisor::error::SupervisorError;

/// The limits that one request overrides.
///
/// They are the limits that the supervisor itself enforces. The others are part of the jail, and so
/// of the zygote.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LimitOverrides {
    /// The wall-clock limit.
    pub wall: Option<Duration>,
    /// The processor time.
    pub cpu: Option<Duration>,
    /// The output of both streams together, bytes.
    pub output: Option<u64>,
}

impl LimitOverrides {
    /// Returns the effective limits: the policy's, with the lower values of this request.
    pub fn resolve(self, policy: RunLimits) -> Result<RunLimits, SupervisorError> {
        let time = |name, wanted: Option<Duration>, allowed: Duration| match wanted {
            Some(wanted) if wanted > allowed => {
                refused(name, format!("{wanted:?}"), format!("{allowed:?}"))
            }
            wanted => Ok(wanted.unwrap_or(allowed)),
        };
        let output = match self.output {
            Some(wanted) if wanted > policy.output => refused(
                LimitName::Output,
                format!("{wanted} bytes"),
                format!("{} bytes", policy.output),
            )?,
            wanted => wanted.unwrap_or(policy.output),
        };
        Ok(RunLimits {
            wall: time(LimitName::Wall, self.wall, policy.wall)?,
            cpu: time(LimitName::Cpu, self.cpu, policy.cpu)?,
            output,
            ..policy
        })
    }
}

fn refused<T>(name: LimitName, wanted: String, allowed: String) -> Result<T, SupervisorError> {
    let key = name.key();
    Err(SupervisorError::AbovePolicy {
        key,
        wanted,
        allowed,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const POLICY: RunLimits = RunLimits {
        wall: Duration::from_secs(30),
        cpu: Duration::from_secs(10),
        memory: 1 << 29,
        pids: 64,
        output: 1 << 20,
        millicores: 1000,
        files: None,
    };

    #[test]
    fn what_is_not_named_is_the_policys() {
        assert_eq!(LimitOverrides::default().resolve(POLICY).unwrap(), POLICY);
    }

    #[test]
    fn as_much_is_allowed_and_less() {
        let less = LimitOverrides {
            wall: Some(POLICY.wall),
            cpu: Some(Duration::from_millis(5)),
            output: Some(0),
        };
        let held = less.resolve(POLICY).unwrap();
        let cpu = Duration::from_millis(5);
        assert_eq!(
            held,
            RunLimits {
                cpu,
                output: 0,
                ..POLICY
            }
        );
    }

    #[test]
    fn more_is_refused_by_name() {
        let refusal = |less: LimitOverrides| less.resolve(POLICY).unwrap_err().to_string();
        let none = LimitOverrides::default();
        let wall = Some(POLICY.wall + Duration::from_millis(500));
        assert_eq!(
            refusal(LimitOverrides { wall, ..none }),
            "the request asks for `limits.wall` of 30.5s, and the policy allows 30s: ask for less, or \
             raise it in the policy"
        );
        let cpu = Some(Duration::from_secs(11));
        assert!(refusal(LimitOverrides { cpu, ..none }).contains("`limits.cpu` of 11s"));
        let output = Some(POLICY.output + 1);
        assert!(
            refusal(LimitOverrides { output, ..none }).contains("`limits.output` of 1048577 bytes")
        );
    }
}
