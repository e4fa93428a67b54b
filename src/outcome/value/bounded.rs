//! Checks limits on a JSON text before a tree is built from it.
//!
//! The memory of a parser is a multiple of its input. One megabyte of `[0,0,0,...]` takes sixteen as a
//! tree, one megabyte of `[` causes a million recursive calls, and a number of a million digits costs
//! arbitrary-precision arithmetic in parsers that support it. A single pass over the bytes, without
//! allocation or recursion, rejects all of these first.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use thiserror::Error;

/// The maximum size of a JSON text in each dimension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct JsonLimits {
    /// Nesting depth of arrays and objects.
    pub depth: usize,
    /// Number of values of any kind, including keys.
    pub values: usize,
    /// Bytes of one string as written, with escapes unresolved and quotes excluded.
    pub string: usize,
    /// Bytes of one number as written. An integer of more than 64 bits is sent as text.
    pub number: usize,
}

impl JsonLimits {
    /// The supervisor's limits on a worker's header.
    ///
    /// The depth is below the recursion limit of serde_json (128), so that this check reports the
    /// error. The string limit fits the longest string that an honest worker sends: 32 Ki characters of
    /// at most 6 bytes each, the length of a control character's JSON escape. A header has room for several.
    pub const FROM_WORKER: Self = Self {
        depth: 96,
        values: 1 << 16,
        string: 1 << 20,
        number: 64,
    };

    /// The supervisor's limits on a caller's header. Everything that is sent to a worker must fit them too.
    pub const FROM_CALLER: Self = Self::FROM_WORKER;

    /// Rejects a text that exceeds a limit. The check does not validate the JSON: it recognises just
    /// enough (strings, brackets, commas, digits) that its counts are never lower than a parser's.
    pub fn check(&self, text: &[u8]) -> Result<(), JsonError> {
        let (mut depth, mut values) = (0usize, 0usize);
        let mut rest = text;
        while let Some((&byte, tail)) = rest.split_first() {
            let length = match byte {
                b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => {
                    rest = tail;
                    continue;
                }
                b']' | b'}' => {
                    depth = depth.saturating_sub(1);
                    rest = tail;
                    continue;
                }
                b'[' | b'{' => {
                    depth += 1;
                    within("depth", depth, self.depth)?;
                    1
                }
                b'"' => {
                    let length = string_length(tail);
                    within("string", length, self.string)?;
                    // In malformed text the closing quote may be missing.
                    (length + 2).min(rest.len())
                }
                _ => {
                    let length = rest.iter().position(|byte| is_structure(*byte));
                    let length = length.unwrap_or(rest.len());
                    within("number", length, self.number)?;
                    length
                }
            };
            values += 1;
            within("values", values, self.values)?;
            rest = &rest[length..];
        }
        Ok(())
    }

    /// Checks the limits, then deserializes.
    ///
    /// # Errors
    ///
    /// If the text exceeds a limit, is not UTF-8 JSON, has trailing data, or does not fit `T`. A
    /// duplicate member of an object is rejected if `T` has that member and ignored otherwise, so that
    /// two readers of one text never take different values from it.
    pub fn parse<T: DeserializeOwned>(&self, text: &[u8]) -> Result<T, JsonError> {
        self.check(text)?;
        serde_json::from_slice(text).map_err(|error| invalid(&error))
    }

    /// Checks the limits of an object, then reads its `kind`. serde's tagged enums would read kind and
    /// members in one step, but buffer all members in a tree to do so.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse), and if the text is not an object or its kind is unknown.
    pub fn tagged<'t, K: DeserializeOwned>(
        &self,
        text: &'t [u8],
    ) -> Result<Tagged<'t, K>, JsonError> {
        #[derive(Deserialize)]
        struct Tag<'t> {
            #[serde(borrow)]
            kind: Cow<'t, str>,
        }
        self.check(text)?;
        let text = str::from_utf8(text).map_err(|error| JsonError::Invalid(error.to_string()))?;
        // serde would also read a struct from an array.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(JsonError::Invalid("not an object".into()));
        }
        let Tag { kind } = serde_json::from_str(text).map_err(|error| invalid(&error))?;
        let kind: StrDeserializer<serde_json::Error> = kind.as_ref().into_deserializer();
        let kind = K::deserialize(kind).map_err(|error| invalid(&error))?;
        Ok(Tagged { kind, text })
    }
}

/// A JSON object whose kind has been read and whose members have not.
#[derive(Clone, Copy, Debug)]
pub struct Tagged<'t, K> {
    /// The value of the member `kind`.
    pub kind: K,
    text: &'t str,
}

impl<K> Tagged<'_, K> {
    /// Reads the members.
    ///
    /// # Errors
    ///
    /// If the members do not fit `T`.
    pub fn members<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        serde_json::from_str(self.text).map_err(|error| invalid(&error))
    }
}

/// The reason why a JSON text was rejected.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum JsonError {
    /// A limit was exceeded.
    #[error("{what} {found} of a JSON header is over the limit of {limit}")]
    OverLimit {
        /// The field of [`JsonLimits`].
        what: &'static str,
        /// The amount when the check stopped, a lower bound.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The text is not JSON, or not JSON of the expected shape.
    #[error("invalid JSON header: {0}")]
    Invalid(String),
}

fn within(what: &'static str, found: usize, limit: usize) -> Result<(), JsonError> {
    if found > limit {
        Err(JsonError::OverLimit { what, found, limit })
    } else {
        Ok(())
    }
}

/// Creates an error with the parser's message on one line, truncated because it quotes the rejected text.
fn invalid(error: &serde_json::Error) -> JsonError {
    const LONGEST: usize = 200;
    let message = error.to_string();
    let printable = message.chars().filter(|character| !character.is_control());
    JsonError::Invalid(printable.take(LONGEST).collect())
}

/// Returns the number of bytes before the closing quote of a string. `text` starts after the opening quote.
fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    for (index, byte) in text.iter().enumerate() {
        match byte {
            b'"' if !escaped => return index,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Returns whether a byte ends a number or a literal (`true`, `false`, `null`).
const fn is_structure(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b'[' | b']' | b'{' | b'}' | b'"'
    )
}
