//! Numbers of a comparison: whole ones exactly, at any size.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::batch::exact_json::ExactNumber;

/// A number of the output or of a value.
#[derive(Clone, Debug)]
pub enum Numeric {
    Whole(i128),
    /// A whole number beyond 128 bits.
    Large(Integer),
    Float(f64),
}

/// The most characters of a word that is a number, so that a word of a megabyte is none.
const LONGEST_WORD: usize = 400;

/// Whole numbers up to here are floats too.
const EXACT_IN_FLOAT: u128 = 1 << 53;

/// Numbers of so many decimal digits are always worth their conversion.
const FEW_DIGITS: usize = 640;

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
        if let Some(large) = Integer::of_decimal(word) {
            return Some(Self::Large(large));
        }
        let float = word.parse().ok().filter(|float: &f64| float.is_finite());
        float.map(Self::Float)
    }

    /// The number that a value is, as a result has it.
    pub fn of_value(value: &Json) -> Option<Self> {
        if let Json::Number(number) = value {
            let whole = number.as_i64().map(i128::from);
            let whole = whole.or_else(|| number.as_u64().map(i128::from));
            let float = || number.as_f64().map(Self::Float);
            return whole.map(Self::Whole).or_else(float);
        }
        if value.get("type").and_then(Json::as_str) != Some("int") {
            return None;
        }
        let hex = value["hex"].as_str()?;
        match i128::from_str_radix(hex, 16) {
            Ok(whole) => Some(Self::Whole(whole)),
            Err(_) => Integer::of_hex(hex).map(Self::Large),
        }
    }

    /// Whether it is near an expected number. None of the work is done that an expected number of very many digits
    /// would take, unless this one has as many.
    pub fn is_near(&self, expected: &ExactNumber, tolerance: f64) -> bool {
        let expected = match expected {
            ExactNumber::Whole(whole) => Self::Whole(*whole),
            ExactNumber::Float(float) => Self::Float(*float),
            ExactNumber::Long(digits) => {
                let limbs = match self {
                    Self::Large(large) => large.limbs.len(),
                    Self::Whole(_) | Self::Float(_) => 0,
                };
                // A limb has fewer than 20 digits.
                let most = FEW_DIGITS.max(20 * (limbs + 1));
                if digits.len() > most {
                    return false;
                }
                match Integer::of_decimal(digits) {
                    Some(large) => Self::Large(large),
                    None => return false,
                }
            }
        };
        expected.is_near_to(self, tolerance)
    }

    /// Whether `other` is near to this one, which is expected.
    pub fn is_near_to(&self, other: &Self, tolerance: f64) -> bool {
        let (difference, size) = match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => {
                // A tolerance is no more exact than a float.
                #[allow(clippy::cast_precision_loss)]
                let parts = (one.abs_diff(*other) as f64, one.unsigned_abs() as f64);
                parts
            }
            _ => match (self.exact_float(), other.exact_float()) {
                (Some(one), Some(other)) => ((one - other).abs(), one.abs()),
                _ => return self.integer().is_near_to(&other.integer(), tolerance),
            },
        };
        difference.is_finite() && difference <= tolerance * size.max(1.0)
    }

    /// The float that it is, if it is one exactly.
    fn exact_float(&self) -> Option<f64> {
        match self {
            #[allow(clippy::cast_precision_loss)]
            Self::Whole(number) => {
                (number.unsigned_abs() <= EXACT_IN_FLOAT).then_some(*number as f64)
            }
            Self::Float(number) => Some(*number),
            Self::Large(_) => None,
        }
    }

    /// Without its fraction, which is nothing beside a number that is no float.
    fn integer(&self) -> Cow<'_, Integer> {
        match self {
            Self::Large(large) => Cow::Borrowed(large),
            Self::Whole(whole) => Cow::Owned(Integer::of_whole(*whole)),
            Self::Float(float) => Cow::Owned(Integer::of_float(*float)),
        }
    }
}

/// In decimal, as Python prints it: that takes quadratic time, so a longer number than Python prints is in hexadecimal.
impl std::fmt::Display for Numeric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(whole) => whole.fmt(f),
            Self::Float(float) => Json::from(*float).fmt(f),
            Self::Large(large) => large.fmt(f),
        }
    }
}

/// A whole number of any size.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Integer {
    sign: Sign,
    /// The least first; the last is not 0.
    limbs: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sign {
    Negative,
    Positive,
}

/// Decimal digits that fit a limb.
const DIGITS: usize = 19;

/// The most limbs of a number that is shown in decimal: Python's limit of 4,300 digits.
const MOST_SHOWN: usize = 224;

impl Integer {
    /// `limbs` may end with zeros.
    fn new(sign: Sign, mut limbs: Vec<u64>) -> Self {
        limbs.truncate(
            limbs
                .iter()
                .rposition(|limb| *limb != 0)
                .map_or(0, |last| last + 1),
        );
        let sign = if limbs.is_empty() {
            Sign::Positive
        } else {
            sign
        };
        Self { sign, limbs }
    }

    fn of_whole(whole: i128) -> Self {
        let sign = if whole < 0 {
            Sign::Negative
        } else {
            Sign::Positive
        };
        let size = whole.unsigned_abs();
        #[allow(clippy::cast_possible_truncation)]
        Self::new(sign, vec![size as u64, (size >> 64) as u64])
    }

