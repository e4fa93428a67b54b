//! Checks that values fit the buffers of their message, as far as the header shows.

use thiserror::Error;

use super::Blob;
use super::access::LONGEST_JSON;
use super::{Image, ImageMode, Ndarray, Packed, TableColumn, TableIndex, TypedValue, Uuid, Value};

/// The maximum number of dimensions of an array: numpy's limit before version 2.
const MAX_DIMENSIONS: usize = 32;

/// The reason why the values of a message were rejected.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ValueError {
    /// A value refers to a missing buffer.
    #[error("a value refers to buffer {buffer}, but the message has {count} buffers")]
    NoBuffer {
        /// The number of the missing buffer.
        buffer: u32,
        /// The number of buffers in the message.
        count: usize,
    },
    /// Two values share one buffer, so that a short message could expand to any amount of memory. Holds the
    /// number of the buffer.
    #[error("two values refer to buffer {0}")]
    Shared(u32),
    /// The length of a buffer differs from the length that its value needs.
    #[error("a value of type `{kind}` needs {expected} bytes, but its buffer has {found}")]
    Length {
        /// The value's type.
        kind: &'static str,
        /// The length that the value needs, bytes.
        expected: u64,
        /// The length of the buffer, bytes.
        found: u64,
    },
    /// The `json` buffers together exceed the limit, which bounds a reader's memory.
    #[error("the `json` buffers of a message have {found} bytes, more than {limit}")]
    Json {
        /// The total of the JSON buffers, bytes.
        found: u64,
        /// The limit, bytes.
        limit: u64,
    },
    /// The number of bytes differs from the total that the blob announces.
    #[error("the buffers of a message take {expected} bytes, but {found} bytes arrived")]
    Total {
        /// The total in the blob, bytes.
        expected: u64,
        /// The actual number of bytes.
        found: u64,
    },
    /// A value that is invalid regardless of its buffers.
    #[error("a value of type `{kind}` {fault}")]
    Malformed {
        /// The value's type.
        kind: &'static str,
        /// The fault.
        fault: &'static str,
    },
}

/// Checks the values of one message. Each buffer of the message may belong to only one value.
#[derive(Clone, Debug)]
pub struct BufferCheck<'a> {
    lengths: &'a [u64],
    taken: Vec<bool>,
    /// The bytes of the `json` buffers so far.
    json: u64,
}

impl<'a> BufferCheck<'a> {
    /// Creates a check for a message with these buffers.
    pub fn new(blob: Option<&'a Blob>) -> Self {
        let lengths = blob.map_or(&[] as &[u64], Blob::lengths);
        Self {
            lengths,
            taken: vec![false; lengths.len()],
            json: 0,
        }
    }

