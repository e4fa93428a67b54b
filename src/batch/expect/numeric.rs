//! Compares numbers, integers of any size exactly.

use std::borrow::Cow;
use std::fmt;

use num_bigint::BigInt;
use num_traits::{FromPrimitive, ToPrimitive};
use serde_json::Value as Json;

use crate::batch::exact_json::ExactNumber;
use crate::outcome::value::as_python_prints;

/// A number from the output or from a value.
#[derive(Clone, Debug)]
pub enum Numeric {
    Whole(BigInt),
    Float(f64),
}

/// The maximum length of a word that is parsed as a number, so that a megabyte of digits is not.
const LONGEST_WORD: usize = 400;

/// Integers of up to this many bits are exactly representable as a float.
const EXACT_IN_FLOAT: u64 = 53;

/// Integers of up to this many bits are within the range of a float, but may be rounded.
const MAX_IN_FLOAT: u64 = 1000;

/// Integers of up to this many decimal digits are always cheap enough to convert.
const FEW_DIGITS: u64 = 640;

impl Numeric {
    /// Parses a word as a finite decimal number.
    pub fn of_word(word: &str) -> Option<Self> {
        let digits = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
        if word.len() > LONGEST_WORD || !word.bytes().all(digits) {
            return None;
        }
        if let Ok(whole) = word.parse() {
            return Some(Self::Whole(whole));
        }
        let float = word.parse().ok().filter(|float: &f64| float.is_finite());
        float.map(Self::Float)
    }

    /// Returns the number that a result's encoded value represents.
    pub fn of_value(value: &Json) -> Option<Self> {
        if let Json::Number(number) = value {
            let whole = number.as_i64().map(BigInt::from);
            let whole = whole.or_else(|| number.as_u64().map(BigInt::from));
            let float = || number.as_f64().map(Self::Float);
            return whole.map(Self::Whole).or_else(float);
        }
        if value.get("type").and_then(Json::as_str) != Some("int") {
            return None;
        }
        let hex = value["hex"].as_str()?;
        BigInt::parse_bytes(hex.as_bytes(), 16).map(Self::Whole)
    }

    /// Returns whether this number is within the tolerance of an expected number. Does not convert a very long expected
    /// number unless this number is about as long.
    pub fn is_near(&self, expected: &ExactNumber, tolerance: f64) -> bool {
        let expected = match expected {
            ExactNumber::Whole(whole) => Self::Whole((*whole).into()),
            ExactNumber::Float(float) => Self::Float(*float),
            ExactNumber::Long(digits) => {
                let bits = match self {
                    Self::Whole(whole) => whole.bits(),
                    Self::Float(_) => 0,
                };
                // A decimal digit carries more than three bits.
                if digits.len() as u64 > FEW_DIGITS.max(bits / 3 + 40) {
                    return false;
                }
                match digits.parse() {
                    Ok(whole) => Self::Whole(whole),
                    Err(_) => return false,
                }
            }
        };
        expected.is_near_to(self, tolerance)
    }

    /// Returns whether `other` is within the tolerance of this number, which is the expected one.
    pub fn is_near_to(&self, other: &Self, tolerance: f64) -> bool {
        match (self.exact_float(), other.exact_float()) {
            (Some(one), Some(other)) => (one - other).abs() <= tolerance * one.abs().max(1.0),
            _ => integers_are_near(&self.integer(), &other.integer(), tolerance),
        }
    }

    /// Returns the number as a float, if that is exact.
    fn exact_float(&self) -> Option<f64> {
        match self {
            Self::Whole(whole) if whole.bits() <= EXACT_IN_FLOAT => whole.to_f64(),
            Self::Whole(_) => None,
            Self::Float(number) => Some(*number),
        }
    }

    /// Returns the number without its fraction, which is negligible next to an integer beyond 53 bits.
    fn integer(&self) -> Cow<'_, BigInt> {
        match self {
            Self::Whole(whole) => Cow::Borrowed(whole),
            Self::Float(float) => Cow::Owned(BigInt::from_f64(*float).unwrap_or_default()),
        }
    }
}

/// Returns whether an integer is within the tolerance of an expected one. A tolerance is no more exact than a float.
fn integers_are_near(expected: &BigInt, found: &BigInt, tolerance: f64) -> bool {
    if expected == found || tolerance <= 0.0 {
        return expected == found;
    }
    // Scale both numbers into the range of a float.
    let unit = expected
        .bits()
        .max(found.bits())
        .saturating_sub(MAX_IN_FLOAT);
    let float = |number: &BigInt| (number.clone() >> unit).to_f64().unwrap_or(f64::INFINITY);
    let least = if unit == 0 { 1.0 } else { 0.0 };
    let difference = float(&(expected - found)).abs();
    difference.is_finite() && difference <= tolerance * float(expected).abs().max(least)
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => f.write_str(&as_python_prints(whole)),
            Self::Float(float) => Json::from(*float).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn found(hex: &str) -> String {
        let value = json!({"type": "int", "hex": hex});
        Numeric::of_value(&value).unwrap().to_string()
    }

    fn decimal(text: &str) -> String {
        Numeric::of_word(text).unwrap().to_string()
    }

    #[test]
    fn decimal_and_hex_are_the_same_number() {
        let factorial = "815915283247897734345611269596115894272000000000";
        let hex = "8eeae81b84c7f27e080fde64ff05254000000000";
        assert_eq!(decimal(factorial), factorial);
        assert_eq!(found(hex), factorial);
        assert_eq!(found(&format!("-{hex}")), format!("-{factorial}"));
        assert_eq!(decimal("-0"), "0");
        assert_eq!(decimal("007"), "7");
        let long = "1".to_owned() + &"0".repeat(20_000);
        assert_eq!(found(&long), format!("0x{long}"));
    }

    proptest! {
        #[test]
        fn decimal_digits_round_trip(text in "-?[1-9][0-9]{0,300}") {
            prop_assert_eq!(decimal(&text), text);
        }

        #[test]
        fn float_converts_to_its_printed_integer(float in -1e308f64..1e308) {
            let whole = float.trunc() + 0.0;
            prop_assert_eq!(Numeric::Float(float).integer().to_string(), format!("{whole:.0}"));
        }
    }
}
