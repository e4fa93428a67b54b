//! Collects the buffers of a message that is being built.

use std::borrow::Cow;

use super::blob::{ALIGNMENT, BlobError, LARGEST_PAYLOAD};
use super::{Blob, Transport};
use super::{Dtype, Held, Ndarray, Packed, PackedFormat, TypedValue, Value};

/// The longest `str` in the tree itself, characters.
const LONGEST_STR: usize = 32 << 10;

/// The padding after a buffer.
const GAP: [u8; 64] = [0; 64];
const _: () = assert!(GAP.len() as u64 == ALIGNMENT);

/// Collects the buffers of a message while its values are created.
///
/// Borrowed bytes are not copied.
///
/// ```
/// use sandfork::Value;
/// use sandfork::session::{Attachments, OutgoingValue};
///
/// let mut attachments = Attachments::default();
/// let value = Value::from(vec![1.into(), "two".into(), attachments.bytes(b"three")]);
/// assert_eq!(value.to_string(), "[1, 'two', <bytes>]");
/// let outgoing = OutgoingValue { value, attachments };
/// # let _ = outgoing;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Attachments<'a> {
    buffers: Vec<Cow<'a, [u8]>>,
}

impl<'a> Attachments<'a> {
    /// Attaches a buffer and returns the `bytes` value that refers to it.
    pub fn bytes(&mut self, bytes: impl Into<Cow<'a, [u8]>>) -> Value {
        let buffer = self.attach(bytes.into());
        TypedValue::Bytes(Held { buffer }).into()
    }

    /// Returns a `str` of any length, and attaches a buffer if the string is long.
    pub fn text(&mut self, text: impl Into<Cow<'a, str>>) -> Value {
        let text = text.into();
        // A string has at most as many characters as bytes, so the count is rarely needed.
        if text.len() <= LONGEST_STR || text.chars().count() <= LONGEST_STR {
            return Value::Str(text.into_owned());
        }
        let buffer = self.attach(match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        });
        TypedValue::Text(Held { buffer }).into()
    }

    /// Attaches numbers as a packed `list` of `int`.
    pub fn integers(&mut self, numbers: &[i64]) -> Value {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        self.packed(PackedFormat::Int, bytes.collect())
    }

    /// Attaches numbers as a packed `list` of `float`.
    pub fn floats(&mut self, numbers: &[f64]) -> Value {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        self.packed(PackedFormat::Float, bytes.collect())
    }

    /// Attaches a `numpy.ndarray` with its elements in C order. Returns `None` if the number of bytes does
    /// not match the shape.
    pub fn ndarray(
        &mut self,
        dtype: Dtype,
        shape: impl Into<Vec<u64>>,
        elements: impl Into<Cow<'a, [u8]>>,
    ) -> Option<Value> {
        let elements = elements.into();
        let mut array = Ndarray {
            dtype,
            shape: shape.into(),
            buffer: 0,
        };
        if array.bytes() != Ok(elements.len() as u64) {
            return None;
        }
        array.buffer = self.attach(elements);
        Some(TypedValue::Ndarray(array).into())
    }

    /// Returns the `blob` field of the message, if there are buffers. Short buffers are sent as the payload.
    ///
    /// # Errors
    ///
    /// If the buffers are too long for one message.
    pub(crate) fn blob(&self) -> Result<Option<Blob>, BlobError> {
        if self.buffers.is_empty() {
            return Ok(None);
        }
        let lengths = self.buffers.iter().map(|buffer| buffer.len() as u64);
        let blob = Blob::new(lengths.collect(), Transport::Payload)?;
        Ok(Some(match blob.total() {
            0..=LARGEST_PAYLOAD => blob,
            _ => blob.with_transport(Transport::Passed),
        }))
    }

    /// Returns the bytes of the buffers in order, with the padding between them.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let last = self.buffers.len().saturating_sub(1);
        let buffers = self.buffers.iter().enumerate();
        buffers.flat_map(move |(number, buffer)| {
            let gap = match number {
                number if number == last => 0,
                _ => buffer.len().next_multiple_of(GAP.len()) - buffer.len(),
            };
            [buffer.as_ref(), &GAP[..gap]]
        })
    }

    /// Returns the bytes of the buffers and their padding in one piece.
    pub(crate) fn concatenated(&self) -> Vec<u8> {
        self.pieces().flatten().copied().collect()
    }

    fn packed(&mut self, format: PackedFormat, bytes: Vec<u8>) -> Value {
        let buffer = self.attach(Cow::Owned(bytes));
        TypedValue::Packed(Packed { format, buffer }).into()
    }

    fn attach(&mut self, bytes: Cow<'a, [u8]>) -> u32 {
        let number = self.buffers.len();
        self.buffers.push(bytes);
        // A message with so many buffers exceeds every other limit.
        u32::try_from(number).unwrap_or(u32::MAX)
    }
}