    /// A finite float without its fraction.
    fn of_float(float: f64) -> Self {
        let sign = if float < 0.0 {
            Sign::Negative
        } else {
            Sign::Positive
        };
        let mut rest = float.abs().trunc();
        let mut limbs = Vec::new();
        let base = 2f64.powi(64);
        while rest > 0.0 {
            // Both steps are exact: a power of two divides, and the remainder has fewer bits.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            limbs.push((rest % base) as u64);
            rest = (rest / base).trunc();
        }
        Self::new(sign, limbs)
    }

    /// Sign and decimal digits. Takes time with the square of their number.
    fn of_decimal(text: &str) -> Option<Self> {
        let (sign, digits) = signed(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let mut limbs = Vec::new();
        for chunk in digits.as_bytes().chunks(DIGITS) {
            let value = std::str::from_utf8(chunk).ok()?.parse::<u64>().ok()?;
            let base = 10u128.pow(u32::try_from(chunk.len()).ok()?);
            let mut carry = u128::from(value);
            for limb in &mut limbs {
                carry += u128::from(*limb) * base;
                #[allow(clippy::cast_possible_truncation)]
                let low = carry as u64;
                *limb = low;
                carry >>= 64;
            }
            #[allow(clippy::cast_possible_truncation)]
            limbs.push(carry as u64);
        }
        Some(Self::new(sign, limbs))
    }

    /// Sign and hexadecimal digits.
    fn of_hex(text: &str) -> Option<Self> {
        let (sign, digits) = signed(text);
        let limb = |chunk| u64::from_str_radix(std::str::from_utf8(chunk).ok()?, 16).ok();
        let limbs: Option<Vec<u64>> = digits.as_bytes().rchunks(16).map(limb).collect();
        Some(Self::new(sign, limbs?))
    }

    fn is_near_to(&self, other: &Self, tolerance: f64) -> bool {
        if self == other || tolerance <= 0.0 {
            return self == other;
        }
        // In a unit in which both are floats.
        let most = self.limbs.len().max(other.limbs.len());
        let unit = most.saturating_sub(15);
        let (one, other) = (self.float(unit), other.float(unit));
        let least = if unit == 0 { 1.0 } else { 0.0 };
        (one - other).abs() <= tolerance * one.abs().max(least)
    }

    /// As a float, without so many limbs.
    fn float(&self, without: usize) -> f64 {
        let limbs = self.limbs.iter().skip(without).rev();
        #[allow(clippy::cast_precision_loss)]
        let size = limbs.fold(0.0, |sum, limb| sum * 2f64.powi(64) + *limb as f64);
        match self.sign {
            Sign::Negative => -size,
            Sign::Positive => size,
        }
    }
}

impl std::fmt::Display for Integer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.sign == Sign::Negative {
            f.write_str("-")?;
        }
        if self.limbs.len() > MOST_SHOWN {
            f.write_str("0x")?;
            let mut limbs = self.limbs.iter().rev();
            write!(f, "{:x}", limbs.next().copied().unwrap_or_default())?;
            return limbs.try_for_each(|limb| write!(f, "{limb:016x}"));
        }
        let mut limbs = self.limbs.clone();
        let mut chunks = Vec::new();
        while !limbs.is_empty() {
            let mut rest = 0u128;
            for limb in limbs.iter_mut().rev() {
                rest = rest << 64 | u128::from(*limb);
                #[allow(clippy::cast_possible_truncation)]
                let quotient = (rest / 10u128.pow(19)) as u64;
                *limb = quotient;
                rest %= 10u128.pow(19);
            }
            chunks.push(rest);
            while limbs.last() == Some(&0) {
                limbs.pop();
            }
        }
        write!(f, "{}", chunks.pop().unwrap_or_default())?;
        chunks
            .iter()
            .rev()
            .try_for_each(|chunk| write!(f, "{chunk:019}"))
    }
}

fn signed(text: &str) -> (Sign, &str) {
    match text.strip_prefix('-') {
        Some(digits) => (Sign::Negative, digits),
        None => (Sign::Positive, text.strip_prefix('+').unwrap_or(text)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Integer {
        Integer::of_decimal(text).unwrap()
    }

    #[test]
    fn digits_of_both_bases_are_one_number() {
        let factorial = "815915283247897734345611269596115894272000000000";
        let hex = "8eeae81b84c7f27e080fde64ff05254000000000";
        assert_eq!(decimal(factorial), Integer::of_hex(hex).unwrap());
        assert_eq!(Integer::of_hex(hex).unwrap().to_string(), factorial);
        let negative = format!("-{factorial}");
        let found = Integer::of_hex(&format!("-{hex}")).unwrap();
        assert_eq!(decimal(&negative), found);
        assert_eq!(found.to_string(), negative);
        assert_eq!(decimal("-0").to_string(), "0");
        assert_eq!(decimal("007"), Integer::of_whole(7));
        let long = Integer::of_hex(&("1".to_owned() + &"0".repeat(20_000))).unwrap();
        assert_eq!(long.to_string(), "0x1".to_owned() + &"0".repeat(20_000));
    }

    proptest! {
        #[test]
        fn digits_are_read_as_they_are_written(text in "-?[1-9][0-9]{0,300}") {
            prop_assert_eq!(decimal(&text).to_string(), text);
        }

        #[test]
        fn floats_are_the_integers_that_they_print(float in -1e308f64..1e308) {
            let whole = float.trunc() + 0.0;
            prop_assert_eq!(Integer::of_float(float).to_string(), format!("{whole:.0}"));
        }
    }
}
