//! A value and its buffers: an accepted value survives encoding and decoding, its text form is
//! bounded, and all accessors stay within its buffers.

use sandfork::outcome::value::{Buffers, TypedValue};
use sandfork::protocol::{Blob, JsonLimits, Transport, Value};

use crate::replies::assert_is_short;
use crate::source::{Source, text_and_rest};
use crate::{Behaviour, Target};

pub(crate) const TARGET: Target = Target {
    name: "values",
    about: "a tree, a zero byte, its buffers: nothing read is outside of them, what is taken reads back",
    run,
    words: &[
        "{\"type\":\"int\",\"hex\":\"",
        "{\"type\":\"float\",\"text\":\"nan\"}",
        "{\"type\":\"text\",\"buffer\":0}",
        "{\"type\":\"bytes\",\"buffer\":1}",
        "{\"type\":\"bytearray\",\"buffer\":0}",
        "{\"type\":\"json\",\"buffer\":0}",
        "{\"type\":\"tuple\",\"items\":[",
        "{\"type\":\"set\",\"items\":[",
        "{\"type\":\"frozenset\",\"items\":[",
        "{\"type\":\"dict\",\"items\":[[",
        "{\"type\":\"packed\",\"format\":\"i8\",\"buffer\":0}",
        "{\"type\":\"packed\",\"format\":\"f8\",\"buffer\":0}",
        "{\"type\":\"complex\",\"real\":1.0,\"imag\":-0.0}",
        "{\"type\":\"decimal\",\"text\":\"",
        "{\"type\":\"fraction\",\"text\":\"1/3\"}",
        "{\"type\":\"path\",\"text\":\"",
        "{\"type\":\"uuid\",\"hex\":\"",
        "{\"type\":\"date\",\"text\":\"2026-01-01\"}",
        "{\"type\":\"time\",\"text\":\"01:02\",\"fold\":0}",
        "{\"type\":\"datetime\",\"text\":\"",
        "{\"type\":\"timedelta\",\"days\":1,\"seconds\":2,\"microseconds\":3}",
        "{\"type\":\"timezone\",\"seconds\":3600,\"name\":\"",
        "{\"type\":\"range\",\"start\":0,\"stop\":9,\"step\":1}",
        "{\"type\":\"enum\",\"name\":\"A.B\",\"value\":",
        "{\"type\":\"dataclass\",\"name\":\"P\",\"fields\":[[\"x\",",
        "{\"type\":\"namedtuple\",\"name\":\"P\",\"fields\":[[\"x\",",
        "{\"type\":\"ndarray\",\"dtype\":\"<f8\",\"shape\":[2,3],\"buffer\":0}",
        "{\"type\":\"numpy\",\"dtype\":\"<i4\",\"value\":",
        "{\"type\":\"dataframe\",\"columns\":",
        "{\"type\":\"series\",\"name\":null,\"index\":",
        "{\"type\":\"image\",\"mode\":\"RGB\",\"size\":[2,2],\"buffer\":0}",
        "{\"type\":\"opaque\",\"name\":\"a\",\"repr\":\"",
        "\"]}",
        "]]}",
        "]}",
        "}",
        "null",
        "-1",
        "\\u001b[2J",
        "\u{202e}",
        "\"dtype\":\">u2\"",
        "\"dtype\":\"<U9\"",
        "\"dtype\":\"<M8[ns]\"",
        "18446744073709551615",
        "4294967296",
        "-9223372036854775808",
    ],
    inputs: 400_000,
};

/// The bytes after the text give the number of bytes of each buffer.
fn run(bytes: &[u8]) -> Behaviour {
    let (tree, rest) = text_and_rest(bytes);
    let value: Value = match JsonLimits::FROM_WORKER.from_slice(tree) {
        Ok(value) => value,
        Err(error) => {
            let message = error.to_string();
            assert_is_short(&message);
            return Behaviour::refused(&message);
        }
    };
    assert_same_again(&value);
    assert_is_shown(&value);
    let (blob, contents) = buffers(rest);
    match value.check(blob.as_ref()) {
        Ok(()) => {
            let buffers = blob.as_ref().map_or_else(
                || Ok(Buffers::default()),
                |blob| Buffers::new(blob, &contents),
            );
            let buffers = buffers.expect("as many bytes as the blob says");
            read_all(&value, &buffers);
            Behaviour::taken(kind(&value))
        }
        Err(error) => {
            let message = error.to_string();
            assert_is_short(&message);
            Behaviour::refused(&message)
        }
    }
}

/// At most 16 buffers, small enough to allocate.
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
    let again: Result<Value, _> = JsonLimits::FROM_WORKER.from_slice(written.as_bytes());
    let again =
        again.unwrap_or_else(|error| panic!("{written} is refused when read again: {error}"));
    assert_eq!(
        written,
        serde_json::to_string(&again).expect("it is written")
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

/// Calls every accessor on the value and its parts.
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
    if let Some(TypedValue::Json(_)) = value.as_typed()
        && let Ok(unfolded) = value.unfolded(buffers)
    {
        assert_is_shown(&unfolded);
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::None => "none",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Float(_) => "float",
        Value::Str(_) => "str",
        Value::List(items) => items.first().map_or("list of none", kind),
        Value::Typed(typed) => match &**typed {
            TypedValue::Int(_) => "long int",
            TypedValue::Text(_) => "text",
            TypedValue::Bytes(_) | TypedValue::Bytearray(_) => "bytes",
            TypedValue::Json(_) => "json",
            TypedValue::Tuple(_) => "tuple",
            TypedValue::Set(_) | TypedValue::Frozenset(_) => "set",
            TypedValue::Dict(_) => "dict",
            TypedValue::Packed(_) => "packed",
            TypedValue::Ndarray(_) => "ndarray",
            TypedValue::Numpy(_) => "numpy",
            TypedValue::Dataframe(_) => "dataframe",
            TypedValue::Series(_) => "series",
            TypedValue::Image(_) => "image",
            TypedValue::Dataclass(_) | TypedValue::Namedtuple(_) => "record",
            TypedValue::Enum(member) => kind(&member.value),
            TypedValue::Opaque(_) => "opaque",
            _ => "another of the standard library",
        },
        _ => "another",
    }
}
