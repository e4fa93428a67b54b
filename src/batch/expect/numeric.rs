//! Numbers of a comparison: whole ones exactly, at any size.

use std::borrow::Cow;
use std::fmt;

use num_bigint::BigInt;
use num_traits::{FromPrimitive, ToPrimitive};
use serde_json::Value as Json;

use crate::batch::exact_json::ExactNumber;
use crate::outcome::value::as_python_prints;

/// A number of the output or of a value.
#[derive(Clone, Debug)]
pub enum Numeric {
    Whole(BigInt),
    Float(f64),
}

/// The most characters of a word that is a number, so that a word of a megabyte is none.
const LONGEST_WORD: usize = 400;

/// Whole numbers of so many bits are floats too.
const EXACT_IN_FLOAT: u64 = 53;

/// A float holds a whole number of so many bits, rounded.
const MOST_IN_FLOAT: u64 = 1000;

/// Numbers of so many decimal digits are always worth their conversion.
const FEW_DIGITS: u64 = 640;

impl Numeric {
    /// The number that a word is: finite, in digits.
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

    /// The number that a value is, as a result has it.
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

    /// Whether it is near an expected number. None of the work is done that an expected number of very many digits
    /// would take, unless this one has as many.
    pub fn is_near(&self, expected: &ExactNumber, tolerance: f64) -> bool {
        let expected = match expected {
            ExactNumber::Whole(whole) => Self::Whole((*whole).into()),
            ExactNumber::Float(float) => Self::Float(*float),
            ExactNumber::Long(digits) => {
                let bits = match self {
                    Self::Whole(whole) => whole.bits(),
                    Self::Float(_) => 0,
                };
                // A decimal digit has more than three bits.
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

    /// Whether `other` is near to this one, which is expected.
    pub fn is_near_to(&self, other: &Self, tolerance: f64) -> bool {
        match (self.exact_float(), other.exact_float()) {
            (Some(one), Some(other)) => (one - other).abs() <= tolerance * one.abs().max(1.0),
            _ => are_near(&self.integer(), &other.integer(), tolerance),
        }
    }

    /// The float that it is, if it is one exactly.
    fn exact_float(&self) -> Option<f64> {
        match self {
            Self::Whole(whole) if whole.bits() <= EXACT_IN_FLOAT => whole.to_f64(),
            Self::Whole(_) => None,
            Self::Float(number) => Some(*number),
        }
    }

    /// Without its fraction, which is nothing beside a number that is no float.
    fn integer(&self) -> Cow<'_, BigInt> {
        match self {
            Self::Whole(whole) => Cow::Borrowed(whole),
            Self::Float(float) => Cow::Owned(BigInt::from_f64(*float).unwrap_or_default()),
        }
    }
}

/// Whether a whole number is near an expected one. A tolerance is no more exact than a float.
fn are_near(expected: &BigInt, found: &BigInt, tolerance: f64) -> bool {
    if expected == found || tolerance <= 0.0 {
        return expected == found;
    }
    // In a unit in which both are floats.
    let unit = expected
        .bits()
        .max(found.bits())
        .saturating_sub(MOST_IN_FLOAT);
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
    fn digits_of_both_bases_are_one_number() {
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
        fn digits_are_read_as_they_are_written(text in "-?[1-9][0-9]{0,300}") {
            prop_assert_eq!(decimal(&text), text);
        }

        #[test]
        fn floats_are_the_integers_that_they_print(float in -1e308f64..1e308) {
            let whole = float.trunc() + 0.0;
            prop_assert_eq!(Numeric::Float(float).integer().to_string(), format!("{whole:.0}"));
        }
    }
}
