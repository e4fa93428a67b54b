//! Represents the values that caller and guest exchange as a typed JSON tree.
//!
//! A value that JSON represents without loss is written as plain JSON, and an array is a `list`. Every
//! other value is an object whose first member is `type`. A plain JSON object therefore never occurs,
//! and new types can be added to those of [`TypedValue`]. Long byte strings are not in the tree: a value
//! refers by number to one of the message's buffers, and [`BufferCheck`] checks that the buffers fit.
//!
//! This module runs no code of the sender, and the size of a tree is proportional to its text.

mod access;
mod attachments;
pub mod blob;
pub mod bounded;
mod buffers;
mod check;
mod dtype;
mod nesting;
#[allow(
    unnameable_types,
    reason = "a typed value is opaque: the methods of `Value` read it"
)]
mod number;
mod plain;
mod read;
mod show;
#[allow(
    unnameable_types,
    reason = "a typed value is opaque: the methods of `Value` read it"
)]
mod typed;
#[allow(
    unnameable_types,
    reason = "a typed value is opaque: the methods of `Value` read it"
)]
mod types;
mod write;

pub use access::NdarrayView;
pub use attachments::Attachments;
pub use blob::{Blob, Transport};
pub use bounded::{JsonError, JsonLimits};
pub use buffers::{Buffers, HeldBuffers};
pub use check::{BufferCheck, ValueError};
pub use dtype::Dtype;
pub(crate) use nesting::MAX_LEVELS;
pub use number::BigInt;
pub(crate) use number::as_python_prints;
pub use plain::plain;
pub use typed::{
    Dict, Held, Image, ImageMode, Items, Ndarray, Opaque, Packed, PackedFormat, Record,
    TableColumn, TableIndex, Uuid,
};
pub use types::TypedValue;

/// A value, as its sender describes it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// `None`.
    #[default]
    None,
    /// `bool`.
    Bool(bool),
    /// `int` between -2^63 and 2^63 - 1.
    Int(i64),
    /// `float`. `nan` and `inf`, which are not JSON numbers, are written as an object.
    Float(f64),
    /// `str` without lone surrogates. All values of one request may take 2 MiB of JSON; [`Attachments::text`] also
    /// accepts longer strings.
    Str(String),
    /// `list`.
    List(Vec<Self>),
    /// A value of another type. [`as_dict`](Self::as_dict), [`bytes`](Self::bytes),
    /// [`ndarray`](Self::ndarray) and other methods read it.
    // Boxed, because most elements of a long list are scalars.
    Typed(Box<TypedValue>),
}

impl Value {
    /// Creates a value that can only be displayed.
    pub fn opaque(repr: impl Into<String>) -> Self {
        TypedValue::Opaque(Opaque {
            name: String::new(),
            repr: repr.into(),
            parts: None,
        })
        .into()
    }

    /// Creates a `tuple` of these items.
    pub fn tuple(items: impl IntoIterator<Item = Self>) -> Self {
        TypedValue::Tuple(Items::from_iter(items)).into()
    }

    /// Creates a `dict` of these pairs, in order.
    pub fn dict<K: Into<Self>, V: Into<Self>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let pairs = pairs.into_iter();
        let items = pairs
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        TypedValue::Dict(Dict { items }).into()
    }
}

impl From<TypedValue> for Value {
    /// Converts an `int` that fits 64 bits to [`Value::Int`], so that each number has one representation.
    fn from(value: TypedValue) -> Self {
        match value {
            TypedValue::Int(number) => number.into(),
            other => Self::Typed(Box::new(other)),
        }
    }
}

macro_rules! values {
    ($($from:ty, $value:pat => $to:expr;)*) => {
        $(impl From<$from> for Value {
            fn from($value: $from) -> Self {
                $to
            }
        })*
    };
}

values! {
    (), () => Self::None;
    bool, it => Self::Bool(it);
    i64, it => Self::Int(it);
    i32, it => Self::Int(it.into());
    u32, it => Self::Int(it.into());
    u64, it => BigInt::from(it).into();
    BigInt, it => it.to_i64().map_or_else(|| Self::Typed(Box::new(TypedValue::Int(it))), Self::Int);
    f64, it => Self::Float(it);
    &str, it => Self::Str(it.to_owned());
    String, it => Self::Str(it);
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests;
