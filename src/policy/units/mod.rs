//! Sizes and durations in readable form: a number and a unit.
//!
//! The grammar is strict on purpose. `256` alone, `256M` and `5` each have two readings, and a
//! limit that is misread leaves a hole that no one notices.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use super::suggest::closest;
use super::text_value::text_value;

/// A unit's name and its size in base units.
type Unit = (&'static str, u64);

/// Units of sizes: powers of 1024 (IEC 80000-13), then powers of 1000 (SI). Base: the byte.
const SIZES: &[Unit] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Units of durations. Base: the millisecond.
const DURATIONS: &[Unit] = &[("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Values above this are refused: TOML's integers, rlimits and tmpfs options are signed.
const LARGEST: u64 = i64::MAX as u64;

/// A kind of quantity, for parsing and for messages.
struct Quantity {
    noun: &'static str,
    example: &'static str,
    base: &'static str,
    units: &'static [Unit],
}

const SIZE: Quantity = Quantity {
    noun: "size",
    example: "256MiB",
    base: "bytes",
    units: SIZES,
};

const DURATION: Quantity = Quantity {
    noun: "duration",
    example: "2s",
    base: "milliseconds",
    units: DURATIONS,
};

/// Why a text is not a size or a duration.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(super) enum UnitError {
    #[error(
        "\"{text}\" is not a {noun}: write a whole or decimal number and a unit, such as \"{example}\""
    )]
    NotANumber {
        text: String,
        noun: &'static str,
        example: &'static str,
    },
    #[error("\"{text}\" has no unit: write {units}, such as \"{example}\"")]
    NoUnit {
        text: String,
        units: String,
        example: &'static str,
    },
    #[error("\"{text}\" has an unknown unit `{unit}`: {hint}")]
    UnknownUnit {
        text: String,
        unit: String,
        hint: String,
    },
    #[error("\"{text}\" is not a whole number of {base}: use a smaller unit or fewer decimals")]
    NotWhole { text: String, base: &'static str },
    #[error("\"{text}\" is more than the kernel can count: write a smaller {noun}")]
    TooLarge { text: String, noun: &'static str },
}

impl Quantity {
    fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let not_a_number = || UnitError::NotANumber {
            text: text.to_owned(),
            noun: self.noun,
            example: self.example,
        };
        let digits_end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if [whole, fraction].iter().any(|part| part.is_empty()) || fraction.contains('.') {
            return Err(not_a_number());
        }
        let factor = self.factor(text, unit.strip_prefix(' ').unwrap_or(unit))?;
        self.scale(text, whole, fraction.trim_end_matches('0'), factor)
    }

    fn factor(&self, text: &str, unit: &str) -> Result<u64, UnitError> {
        if unit.is_empty() {
            return Err(UnitError::NoUnit {
                text: text.to_owned(),
                units: self.unit_names(),
                example: self.example,
            });
        }
        let found = self.units.iter().find(|(name, _)| *name == unit);
        found
            .map(|(_, factor)| *factor)
            .ok_or_else(|| UnitError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.to_owned(),
                hint: match closest(unit, self.units.iter().map(|(name, _)| *name)) {
                    Some(name) => format!("did you mean `{name}`? Write {}", self.unit_names()),
                    None => format!("write {}", self.unit_names()),
                },
            })
    }

    /// `whole.fraction * factor`, exactly. `fraction` has no trailing zeros.
    fn scale(
        &self,
        text: &str,
        whole: &str,
        fraction: &str,
        factor: u64,
    ) -> Result<u64, UnitError> {
        let too_large = || UnitError::TooLarge {
            text: text.to_owned(),
            noun: self.noun,
        };
        let not_whole = || UnitError::NotWhole {
            text: text.to_owned(),
            base: self.base,
        };
        let units: u64 = whole.parse().map_err(|_| too_large())?;
        let mut value = units.checked_mul(factor).ok_or_else(too_large)?;
        if !fraction.is_empty() {
            // No unit has more than 40 factors of two, so a longer fraction is never whole.
            let digits = u32::try_from(fraction.len()).map_err(|_| not_whole())?;
            let divisor = 10_u128.checked_pow(digits).ok_or_else(not_whole)?;
            let parts = fraction.parse::<u128>().map_err(|_| not_whole())?;
            let product = parts
                .checked_mul(u128::from(factor))
                .ok_or_else(not_whole)?;
            if !product.is_multiple_of(divisor) {
                return Err(not_whole());
            }
            let part = u64::try_from(product / divisor).map_err(|_| too_large())?;
            value = value.checked_add(part).ok_or_else(too_large)?;
        }
        if value > LARGEST {
            return Err(too_large());
        }
        Ok(value)
    }

    /// The value in the largest unit that represents it exactly.
    fn render(&self, value: u64) -> String {
        let exact = self
            .units
            .iter()
            .filter(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
        let (name, factor) = exact
            .max_by_key(|(_, factor)| *factor)
            .or(self.units.last())
            .copied()
            .unwrap_or(("", 1));
        format!("{}{name}", value / factor)
    }

    fn unit_names(&self) -> String {
        let names: Vec<&str> = self.units.iter().rev().map(|(name, _)| *name).collect();
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }

    /// A regular expression (ECMA 262) for the JSON Schema.
    fn pattern(&self) -> String {
        let names: Vec<&str> = self.units.iter().map(|(name, _)| *name).collect();
        format!("^[0-9]+(\\.[0-9]+)? ?({})$", names.join("|"))
    }
}

/// A number of bytes: `"256MiB"`, `"1.5GB"`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ByteSize(pub(super) u64);

impl std::str::FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        SIZE.parse(text).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&SIZE.render(self.0))
    }
}

text_value!(ByteSize, "a size in quotes, such as \"256MiB\"", "pattern": SIZE.pattern());

/// A duration in milliseconds: `"500ms"`, `"2s"`, `"1.5h"`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Milliseconds(pub(super) u64);

impl Milliseconds {
    /// The duration as the standard library's type.
    pub(super) fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl std::str::FromStr for Milliseconds {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        DURATION.parse(text).map(Self)
    }
}

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&DURATION.render(self.0))
    }
}

/// The pattern of a duration, for the JSON Schema.
pub(super) fn duration_pattern() -> String {
    DURATION.pattern()
}

text_value!(Milliseconds, "a duration in quotes, such as \"500ms\" or \"2s\"", "pattern": duration_pattern());

#[cfg(test)]
mod tests;
