//! Integers of any size, kept as text.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An integer of any size: sign and hexadecimal digits, in the notation that Python's `int(text, 16)`
/// reads.
///
/// The number stays text, because converting a guest's number of a million digits would be wasted work.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields")]
pub struct BigInt {
    hex: String,
}

#[derive(Deserialize)]
struct Fields {
    hex: String,
}

/// The maximum number of hexadecimal digits, for a million bits. Python needs quadratic time to print such a
/// number, or to compare it with a decimal.
const MAX_DIGITS: usize = 256 << 10;

impl BigInt {
    /// Parses `-1f` and similar.
    ///
    /// # Errors
    ///
    /// If the text is not an optional `-` and lower-case hexadecimal digits, or has more than a million
    /// bits.
    pub fn new(hex: impl Into<String>) -> Result<Self, &'static str> {
        let hex = hex.into();
        let digits = hex.strip_prefix('-').unwrap_or(&hex);
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.is_empty() || !digits.bytes().all(is_digit) {
            return Err("an `int` whose `hex` is not a hexadecimal number");
        }
        if digits.len() > MAX_DIGITS {
            return Err("an `int` of more than a million bits");
        }
        Ok(Self { hex })
    }

    /// Returns sign and hexadecimal digits.
    pub fn as_hex(&self) -> &str {
        &self.hex
    }

    /// Returns the number, if it fits 64 bits.
    pub fn to_i64(&self) -> Option<i64> {
        i64::from_str_radix(&self.hex, 16).ok()
    }
}

impl TryFrom<Fields> for BigInt {
    type Error = &'static str;

    fn try_from(fields: Fields) -> Result<Self, Self::Error> {
        Self::new(fields.hex)
    }
}

impl From<u64> for BigInt {
    fn from(value: u64) -> Self {
        Self {
            hex: format!("{value:x}"),
        }
    }
}

/// Formats in decimal, as Python does.
impl fmt::Display for BigInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = num_bigint::BigInt::parse_bytes(self.hex.as_bytes(), 16);
        f.write_str(&as_python_prints(&number.unwrap_or_default()))
    }
}

/// The bits of a number of 4,300 decimal digits, the longest that Python prints in decimal.
const MAX_IN_DECIMAL: u64 = 14_285;

/// Formats a number in decimal. A number that Python refuses to print, because the conversion takes quadratic time, is
/// formatted like Python's `hex()`.
pub(crate) fn as_python_prints(number: &num_bigint::BigInt) -> String {
    if number.bits() > MAX_IN_DECIMAL {
        return format!("{number:#x}");
    }
    number.to_string()
}
