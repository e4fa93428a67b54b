//! Read access to values.

use std::borrow::Cow;

use super::JsonLimits;
use super::{Buffers, Dtype, PackedFormat, TypedValue, Value};

/// The limits on a tree in a `json` buffer: 64 MiB of text, which take at most about a gigabyte of memory as a tree.
pub(super) const OF_BUFFER: JsonLimits = JsonLimits {
    values: 8 << 20,
    string: LONGEST_JSON,
    ..JsonLimits::FROM_WORKER
};

/// The limit on all `json` buffers of one message together, bytes.
pub(super) const LONGEST_JSON: usize = 64 << 20;

impl Value {
    /// Returns whether the value is `None`.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns a `bool`.
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns an `int` that fits 64 bits.
    pub const fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a `float`.
    pub const fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a `str` in the tree itself. [`text`](Self::text) also returns long ones.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the elements of a `list`, `tuple`, `set` or `frozenset` that is not packed.
    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            Self::Typed(typed) => match &**typed {
                TypedValue::Tuple(held) | TypedValue::Set(held) | TypedValue::Frozenset(held) => {
                    Some(&held.items)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the pairs of a `dict`.
    pub fn as_dict(&self) -> Option<&[(Self, Self)]> {
        match self.as_typed()? {
            TypedValue::Dict(dict) => Some(&dict.items),
            _ => None,
        }
    }

    /// Returns the value of a `str` key of a `dict`, or of a field of a dataclass or named tuple.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self.as_typed()? {
            TypedValue::Dict(dict) => {
                let mut pairs = dict.items.iter();
                let found = pairs.find(|(found, _)| found.as_str() == Some(key));
                found.map(|(_, value)| value)
            }
            TypedValue::Dataclass(record) | TypedValue::Namedtuple(record) => {
                let mut fields = record.fields.iter();
                let found = fields.find(|(name, _)| name == key);
                found.map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Returns a value that has a `type`.
    fn as_typed(&self) -> Option<&TypedValue> {
        match self {
            Self::Typed(typed) => Some(typed),
            _ => None,
        }
    }

    /// Returns the contents of `bytes` or a `bytearray`.
    pub fn bytes<'a>(&self, buffers: &Buffers<'a>) -> Option<&'a [u8]> {
        match self.as_typed()? {
            TypedValue::Bytes(held) | TypedValue::Bytearray(held) => buffers.get(held.buffer),
            _ => None,
        }
    }

    /// Returns a `str` of any length, with U+FFFD in place of lone surrogates, which a Rust string cannot hold.
    pub fn text<'a>(&'a self, buffers: &Buffers<'a>) -> Option<Cow<'a, str>> {
        match self {
            Self::Str(text) => Some(Cow::Borrowed(text)),
            Self::Typed(typed) => match **typed {
                TypedValue::Text(held) => buffers.get(held.buffer).map(String::from_utf8_lossy),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a `list` of `int`, packed or not.
    pub fn integers(&self, buffers: &Buffers<'_>) -> Option<Vec<i64>> {
        match self.packed(PackedFormat::Int, buffers) {
            Some(bytes) => Some(eights(bytes).map(i64::from_le_bytes).collect()),
            None => self.as_list()?.iter().map(Self::as_i64).collect(),
        }
    }

    /// Returns a `list` of `float`, packed or not.
    pub fn floats(&self, buffers: &Buffers<'_>) -> Option<Vec<f64>> {
        match self.packed(PackedFormat::Float, buffers) {
            Some(bytes) => Some(eights(bytes).map(f64::from_le_bytes).collect()),
            None => self.as_list()?.iter().map(Self::as_f64).collect(),
        }
    }

    fn packed<'a>(&self, wanted: PackedFormat, buffers: &Buffers<'a>) -> Option<&'a [u8]> {
        match self.as_typed()? {
            TypedValue::Packed(packed) if packed.format == wanted => buffers.get(packed.buffer),
            _ => None,
        }
    }

    /// Returns a numpy array.
    pub fn ndarray<'a>(&'a self, buffers: &Buffers<'a>) -> Option<NdarrayView<'a>> {
        match self.as_typed()? {
            TypedValue::Ndarray(array) => Some(NdarrayView {
                dtype: &array.dtype,
                shape: &array.shape,
                bytes: buffers.get(array.buffer)?,
            }),
            _ => None,
        }
    }

    /// Returns the value itself, or the value parsed from its `json` buffer, in which a guest passes a large
    /// tree. That tree refers to the same `buffers`. Returns `None` if the buffer holds no valid value, or one
    /// that exceeds the limits of 64 MiB, 96 levels and eight million values.
    pub fn unfolded(&self, buffers: &Buffers<'_>) -> Option<Cow<'_, Self>> {
        let Some(TypedValue::Json(held)) = self.as_typed() else {
            return Some(Cow::Borrowed(self));
        };
        let text = buffers.get(held.buffer)?;
        if text.len() > LONGEST_JSON {
            return None;
        }
        OF_BUFFER.parse(text).ok().map(Cow::Owned)
    }
}

/// Splits bytes into groups of eight.
fn eights(bytes: &[u8]) -> impl Iterator<Item = [u8; 8]> {
    bytes.as_chunks().0.iter().copied()
}

/// A numpy array with its elements in C order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NdarrayView<'a> {
    /// Type of the elements.
    pub dtype: &'a Dtype,
    /// Length of each dimension.
    pub shape: &'a [u64],
    /// The elements.
    pub bytes: &'a [u8],
}

impl NdarrayView<'_> {
    /// Returns the elements, if they are floating-point numbers of 32 or 64 bits.
    pub fn floats(&self) -> Option<Vec<f64>> {
        match self.dtype.kind() {
            "f8" => Some(self.elements(f64::from_le_bytes).collect()),
            "f4" => Some(self.elements(f32::from_le_bytes).map(f64::from).collect()),
            _ => None,
        }
    }

    /// Returns the elements, if they are booleans, or integers that fit signed 64 bits.
    pub fn integers(&self) -> Option<Vec<i64>> {
        Some(match self.dtype.kind() {
            "i8" => self.elements(i64::from_le_bytes).collect(),
            "i4" => self.elements(i32::from_le_bytes).map(i64::from).collect(),
            "i2" => self.elements(i16::from_le_bytes).map(i64::from).collect(),
            "i1" => self.elements(i8::from_le_bytes).map(i64::from).collect(),
            "u4" => self.elements(u32::from_le_bytes).map(i64::from).collect(),
            "u2" => self.elements(u16::from_le_bytes).map(i64::from).collect(),
            "u1" | "b1" => self.elements(u8::from_le_bytes).map(i64::from).collect(),
            _ => return None,
        })
    }

    fn elements<const N: usize, T>(&self, read: fn([u8; N]) -> T) -> impl Iterator<Item = T> {
        let little = self.dtype.is_little_endian();
        let chunks = self.bytes.as_chunks().0.iter().copied();
        chunks.map(move |mut bytes: [u8; N]| {
            if !little {
                bytes.reverse();
            }
            read(bytes)
        })
    }
}
