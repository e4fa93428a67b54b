//! The element types of the arrays that messages may contain.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of an array's elements, in the notation of numpy's `dtype.str`: `<f8`, `|b1`, `<M8[ns]`.
///
/// Only plain data types are accepted: no objects, which would be addresses, and no structures.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dtype {
    text: String,
    /// The size of one element, bytes.
    size: u32,
}

/// The maximum length of the unit of a time type, such as `100us/3`, in bytes.
const LONGEST_UNIT: usize = 24;

impl Dtype {
    /// Parses numpy's notation.
    ///
    /// # Errors
    ///
    /// If the type is not accepted in messages.
    pub fn new(text: impl Into<String>) -> Result<Self, &'static str> {
        let text = text.into();
        match size_of(&text) {
            Some(size) => Ok(Self { text, size }),
            None => Err("unsupported `dtype`: only numbers, strings and times are accepted"),
        }
    }

    /// Returns the type in numpy's notation.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the size of one element, bytes, never 0.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns kind and size without the byte order: `f8`.
    pub fn kind(&self) -> &str {
        unordered(&self.text)
    }

    /// Returns whether elements are little-endian. That is the native byte order of all supported machines.
    pub fn is_little_endian(&self) -> bool {
        !self.text.starts_with('>')
    }
}

fn unordered(text: &str) -> &str {
    text.strip_prefix(['<', '>', '|', '=']).unwrap_or(text)
}

/// Returns the size of one element, bytes, if the type is accepted.
fn size_of(text: &str) -> Option<u32> {
    let kind = unordered(text);
    let mut rest = kind.chars();
    let letter = rest.next()?;
    let rest = rest.as_str();
    match (letter, rest) {
        ('b', "1") => Some(1),
        ('i' | 'u', "1" | "2" | "4" | "8") | ('f', "2" | "4" | "8") | ('c', "8" | "16") => {
            rest.parse().ok()
        }
        ('S', count) => characters(count, 1),
        ('U', count) => characters(count, 4),
        ('m' | 'M', unit) => is_time(unit).then_some(8),
        _ => None,
    }
}

/// Returns the size of a string with that many characters of `width` bytes each.
fn characters(count: &str, width: u32) -> Option<u32> {
    let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
    let count: u32 = count.parse().ok().filter(|_| is_number)?;
    // An array of zero-size elements could have any number of elements in zero bytes.
    count.checked_mul(width).filter(|size| *size > 0)
}

/// Returns whether the text is the size of a time type: `8` or `8[ns]`.
fn is_time(text: &str) -> bool {
    let Some(unit) = text.strip_prefix('8') else {
        return false;
    };
    let inner = unit
        .strip_prefix('[')
        .and_then(|unit| unit.strip_suffix(']'));
    let is_unit = |inner: &str| {
        !inner.is_empty()
            && inner.len() <= LONGEST_UNIT
            && inner
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'/')
    };
    unit.is_empty() || inner.is_some_and(is_unit)
}

impl TryFrom<String> for Dtype {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(text)
    }
}

impl From<Dtype> for String {
    fn from(dtype: Dtype) -> Self {
        dtype.text
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_types_have_their_size() {
        let sizes = [
            ("|b1", 1),
            ("<i8", 8),
            (">u2", 2),
            ("f4", 4),
            ("=f2", 2),
            ("<c16", 16),
            ("|S5", 5),
            ("<U3", 12),
            ("<M8[ns]", 8),
            ("<m8[25s]", 8),
            ("<m8", 8),
        ];
        for (text, size) in sizes {
            assert_eq!(
                Dtype::new(text).map(|dtype| dtype.size()),
                Ok(size),
                "{text}"
            );
        }
    }

    #[test]
    fn other_dtypes_are_rejected() {
        let refused = [
            "",
            "<",
            "|O",
            "O8",
            "|V8",
            "i3",
            "f16",
            "c4",
            "b2",
            "S",
            "S0",
            "<U0",
            "U+5",
            "U-1",
            "U99999999999",
            "U2000000000",
            "M8[",
            "M8[]",
            "M8[ns",
            "M4",
            "m8[n s]",
            "i8,f8",
            "<<i8",
            "i8 ",
            "ï8",
            "[('a', 'i8')]",
            "i08",
        ];
        for text in refused {
            assert!(Dtype::new(text).is_err(), "{text}");
        }
    }
}
