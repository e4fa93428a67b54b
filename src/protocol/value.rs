//! The value of a cell's last expression, as a typed JSON tree.
//!
//! What JSON writes without loss stands as itself. Everything else is an object with a `type`, so
//! a plain JSON object never occurs and new types can be added beside [`TypedValue::Opaque`].

use serde::{Deserialize, Serialize};

/// A value of the guest, as the guest describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Value {
    /// `None`.
    None,
    /// `bool`.
    Bool(bool),
    /// `int` between -2^63 and 2^63 - 1.
    Int(i64),
    /// `float`, finite.
    Float(f64),
    /// `str`.
    Str(String),
    /// A value with a `type`.
    Typed(TypedValue),
}

/// Values that JSON has no notation for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TypedValue {
    /// What cannot cross, shown as `repr()` shows it, perhaps shortened.
    Opaque {
        /// The text.
        repr: String,
    },
}

impl Value {
    /// A value that is only shown.
    pub fn opaque(repr: impl Into<String>) -> Self {
        Self::Typed(TypedValue::Opaque { repr: repr.into() })
    }
}
