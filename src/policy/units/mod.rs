//! Parses and formats amounts: a number and a unit, or a plain number.
//!
//! The grammar is deliberately strict. `256`, `256M` and `5` can each be read in two ways, and a misread
//! limit is a security hole that goes unnoticed.

use std::time::Duration;

use serde::Serializer;
use serde_json::{Number, Value as Json, json};
use toml::de::DeValue;

use super::read::wrong_type;
use super::suggest::closest;
use crate::outcome::{LimitName, Unit};

/// Units of sizes, in bytes: powers of 1024 (IEC 80000-13), then powers of 1000 (SI).
const SIZES: &[(&str, u64)] = &[
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

/// Units of durations, in milliseconds.
const DURATIONS: &[(&str, u64)] = &[("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The largest accepted value: TOML integers, rlimits and tmpfs options are signed.
const LARGEST: u64 = i64::MAX as u64;

/// The units and the message texts of a kind of quantity.
struct Quantity {
    noun: &'static str,
    example: &'static str,
    base: &'static str,
    units: &'static [(&'static str, u64)],
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

impl Quantity {
    fn parse(&self, text: &str) -> Result<u64, String> {
        let digits_end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if [whole, fraction].iter().any(|part| part.is_empty()) || fraction.contains('.') {
            let (noun, example) = (self.noun, self.example);
            return Err(format!(
                "\"{text}\" is not a {noun}: write a whole or decimal number and a unit, such as \
                 \"{example}\""
            ));
        }
        let factor = self.factor(text, unit.strip_prefix(' ').unwrap_or(unit))?;
        self.scale(text, whole, fraction.trim_end_matches('0'), factor)
    }

    fn factor(&self, text: &str, unit: &str) -> Result<u64, String> {
        let (units, example) = (self.unit_names(), self.example);
        if unit.is_empty() {
            return Err(format!(
                "\"{text}\" has no unit: write {units}, such as \"{example}\""
            ));
        }
        if let Some((_, factor)) = self.units.iter().find(|(name, _)| *name == unit) {
            return Ok(*factor);
        }
        let hint = match closest(unit, self.units.iter().map(|(name, _)| *name)) {
            Some(name) => format!("did you mean `{name}`? Write {units}"),
            None => format!("write {units}"),
        };
        Err(format!("\"{text}\" has an unknown unit `{unit}`: {hint}"))
    }

    /// Computes `whole.fraction * factor` exactly. `fraction` has no trailing zeros.
    fn scale(&self, text: &str, whole: &str, fraction: &str, factor: u64) -> Result<u64, String> {
        let too_large = || {
            let noun = self.noun;
            format!("\"{text}\" is too large for the kernel: write a smaller {noun}")
        };
        let whole = whole.parse().ok();
        let whole = whole.and_then(|whole: u64| whole.checked_mul(factor));
        let whole = whole.ok_or_else(too_large)?;
        let part = part_of(fraction, factor).ok_or_else(|| {
            let base = self.base;
            format!(
                "\"{text}\" is not a whole number of {base}: use a smaller unit or fewer decimals"
            )
        })?;
        let value = whole.checked_add(part).filter(|value| *value <= LARGEST);
        value.ok_or_else(too_large)
    }

    /// Formats the value in the largest unit that represents it exactly.
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

    /// Returns a regular expression (ECMA 262) for the JSON Schema.
    fn pattern(&self) -> String {
        let names: Vec<&str> = self.units.iter().map(|(name, _)| *name).collect();
        format!("^[0-9]+(\\.[0-9]+)? ?({})$", names.join("|"))
    }
}

/// Computes `0.fraction * factor`, if the product is whole.
fn part_of(fraction: &str, factor: u64) -> Option<u64> {
    if fraction.is_empty() {
        return Some(0);
    }
    // No unit has more than 40 factors of two, so the product of a longer fraction is never whole.
    let divisor = 10_u128.checked_pow(fraction.len().try_into().ok()?)?;
    let parts: u128 = fraction.parse().ok()?;
    let product = parts.checked_mul(factor.into())?;
    let part = u64::try_from(product / divisor).ok()?;
    product.is_multiple_of(divisor).then_some(part)
}

impl LimitName {
    /// Parses an amount in the notation of a policy, such as `2s` or `64KiB`. Returns milliseconds, bytes or a count.
    ///
    /// # Errors
    ///
    /// If the text is not a valid amount. The error names the reason and the remedy.
    pub fn amount(self, text: &str) -> Result<u64, String> {
        self.spec().unit.parse(text)
    }
}

impl Unit {
    /// Converts a number of seconds or bytes, or a count, to an amount. Returns `None` if the number is not valid.
    pub(crate) fn of_number(self, number: &Number) -> Option<u64> {
        if self != Self::Duration {
            return number.as_u64();
        }
        let time = Duration::try_from_secs_f64(number.as_f64()?).ok()?;
        // Rounded up, because zero would mean no limit.
        u64::try_from(time.as_nanos().div_ceil(1_000_000)).ok()
    }

    /// Parses an amount.
    pub(crate) fn parse(self, text: &str) -> Result<u64, String> {
        match self {
            Self::Duration => DURATION.parse(text),
            Self::Size => SIZE.parse(text),
            Self::Count => text.parse().map_err(|_| {
                format!("{text} is not a count: write a whole number above 0, such as 64")
            }),
            Self::Cores => millicores(text),
        }
    }

    /// Formats an amount as in a policy file and `--set`: `30s`, `512MiB`, `64`, `0.5`.
    pub(crate) fn text(self, amount: u64) -> String {
        match self {
            Self::Duration => DURATION.render(amount),
            Self::Size => SIZE.render(amount),
            Self::Count => amount.to_string(),
            Self::Cores => cores(amount).to_string(),
        }
    }

    /// Parses the amount of a TOML value.
    pub(super) fn read(self, value: &DeValue) -> Result<u64, String> {
        let text = match (self, value) {
            (Self::Duration | Self::Size, DeValue::String(text)) => text.to_string(),
            (Self::Count | Self::Cores, DeValue::Integer(number)) => {
                i64::from_str_radix(number.as_str(), number.radix())
                    .map_or_else(|_| number.to_string(), |number| number.to_string())
            }
            (Self::Cores, DeValue::Float(number)) => number.to_string(),
            _ => return Err(wrong_type(value, self.expected())),
        };
        self.parse(&text)
    }

    /// Serializes an amount as a value of a policy file.
    pub(super) fn serialize<S: Serializer>(self, amount: u64, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Duration | Self::Size => to.serialize_str(&self.text(amount)),
            Self::Count => to.serialize_u64(amount),
            Self::Cores => to.serialize_f64(cores(amount)),
        }
    }

    /// Returns the remedy for a value of the wrong type.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Duration => "a duration in quotes, such as \"500ms\" or \"2s\"",
            Self::Size => "a size in quotes, such as \"256MiB\"",
            Self::Count => "a whole number without quotes, such as 64",
            Self::Cores => "a number of processors without quotes, such as 0.5 or 2",
        }
    }

    /// Returns the JSON Schema of a value.
    pub(super) fn schema(self) -> Json {
        match self {
            Self::Duration => json!({ "type": "string", "pattern": DURATION.pattern() }),
            Self::Size => json!({ "type": "string", "pattern": SIZE.pattern() }),
            Self::Count => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
            Self::Cores => json!({ "type": "number", "exclusiveMinimum": 0 }),
        }
    }
}

/// Parses a number of processors into thousandths. The kernel's quota is not finer
/// (Documentation/scheduler/sched-bwc.rst).
fn millicores(text: &str) -> Result<u64, String> {
    let not_cores = |given: &str| {
        format!("{given} is not a number of processors: write a number above 0, such as 0.5 or 2")
    };
    let cores: f64 = text.parse().map_err(|_| not_cores(text))?;
    let millicores = (cores * 1000.0).round();
    if !(0.0..=f64::from(u32::MAX)).contains(&millicores) {
        return Err(not_cores(&cores.to_string()));
    }
    // With at most three decimals, the quotient is the same double as the parsed text.
    if (millicores / 1000.0).to_bits() != cores.to_bits() {
        return Err(format!(
            "{text} is not a whole number of thousandths of a processor: use at most three decimals"
        ));
    }
    // The value is whole and in range: the range check also rejects NaN.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(millicores as u64)
}

fn cores(millicores: u64) -> f64 {
    f64::from(u32::try_from(millicores).unwrap_or(u32::MAX)) / 1000.0
}

#[cfg(test)]
mod tests;
