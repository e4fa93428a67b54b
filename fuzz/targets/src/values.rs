//! A value and its buffers: an accepted value survives encoding and decoding, its text form is
//! bounded, and all accessors stay within its buffers.

use std::borrow::Cow;

use sandfork::Value;
use sandfork::internals::outcome::value::{BufferCheck, plain};
use sandfork::internals::protocol::{Blob, JsonLimits, Transport};
use sandfork::session::Buffers;

use crate::Target;
use crate::replies::refused;
use crate::source::{Source, text_and_rest};

pub(crate) const TARGET: Target = Target {
    name: "values",
    run,
    inputs: 24_000,
};

/// The bytes after the text are the lengths of the buffers.
fn run(bytes: &[u8]) -> bool {
    let (tree, rest) = text_and_rest(bytes);
    let value: Value = match JsonLimits::FROM_WORKER.parse(tree) {
        Ok(value) => value,
        Err(error) => return refused(&error),
    };
    assert_same_again(&value);
    assert_is_shown(&value);
    let (blob, contents) = buffers(rest);
    match BufferCheck::new(blob.as_ref()).value(&value) {
        Ok(()) => {
            let buffers = blob
                .as_ref()
                .map_or_else(|| Ok(Buffers::default()), |blob| blob.buffers(&contents));
            let buffers = buffers.expect("as many bytes as the blob says");
            read_all(&value, &buffers);
            assert_is_written(&value, &buffers, tree.len() + contents.len());
            true
        }
        Err(error) => refused(&error),
    }
}

/// Returns at most 16 buffers, small enough to allocate.
fn buffers(rest: &[u8]) -> (Option<Blob>, Vec<u8>) {
    let mut source = Source::new(rest);
    let count = source.byte() % 17;
    let lengths: Vec<u64> = (0..count).map(|_| source.short().into()).collect();
    let Ok(blob) = Blob::new(lengths, Transport::Payload) else {
        return (None, Vec::new());
    };
    let total = usize::try_from(blob.total()).expect("sixteen times 64 KiB");
    let contents = rest.iter().copied().cycle().take(total).collect();
    (Some(blob), contents)
}

fn assert_same_again(value: &Value) {
    // Compared as text, because NaN does not equal itself.
    let written = serde_json::to_string(value).expect("a value is written");
    let again: Result<Value, _> = JsonLimits::FROM_WORKER.parse(written.as_bytes());
    let again =
        again.unwrap_or_else(|error| panic!("{written} is refused when read again: {error}"));
    assert_eq!(
        written,
        serde_json::to_string(&again).expect("serialization succeeds")
    );
}

/// Checks that the text form of a hostile value is short and has no terminal control characters.
fn assert_is_shown(value: &Value) {
    const LONGEST: usize = 32 << 10;
    let shown = value.to_string();
    assert!(shown.len() <= LONGEST, "{} bytes are shown", shown.len());
    let acts = shown.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(acts, None, "a control character is shown: {shown:?}");
}

/// Checks that JSON without buffers is not much longer than what the guest sent, however often the value
/// refers to a buffer.
fn assert_is_written(value: &Value, buffers: &Buffers<'_>, sent: usize) {
    let written = plain(value, buffers).to_string();
    assert!(
        written.len() <= 16 * sent + 100,
        "{sent} as {}",
        written.len()
    );
}

/// Calls every accessor of the value and its parts.
fn read_all(value: &Value, buffers: &Buffers<'_>) {
    let _ = (value.bytes(buffers), value.text(buffers));
    let _ = (value.integers(buffers), value.floats(buffers));
    if let Some(array) = value.ndarray(buffers) {
        let elements: u128 = array
            .shape
            .iter()
            .map(|length| u128::from(*length))
            .product();
        let size = u128::from(array.dtype.size());
        assert_eq!(
            elements * size,
            array.bytes.len() as u128,
            "an array's bytes"
        );
        for read in [
            array.floats().map(|numbers| numbers.len()),
            array.integers().map(|numbers| numbers.len()),
        ] {
            assert!(read.is_none_or(|count| count as u128 == elements));
        }
    }
    let _ = value.get("x");
    let inner = value.as_list().unwrap_or_default().iter();
    let pairs = value.as_dict().unwrap_or_default().iter();
    inner
        .chain(pairs.flat_map(|(key, value)| [key, value]))
        .for_each(|inner| read_all(inner, buffers));
    if let Some(Cow::Owned(unfolded)) = value.unfolded(buffers) {
        assert_is_shown(&unfolded);
    }
}
