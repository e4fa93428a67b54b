//! Amounts of limits, in the notations that batch tasks also use (docs/batch.md).

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use sandfork::LimitName;
use serde::Deserialize;
use serde_json::Number;

use crate::failure::Failure;
use crate::sandboxes::Sandboxes;

/// A text with a unit, as in a policy, or a number of seconds or bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a limit is a text with a unit, such as \"2s\" or \"64KiB\", or a number of seconds or of bytes"
)]
pub enum Amount {
    /// A number of seconds or bytes.
    Number(Number),
    /// A text with a unit.
    Text(String),
}

impl Amount {
    /// Returns the amount as a time.
    ///
    /// # Errors
    /// Returns an error if the amount is not a time, or exceeds the policy's limit.
    pub fn time(&self, limit: LimitName, of: &Sandboxes) -> Result<Duration, Failure> {
        let seconds = match self {
            Self::Number(seconds) => seconds.as_f64().unwrap_or(f64::NAN),
            Self::Text(text) => Duration::from_millis(amount(limit, text)?).as_secs_f64(),
        };
        let most = Duration::from_millis(of.policy.limit(limit));
        if seconds > most.as_secs_f64() {
            return Err(self.above(limit, &format!("{most:?}")));
        }
        of.time(limit, limit.key(), seconds)
    }

    /// Returns the amount as a number of bytes.
    ///
    /// # Errors
    /// Returns an error if the amount is not a number of bytes, or exceeds the policy's limit.
    pub fn bytes(&self, limit: LimitName, of: &Sandboxes) -> Result<u64, Failure> {
        let bytes = match self {
            Self::Number(number) => number.as_u64().ok_or_else(|| {
                Failure::Request(format!(
                    "{}: {number} is not a number of bytes",
                    limit.key()
                ))
            })?,
            Self::Text(text) => amount(limit, text)?,
        };
        let most = of.policy.limit(limit);
        if bytes > most {
            return Err(self.above(limit, &format!("{most} bytes")));
        }
        Ok(bytes)
    }

    fn above(&self, limit: LimitName, most: &str) -> Failure {
        Failure::Request(format!(
            "{key}: {self} is above the policy's {most}: use at most that",
            key = limit.key()
        ))
    }
}

impl Display for Amount {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

fn amount(limit: LimitName, text: &str) -> Result<u64, Failure> {
    let amount = limit.amount(text);
    amount.map_err(|problem| Failure::Request(format!("{}: {problem}", limit.key())))
}
