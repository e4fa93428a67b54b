//! Sizes and durations outside a policy, in a policy's notation.

use std::time::Duration;

use thiserror::Error;

use super::units::{ByteSize, Milliseconds, UnitError};

/// Why a text is not a size or a duration, in a sentence.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(transparent)]
pub struct QuantityError(#[from] UnitError);

/// A duration: `500ms`, `2s`, `1.5h`, with millisecond precision.
///
/// # Errors
///
/// If the text has no unit, or an unknown one.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    Ok(text.parse::<Milliseconds>()?.duration())
}

/// A number of bytes: `64KiB`, `1.5GB`.
///
/// # Errors
///
/// If the text has no unit, or an unknown one.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    Ok(text.parse::<ByteSize>()?.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn they_are_read_as_in_a_policy() {
        assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_size("64KiB").unwrap(), 65_536);
        let refusal = parse_duration("5").unwrap_err().to_string();
        assert!(refusal.contains("has no unit"), "{refusal}");
        let refusal = parse_size("5 apples").unwrap_err().to_string();
        assert!(refusal.contains("unknown unit"), "{refusal}");
    }
}
