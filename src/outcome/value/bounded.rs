//! Limits on JSON, checked on the text before a tree is built from it.
//!
//! A parser's memory is a multiple of its input. One megabyte of `[0,0,0,...]` is sixteen as a tree,
//! one megabyte of `[` is a recursion of a million calls, and a number of a million digits is
//! arithmetic of arbitrary size in parsers that keep it. One pass over the bytes, without allocation
//! and recursion, refuses all of these first.

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
    /// Values of any kind, keys included.
    pub values: usize,
    /// Bytes of one string as written, with escapes unresolved and quotes excluded.
    pub string: usize,
    /// Bytes of one number as written. An integer of more than 64 bits crosses as text.
    pub number: usize,
}

impl JsonLimits {
    /// The limits of a supervisor on a worker's header.
    ///
    /// The depth is below the recursion limit of serde_json (128), so that this check reports the
    /// error. The string limit fits the longest text that an honest worker sends: 32 Ki characters
    /// of at most 6 bytes each, the length of a JSON escape of a control character. A header holds
    /// several.
    pub const FROM_WORKER: Self = Self {
        depth: 96,
        values: 1 << 16,
        string: 1 << 20,
        number: 64,
    };

    /// The limits of a supervisor on a caller's header. Everything that a worker is sent must fit
    /// them too.
    pub const FROM_CALLER: Self = Self::FROM_WORKER;

    /// Refuses a text that exceeds a limit. It does not check whether the text is valid JSON: it
    /// recognises just enough (strings, brackets, commas, digits) that its count is never lower than
    /// a parser's.
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
                    // In a broken text the closing quote may be missing at the end.
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
    /// member that occurs twice in an object is refused if `T` knows the member and ignored if `T`
    /// ignores it: no value is ever read from a place that another reader of the same text would not
    /// look at.
    pub fn parse<T: DeserializeOwned>(&self, text: &[u8]) -> Result<T, JsonError> {
        self.check(text)?;
        serde_json::from_slice(text).map_err(|error| invalid(&error))
    }

    /// Checks the limits of an object, then reads its `kind`. serde's own tagged enums do both in
    /// one step, and keep a tree of all members for it.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and if the text is no object or of another kind.
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
        // serde also reads a struct from an array.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(JsonError::Invalid("it is no object".into()));
        }
        let Tag { kind } = serde_json::from_str(text).map_err(|error| invalid(&error))?;
        let kind: StrDeserializer<serde_json::Error> = kind.as_ref().into_deserializer();
        let kind = K::deserialize(kind).map_err(|error| invalid(&error))?;
        Ok(Tagged { kind, text })
    }
}

/// An object with a known kind and unread members.
#[derive(Clone, Copy, Debug)]
pub struct Tagged<'t, K> {
    /// The value of its `kind`.
    pub kind: K,
    text: &'t str,
}

impl<K> Tagged<'_, K> {
    /// Reads the members.
    ///
    /// # Errors
    ///
    /// If they do not fit `T`.
    pub fn members<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        serde_json::from_str(self.text).map_err(|error| invalid(&error))
    }
}

/// Why a JSON text was refused.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum JsonError {
    /// A limit was exceeded.
    #[error("{what} {found} of a JSON header is over the limit of {limit}")]
    OverLimit {
        /// The field of [`JsonLimits`].
        what: &'static str,
        /// The amount when the check stopped, at least.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The text is not JSON, or not JSON of the expected shape.
    #[error("a JSON header does not parse: {0}")]
    Invalid(String),
}

fn within(what: &'static str, found: usize, limit: usize) -> Result<(), JsonError> {
    if found > limit {
        Err(JsonError::OverLimit { what, found, limit })
    } else {
        Ok(())
    }
}

/// An error with the parser's message on one line, shortened because it quotes the refused text.
fn invalid(error: &serde_json::Error) -> JsonError {
    const LONGEST: usize = 200;
    let message = error.to_string();
    let printable = message.chars().filter(|character| !character.is_control());
    JsonError::Invalid(printable.take(LONGEST).collect())
}

/// Bytes before the closing quote of a string; `text` begins after the opening quote.
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

/// Whether a byte ends a number or a word (`true`, `false`, `null`).
const fn is_structure(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b'[' | b']' | b'{' | b'}' | b'"'
    )
}
