//! The members of each [`TypedValue`].

use serde::{Deserialize, Serialize};

use super::{Dtype, TypedValue, Value};

/// Bytes in one of the message's buffers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The number of the buffer, from 0.
    pub buffer: u32,
}

/// The elements of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Items {
    /// The elements. Those of a set are in no particular order.
    pub items: Vec<Value>,
}

impl FromIterator<Value> for Items {
    fn from_iter<T: IntoIterator<Item = Value>>(items: T) -> Self {
        Self {
            items: items.into_iter().collect(),
        }
    }
}

/// The pairs of a `dict`.
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

/// The type of packed numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum PackedFormat {
    /// `int` of signed 64 bits.
    #[serde(rename = "i8")]
    Int,
    /// `float`.
    #[serde(rename = "f8")]
    Float,
}

/// The parts of a `complex`, each a [`Value::Float`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are named after Python's attributes")]
pub struct Complex {
    pub real: Value,
    pub imag: Value,
}

/// A value whose constructor takes a string.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Text {
    /// The text, unchanged from the sender.
    pub text: String,
}

/// A time of day.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// ISO 8601, with the UTC offset if it is fixed.
    pub text: String,
    /// Python's `fold`: 1 for the second of two equal times when the clock is set back.
    #[serde(default)]
    pub fold: u8,
}

/// A date and time.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Datetime {
    /// ISO 8601, with the UTC offset if it is fixed.
    pub text: String,
    /// Python's `fold`: 1 for the second of two equal times when the clock is set back.
    #[serde(default)]
    pub fold: u8,
    /// The key of the `zoneinfo`, such as `Europe/Vienna`.
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
    /// The name of the time zone: a `str`, possibly in a buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Value>,
}

/// A path of `pathlib`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// The path: a `str`, possibly in a buffer.
    pub text: Value,
}

/// A `uuid.UUID`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Uuid {
    /// 32 hexadecimal digits.
    pub hex: String,
}

/// A class name and named fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The name of the class.
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

/// The arguments of `range(start, stop, step)`, each an `int`.
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
    /// The type of the elements.
    pub dtype: Dtype,
    /// The length of each dimension.
    pub shape: Vec<u64>,
    /// The number of the buffer.
    pub buffer: u32,
}

/// A numpy scalar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumpyScalar {
    /// The type of the scalar.
    pub dtype: Dtype,
    /// The nearest value of a built-in Python type.
    pub value: Value,
}

/// A table of pandas, polars or Arrow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataFrame {
    /// The library of the table: `polars` or `arrow`. `None` for pandas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The labels of the columns.
    pub columns: TableIndex,
    /// The labels of the rows.
    pub index: TableIndex,
    /// The columns.
    pub data: Vec<TableColumn>,
}

/// One column with row labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The type of the object: `polars`, `arrow`, `pandas-index` or `pandas-array`. `None` for a `pandas.Series`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The name of the column: any hashable value.
    pub name: Value,
    /// The labels of the rows.
    pub index: TableIndex,
    /// The elements.
    pub data: TableColumn,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableColumn {
    /// The type in pandas' notation: `float64`, `object`, `category`.
    pub dtype: String,
    /// The element type of a `nested` column, or the fill value of a `sparse` column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A `list` or an `ndarray`, which holds codes if there are `categories`. Strings of polars and Arrow are a
    /// `tuple` of lengths and bytes, and intervals a `tuple` of left and right ends.
    pub values: Value,
    /// For a column that may have missing elements: an `ndarray` of booleans that marks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<Value>,
    /// For a categorical column: the categories that the codes refer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub categories: Option<Box<Self>>,
    /// For a categorical column: whether the categories have an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
}

impl TableColumn {
    /// Returns the number of elements, if the header alone shows it.
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

/// The row or column labels of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum TableIndex {
    /// A range of numbers.
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
    /// Returns the number of labels.
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
    /// The name of each level.
    pub names: Vec<Value>,
    /// The labels of each level.
    pub data: Vec<TableColumn>,
}

/// An image, whose buffer has the pixels row by row.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// The type of a pixel.
    pub mode: ImageMode,
    /// Width and height, pixels.
    pub size: (u32, u32),
    /// The number of the buffer.
    pub buffer: u32,
}

/// The type of a pixel, in Pillow's terms.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ImageMode {
    /// Black and white, eight pixels to a byte, each row padded to whole bytes.
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

/// A value that cannot be transferred, as `repr()` prints it, possibly shortened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opaque {
    /// The class, as `package.Class`. Empty if the sender does not name it.
    #[serde(default)]
    pub name: String,
    /// The output of `repr()`.
    pub repr: String,
    /// The parts from which a reader that has the package of the class rebuilds the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Value>,
}
