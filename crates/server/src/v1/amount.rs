//! Amounts of limits, in the forms that the tasks of a batch have too (docs/batch.md).

use std::time::Duration;

use sandfork::LimitName;
use serde::Deserialize;
use serde_json::Number;

use crate::failure::Failure;
use crate::sandboxes::Sandboxes;

/// A text as in a policy, or a number of seconds or of bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a limit is a text with a unit, such as \"2s\" or \"64KiB\", or a number of seconds or of bytes"
)]
pub enum Amount {
    /// Seconds or bytes.
    Number(Number),
    /// With a unit.
    Text(String),
}

impl Amount {
    /// A time, at most the longest of a run.
    ///
    /// # Errors
    /// If it is none.
    pub fn time(&self, limit: LimitName, of: &Sandboxes) -> Result<Duration, Failure> {
        match self {
            Self::Number(seconds) => of.time(seconds.as_f64().unwrap_or(f64::NAN)),
            Self::Text(text) => {
                let time = Duration::from_millis(amount(limit, text)?);
                of.time(time.as_secs_f64())
            }
        }
    }

    /// A number of bytes.
    ///
    /// # Errors
    /// If it is none.
    pub fn bytes(&self, limit: LimitName) -> Result<u64, Failure> {
        match self {
            Self::Number(number) => number.as_u64().ok_or_else(|| {
                Failure::Request(format!("{}: {number} is no number of bytes", limit.key()))
            }),
            Self::Text(text) => amount(limit, text),
        }
    }
}

fn amount(limit: LimitName, text: &str) -> Result<u64, Failure> {
    let amount = limit.amount(text);
    amount.map_err(|problem| Failure::Request(format!("{}: {problem}", limit.key())))
}
