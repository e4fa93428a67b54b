//! Values that JSON has no notation for: the objects with a `type`.

use serde::{Deserialize, Serialize};

use super::{BigInt, Dtype, Value};

/// A value with a `type`, which is the variant's name in kebab-case.
///
/// Text that stands for a value (`decimal`, `datetime`) is as the sender wrote it: reading it is up to
/// who uses it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TypedValue {
    /// `int` outside the 64 bits of [`Value::Int`].
    Int(BigInt),
    /// `str` that is long or has a lone surrogate: UTF-8 in a buffer, surrogates as three bytes each.
    Text(Held),
    /// `bytes`, in a buffer.
    Bytes(Held),
    /// `bytearray`, in a buffer.
    Bytearray(Held),
    /// A part of the tree that is over the bounds of a header: JSON text in a buffer, in this notation.
    Json(Held),
    /// `tuple`.
    Tuple(Items),
    /// `set`.
    Set(Items),
    /// `frozenset`.
    Frozenset(Items),
    /// `dict`, in the order in which its keys were inserted.
    Dict(Dict),
    /// A long `list` of numbers of one type, in a buffer.
    Packed(Packed),
    /// `complex`.
    Complex(Complex),
    /// `decimal.Decimal`.
    Decimal(Text),
    /// `fractions.Fraction`, as `1/3`.
    Fraction(Text),
    /// `datetime.date`, as ISO 8601 writes it.
    Date(Text),
    /// `datetime.time`.
    Time(Time),
    /// `datetime.datetime`.
    Datetime(Datetime),
    /// `datetime.timedelta`.
    Timedelta(Timedelta),
    /// `datetime.timezone`.
    Timezone(Timezone),
    /// A path of `pathlib`.
    Path(Path),
    /// `uuid.UUID`.
    Uuid(Uuid),
    /// An instance of a dataclass.
    Dataclass(Record),
    /// A named tuple.
    Namedtuple(Record),
    /// A member of an enumeration.
    Enum(EnumMember),
    /// `range`.
    Range(Range),
    /// `numpy.ndarray`.
    Ndarray(Ndarray),
    /// A scalar of numpy.
    Numpy(NumpyScalar),
    /// `pandas.DataFrame`.
    Dataframe(DataFrame),
    /// `pandas.Series`.
    Series(Series),
    /// An image of Pillow.
    Image(Image),
    /// What cannot cross.
    Opaque(Opaque),
}

/// Bytes that are one of the message's buffers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Number of the buffer, from 0.
    pub buffer: u32,
}

/// Elements of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Items {
    /// The elements; a set's are in no order.
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
    /// Keys, which are any values, with what they lead to.
    pub items: Vec<(Value, Value)>,
}

/// Numbers of one type, little-endian, eight bytes each.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Packed {
    /// What they are.
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

/// A value whose constructor takes this text.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Text {
    /// As the sender wrote it.
    pub text: String,
}

/// Time of a day.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// ISO 8601, with its offset if that is fixed.
    pub text: String,
    /// 1: the second of two times that a clock showed when it was put back.
    #[serde(default)]
    pub fold: u8,
}

/// Date and time.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Datetime {
    /// ISO 8601, with its offset if that is fixed.
    pub text: String,
    /// 1: the second of two times that a clock showed when it was put back.
    #[serde(default)]
    pub fold: u8,
    /// Key of its `zoneinfo`, as `Europe/Vienna`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// A span of time, as Python normalises it: only `days` is ever negative.
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
    /// Its own name: a `str`, perhaps in a buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Value>,
}

/// A path of `pathlib`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// A `str`, perhaps in a buffer.
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
    /// As `Color.RED`.
    pub name: String,
    /// What it stands for.
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

/// An array, its elements in C order.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Ndarray {
    /// Type of its elements.
    pub dtype: Dtype,
    /// Length of each dimension.
    pub shape: Vec<u64>,
    /// Number of the buffer.
    pub buffer: u32,
}

/// A scalar of numpy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumpyScalar {
    /// Its type.
    pub dtype: Dtype,
    /// The nearest value of Python's own.
    pub value: Value,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataFrame {
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
    /// Its name; any value that can be hashed.
    pub name: Value,
    /// Labels of the rows.
    pub index: TableIndex,
    /// What it holds.
    pub data: TableColumn,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableColumn {
    /// As pandas names it: `float64`, `object`, `category`.
    pub dtype: String,
    /// A `list`, or an `ndarray`; codes where there are `categories`.
    pub values: Value,
    /// Of a column whose elements may be missing: an `ndarray` of truth values that says which are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<Value>,
    /// Of a categorical column: what the codes stand for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub categories: Option<Box<Self>>,
    /// Of a categorical column: whether the categories have an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
}

impl TableColumn {
    /// How many elements it has, where the header alone tells.
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
    /// Numbers that need not be written out.
    RangeIndex(RangeIndex),
    /// Anything else.
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
    /// How many numbers it has.
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
    /// What a pixel is.
    pub mode: ImageMode,
    /// Width and height, pixels.
    pub size: (u32, u32),
    /// Number of the buffer.
    pub buffer: u32,
}

/// What a pixel is, in Pillow's terms.
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

/// What cannot cross, shown as `repr()` shows it, perhaps shortened.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Opaque {
    /// Its class, as `package.Class`; empty where the sender does not say.
    #[serde(default)]
    pub name: String,
    /// The text.
    pub repr: String,
}
