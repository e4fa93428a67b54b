//! Integers of any size, kept as they are written.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An integer of any size: sign and hexadecimal digits, as Python's `int(text, 16)` reads them.
///
/// It is kept as text, because arithmetic on a number of a million digits that a guest chose is
/// work that nobody asked for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields")]
pub struct BigInt {
    hex: String,
}

#[derive(Deserialize)]
struct Fields {
    hex: String,
}

impl BigInt {
    /// From `-1f` and the like.
    ///
    /// # Errors
    ///
    /// When it is not an optional `-` and lower-case hexadecimal digits.
    pub fn new(hex: impl Into<String>) -> Result<Self, &'static str> {
        let hex = hex.into();
        let digits = hex.strip_prefix('-').unwrap_or(&hex);
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.is_empty() || !digits.bytes().all(is_digit) {
            return Err("an `int` whose `hex` is not a hexadecimal number");
        }
        Ok(Self { hex })
    }

    /// Sign and hexadecimal digits.
    pub fn as_hex(&self) -> &str {
        &self.hex
    }

    /// The number, if it is one of 64 bits.
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

/// As Python's `hex()` writes it: the decimal digits of a long number take quadratic time.
impl fmt::Display for BigInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hex.strip_prefix('-') {
            Some(digits) => write!(f, "-0x{digits}"),
            None => write!(f, "0x{}", self.hex),
        }
    }
}