    /// Checks one value and every value in it.
    ///
    /// # Errors
    ///
    /// If a value is malformed or does not fit its buffer. Returns the first such error.
    pub fn value(&mut self, value: &Value) -> Result<(), ValueError> {
        match value {
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) => {
                Ok(())
            }
            Value::List(items) => self.values(items),
            Value::Typed(value) => self.typed(value),
        }
    }

    /// Checks several values.
    pub fn values<'v>(
        &mut self,
        values: impl IntoIterator<Item = &'v Value>,
    ) -> Result<(), ValueError> {
        values.into_iter().try_for_each(|value| self.value(value))
    }

    fn typed(&mut self, value: &TypedValue) -> Result<(), ValueError> {
        match value {
            TypedValue::Int(_)
            | TypedValue::Decimal(_)
            | TypedValue::Fraction(_)
            | TypedValue::Date(_)
            | TypedValue::Time(_)
            | TypedValue::Datetime(_)
            | TypedValue::Timedelta(_) => Ok(()),
            TypedValue::Opaque(opaque) => self.values(&opaque.parts),
            TypedValue::Text(held) | TypedValue::Bytes(held) | TypedValue::Bytearray(held) => {
                self.take(held.buffer).map(drop)
            }
            TypedValue::Json(held) => self.json(held.buffer),
            TypedValue::Tuple(held) | TypedValue::Set(held) | TypedValue::Frozenset(held) => {
                self.values(&held.items)
            }
            TypedValue::Dict(dict) => {
                let mut pairs = dict.items.iter();
                pairs.try_for_each(|(key, value)| self.values([key, value]))
            }
            TypedValue::Packed(packed) => self.packed(*packed),
            TypedValue::Complex(complex) => floats([&complex.real, &complex.imag]),
            TypedValue::Timezone(zone) => self.values(&zone.name),
            TypedValue::Path(path) => self.value(&path.text),
            TypedValue::Uuid(uuid) => is_uuid(uuid),
            TypedValue::Dataclass(record) | TypedValue::Namedtuple(record) => {
                self.values(record.fields.iter().map(|(_, value)| value))
            }
            TypedValue::Enum(member) => self.value(&member.value),
            TypedValue::Range(range) => integers([&range.start, &range.stop, &range.step]),
            TypedValue::Ndarray(array) => {
                self.take_exactly("ndarray", array.buffer, array.bytes()?)
            }
            TypedValue::Numpy(scalar) => self.value(&scalar.value),
            TypedValue::Dataframe(frame) => {
                self.index(&frame.columns)?;
                self.index(&frame.index)?;
                self.columns(&frame.data)
            }
            TypedValue::Series(series) => {
                self.value(&series.name)?;
                self.index(&series.index)?;
                self.column(&series.data)
            }
            TypedValue::Image(image) => self.take_exactly("image", image.buffer, image.bytes()),
        }
    }

    fn index(&mut self, index: &TableIndex) -> Result<(), ValueError> {
        match index {
            TableIndex::RangeIndex(range) => self.value(&range.name),
            TableIndex::Index(index) => {
                self.values(&index.names)?;
                self.columns(&index.data)
            }
        }
    }

    fn columns(&mut self, columns: &[TableColumn]) -> Result<(), ValueError> {
        columns.iter().try_for_each(|column| self.column(column))
    }

    fn column(&mut self, column: &TableColumn) -> Result<(), ValueError> {
        self.value(&column.values)?;
        self.values(&column.mask)?;
        self.values(&column.schema)?;
        match &column.categories {
            Some(categories) => self.column(categories),
            None => Ok(()),
        }
    }

    /// Limits the total of all `json` buffers of a message, because the values parsed from them take a
    /// multiple of that memory.
    fn json(&mut self, buffer: u32) -> Result<(), ValueError> {
        let limit = LONGEST_JSON as u64;
        self.json = self.json.saturating_add(self.take(buffer)?);
        if self.json <= limit {
            Ok(())
        } else {
            let found = self.json;
            Err(ValueError::Json { found, limit })
        }
    }

    fn packed(&mut self, packed: Packed) -> Result<(), ValueError> {
        let length = self.take(packed.buffer)?;
        if length.is_multiple_of(Packed::SIZE) {
            Ok(())
        } else {
            Err(malformed("packed", "ends with a partial element"))
        }
    }

    fn take_exactly(
        &mut self,
        kind: &'static str,
        buffer: u32,
        expected: u64,
    ) -> Result<(), ValueError> {
        let found = self.take(buffer)?;
        if found == expected {
            Ok(())
        } else {
            Err(ValueError::Length {
                kind,
                expected,
                found,
            })
        }
    }

    /// Assigns a buffer to the value that refers to it. Returns the length of the buffer, bytes.
    fn take(&mut self, buffer: u32) -> Result<u64, ValueError> {
        let index = usize::try_from(buffer).unwrap_or(usize::MAX);
        let (Some(length), Some(taken)) = (self.lengths.get(index), self.taken.get_mut(index))
        else {
            let count = self.lengths.len();
            return Err(ValueError::NoBuffer { buffer, count });
        };
        if std::mem::replace(taken, true) {
            return Err(ValueError::Shared(buffer));
        }
        Ok(*length)
    }
}

impl Ndarray {
    /// Returns the size of all elements, bytes.
    ///
    /// # Errors
    ///
    /// If no array can have this shape.
    pub(super) fn bytes(&self) -> Result<u64, ValueError> {
        if self.shape.len() > MAX_DIMENSIONS {
            return Err(malformed("ndarray", "has more than 32 dimensions"));
        }
        // The size of the array without its empty dimensions must not overflow either: numpy has the
        // same limit.
        let mut lengths = self.shape.iter().filter(|length| **length > 0);
        let whole = lengths.try_fold(u64::from(self.dtype.size()), |product, length| {
            product.checked_mul(*length)
        });
        let whole = whole.ok_or(malformed("ndarray", "has a size that overflows"))?;
        Ok(if self.shape.contains(&0) { 0 } else { whole })
    }
}

impl Packed {
    /// The size of one number, bytes.
    pub(super) const SIZE: u64 = 8;
}

impl Image {
    /// Returns the size of all rows, bytes.
    pub fn bytes(&self) -> u64 {
        let (width, height) = (u64::from(self.size.0), u64::from(self.size.1));
        let pixel = match self.mode {
            ImageMode::Bit => return width.div_ceil(8).saturating_mul(height),
            ImageMode::L => 1,
            ImageMode::La => 2,
            ImageMode::Rgb => 3,
            ImageMode::Rgba | ImageMode::I | ImageMode::F => 4,
        };
        // A saturated product still exceeds the length of any buffer.
        width.saturating_mul(height).saturating_mul(pixel)
    }
}

const fn malformed(kind: &'static str, fault: &'static str) -> ValueError {
    ValueError::Malformed { kind, fault }
}

fn floats(parts: [&Value; 2]) -> Result<(), ValueError> {
    if parts.iter().all(|part| matches!(part, Value::Float(_))) {
        Ok(())
    } else {
        Err(malformed("complex", "has a part that is not a `float`"))
    }
}

fn integers(parts: [&Value; 3]) -> Result<(), ValueError> {
    let is_integer = |part: &&Value| match part {
        Value::Int(_) => true,
        Value::Typed(typed) => matches!(**typed, TypedValue::Int(_)),
        _ => false,
    };
    if parts.iter().all(is_integer) {
        Ok(())
    } else {
        Err(malformed("range", "has a part that is not an `int`"))
    }
}

fn is_uuid(uuid: &Uuid) -> Result<(), ValueError> {
    if uuid.hex.len() == 32 && uuid.hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(())
    } else {
        Err(malformed("uuid", "does not have 32 hexadecimal digits"))
    }
}
