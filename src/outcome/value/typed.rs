//! The members of the objects with a `type`.

use serde::{Deserialize, Serialize};

use super::{Dtype, TypedValue, Value};

/// Bytes in one of the message's buffers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Number of the buffer, from 0.
    pub buffer: u32,
}

/// Elements of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Items {
    /// The elements; a set's have no order.
    pub items: Vec<Value>,
}

impl FromIterator<Value> for Items {
    fn from_iter<T: IntoIterator<Item = Value>>(items: T) -> Self {
        Self {
            items: items.into_iter().collect(),
        }
    }
}

/// Pairs of a `dict`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dict {
    /// Keys of any type, with their values.
    pub items: Vec<(Value, Value)>,
}

/// Numbers of one type, little-endian, eight bytes each.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Packed {
    /// The type of the numbers.
    pub format: PackedFormat,
    /// Number of the buffer.
    pub buffer: u32,
}

/// Type of packed numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum PackedFormat {
    /// `int` of 64 bits, signed.
    #[serde(rename = "i8")]
    Int,
    /// `float`.
    #[serde(rename = "f8")]
    Float,
}

/// Parts of a `complex`; each a [`Value::Float`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are named after Python's attributes")]
pub struct Complex {
    pub real: Value,
    pub imag: Value,
}

/// A value whose constructor takes a text.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Text {
    /// The text, unchanged from the sender.
    pub text: String,
}

/// Time of a day.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// ISO 8601, with its offset if that is fixed.
    pub text: String,
    /// 1: the second of two equal times, after the clock was put back.
    #[serde(default)]
    pub fold: u8,
}

/// Date and time.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Datetime {
    /// ISO 8601, with its offset if that is fixed.
    pub text: String,
    /// 1: the second of two equal times, after the clock was put back.
    #[serde(default)]
    pub fold: u8,
    /// Key of its `zoneinfo`, such as `Europe/Vienna`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// A span of time in Python's normal form: only `days` is ever negative.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are named after Python's attributes")]
pub struct Timedelta {
    pub days: i64,
    pub seconds: i64,
    pub microseconds: i64,
}

/// A fixed offset from UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timezone {
    /// Seconds east of UTC.
    pub seconds: i64,
    /// Its own name: a `str`, possibly in a buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Value>,
}

/// A path of `pathlib`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// A `str`, possibly in a buffer.
    pub text: Value,
}

/// A `uuid.UUID`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Uuid {
    /// 32 hexadecimal digits.
    pub hex: String,
}

/// Named fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the class.
    pub name: String,
    /// The fields, in the order of their definition.
    pub fields: Vec<(String, Value)>,
}

/// A member of an enumeration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnumMember {
    /// The name with its class, such as `Color.RED`.
    pub name: String,
    /// The member's value.
    pub value: Value,
}

/// `range(start, stop, step)`; each an `int`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are named after Python's attributes")]
pub struct Range {
    pub start: Value,
    pub stop: Value,
    pub step: Value,
}

/// An array with its elements in C order.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Ndarray {
    /// Type of its elements.
    pub dtype: Dtype,
    /// Length of each dimension.
    pub shape: Vec<u64>,
    /// Number of the buffer.
    pub buffer: u32,
}

/// A numpy scalar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumpyScalar {
    /// Its type.
    pub dtype: Dtype,
    /// The nearest value of a Python type.
    pub value: Value,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataFrame {
    /// The library that it is of, if that is not pandas: `polars` or `arrow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Labels of the columns.
    pub columns: TableIndex,
    /// Labels of the rows.
    pub index: TableIndex,
    /// The columns.
    pub data: Vec<TableColumn>,
}

/// One column with labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is, if not a series of pandas: `polars`, `arrow`, `pandas-index` or `pandas-array`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Its name: any hashable value.
    pub name: Value,
    /// Labels of the rows.
    pub index: TableIndex,
    /// The elements.
    pub data: TableColumn,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableColumn {
    /// The type in pandas' notation: `float64`, `object`, `category`.
    pub dtype: String,
    /// The type of the elements of a `nested` column. What a `sparse` one leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A `list`, or an `ndarray`; codes if there are `categories`. A `tuple` of lengths and bytes for the
    /// texts of polars and Arrow, and of the left and right ends for intervals.
    pub values: Value,
    /// For a column with possibly missing elements: an `ndarray` of truth values that marks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<Value>,
    /// For a categorical column: the values of the codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub categories: Option<Box<Self>>,
    /// For a categorical column: whether the categories have an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
}

impl TableColumn {
    /// The number of elements, if the header alone shows it.
    pub fn count(&self) -> Option<u64> {
        match &self.values {
            Value::Typed(typed) => match &**typed {
                TypedValue::Ndarray(array) => array.shape.first().copied(),
                _ => None,
            },
            values => values.as_list().map(|items| items.len() as u64),
        }
    }
}

/// Labels of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum TableIndex {
    /// Numbers that are not written out.
    RangeIndex(RangeIndex),
    /// Any other labels.
    Index(Index),
}

/// `pandas.RangeIndex`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are named after the attributes in pandas")]
pub struct RangeIndex {
    pub start: i64,
    pub stop: i64,
    pub step: i64,
    #[serde(default)]
    pub name: Value,
}

impl RangeIndex {
    /// The count of the numbers.
    pub fn count(&self) -> Option<u64> {
        let (from, to) = match self.step {
            0 => return None,
            1.. => (self.start, self.stop),
            _ => (self.stop, self.start),
        };
        let span = u64::try_from(i128::from(to) - i128::from(from)).unwrap_or(0);
        Some(span.div_ceil(self.step.unsigned_abs()))
    }
}

/// `pandas.Index`, or a `MultiIndex` of several levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// Name of each level.
    pub names: Vec<Value>,
    /// Labels of each level.
    pub data: Vec<TableColumn>,
}

/// Pixels, row after row.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// The type of a pixel.
    pub mode: ImageMode,
    /// Width and height, pixels.
    pub size: (u32, u32),
    /// Number of the buffer.
    pub buffer: u32,
}

/// The type of a pixel, in Pillow's terms.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ImageMode {
    /// Black and white, eight pixels to a byte, each row filled up to whole bytes.
    #[serde(rename = "1")]
    Bit,
    /// Grey, one byte.
    L,
    /// Grey and alpha.
    #[serde(rename = "LA")]
    La,
    /// Red, green, blue.
    #[serde(rename = "RGB")]
    Rgb,
    /// Red, green, blue, alpha.
    #[serde(rename = "RGBA")]
    Rgba,
    /// Signed integer of 32 bits.
    I,
    /// Floating point of 32 bits.
    F,
}

/// A value that cannot cross, as `repr()` prints it, possibly shortened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opaque {
    /// Its class, as `package.Class`; empty if the sender does not name it.
    #[serde(default)]
    pub name: String,
    /// The text.
    pub repr: String,
    /// What a reader with the package of its class makes the value of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Value>,
}
