#![allow(clippy::expect_used, reason = "a test")]

mod properties;

use super::*;
use super::{Blob, Transport};

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn written(value: &Value) -> String {
    serde_json::to_string(value).expect("values are written")
}

fn check(value: &Value, blob: Option<&Blob>) -> Result<(), ValueError> {
    BufferCheck::new(blob).value(value)
}

fn blob(lengths: &[u64]) -> Blob {
    Blob::new(lengths.to_vec(), Transport::Passed).expect("a test's blob")
}

/// Every type in its canonical JSON form.
const EVERY_TYPE: [&str; 37] = [
    "null",
    "true",
    "-9223372036854775808",
    "0.1",
    r#""\u0000 ü""#,
    r#"[1,[],"two"]"#,
    r#"{"type":"int","hex":"-1f0000000000000000"}"#,
    r#"{"type":"float","text":"-inf"}"#,
    r#"{"type":"text","buffer":0}"#,
    r#"{"type":"bytes","buffer":4294967295}"#,
    r#"{"type":"bytearray","buffer":1}"#,
    r#"{"type":"json","buffer":1}"#,
    r#"{"type":"tuple","items":[1,{"type":"tuple","items":[]}]}"#,
    r#"{"type":"set","items":[1]}"#,
    r#"{"type":"frozenset","items":[1]}"#,
    r#"{"type":"dict","items":[[1,"one"],[null,[]]]}"#,
    r#"{"type":"packed","format":"i8","buffer":0}"#,
    r#"{"type":"complex","real":-0.0,"imag":{"type":"float","text":"nan"}}"#,
    r#"{"type":"decimal","text":"1.10"}"#,
    r#"{"type":"fraction","text":"1/3"}"#,
    r#"{"type":"date","text":"2024-02-29"}"#,
    r#"{"type":"time","text":"23:59:59+01:00","fold":1}"#,
    r#"{"type":"datetime","text":"2024-10-27T02:30:00","fold":1,"zone":"Europe/Vienna"}"#,
    r#"{"type":"timedelta","days":-1,"seconds":86399,"microseconds":999999}"#,
    r#"{"type":"timezone","seconds":-3600,"name":"west"}"#,
    r#"{"type":"path","text":"/work/a"}"#,
    r#"{"type":"uuid","hex":"00112233445566778899aabbccddeeff"}"#,
    r#"{"type":"dataclass","name":"Point","fields":[["x",1.0]]}"#,
    r#"{"type":"namedtuple","name":"Point","fields":[["x",1.0]]}"#,
    r#"{"type":"enum","name":"Color.RED","value":1}"#,
    r#"{"type":"range","start":0,"stop":{"type":"int","hex":"10000000000000000"},"step":1}"#,
    r#"{"type":"ndarray","dtype":"<f8","shape":[2,3],"buffer":0}"#,
    r#"{"type":"numpy","dtype":"<i8","value":3}"#,
    r#"{"type":"dataframe","columns":{"type":"index","names":[null],"data":[{"dtype":"object","values":["a"]}]},"index":{"type":"range-index","start":0,"stop":2,"step":1,"name":null},"data":[{"dtype":"category","values":{"type":"ndarray","dtype":"|i1","shape":[2],"buffer":0},"mask":{"type":"ndarray","dtype":"|b1","shape":[2],"buffer":1},"categories":{"dtype":"object","values":["x"]},"ordered":false}]}"#,
    r#"{"type":"series","name":"s","index":{"type":"range-index","start":0,"stop":1,"step":1,"name":"n"},"data":{"dtype":"int64","values":[1]}}"#,
    r#"{"type":"image","mode":"RGBA","size":[2,3],"buffer":0}"#,
    r#"{"type":"series","of":"polars","name":"s","index":{"type":"range-index","start":0,"stop":1,"step":1,"name":null},"data":{"dtype":"nested","schema":["list","int64"],"values":[[1]]}}"#,
];

#[test]
fn every_type_round_trips() {
    for text in EVERY_TYPE {
        assert_eq!(written(&read(text)), text);
    }
    let opaque = r#"{"type":"opaque","name":"m.C","repr":"<C>"}"#;
    assert_eq!(written(&read(opaque)), opaque);
}

#[test]
fn optional_members_may_be_missing() {
    let opaque = read(r#"{"type":"opaque","repr":"<C>"}"#);
    assert_eq!(opaque, Value::opaque("<C>"));
    assert_eq!(
        written(&opaque),
        r#"{"type":"opaque","name":"","repr":"<C>"}"#
    );
    let time = written(&read(r#"{"type":"time","text":"12:00:00"}"#));
    assert_eq!(time, r#"{"type":"time","text":"12:00:00","fold":0}"#);
}

#[test]
fn numbers_have_one_representation() {
    assert_eq!(read(r#"{"type":"int","hex":"-ff"}"#), Value::Int(-255));
    assert_eq!(
        Value::from(u64::MAX),
        read(r#"{"type":"int","hex":"ffffffffffffffff"}"#)
    );
    assert_eq!(Value::from(7u64), Value::Int(7));
    assert_eq!(
        read(r#"{"type":"float","text":"inf"}"#),
        Value::Float(f64::INFINITY)
    );
}

#[test]
fn invalid_values_are_rejected() {
    let refused = [
        "{}",
        r#"{"a":1}"#,
        r#"{"repr":"x","type":"opaque"}"#,
        r#"{"type":"pickle","buffer":0}"#,
        r#"{"type":"Bytes","buffer":0}"#,
        r#"{"type":7}"#,
        r#"{"type":"opaque","repr":"x","type":"bytes"}"#,
        r#"{"type":"opaque","repr":"a","repr":"b"}"#,
        r#"{"type":"bytes"}"#,
        r#"{"type":"bytes","buffer":-1}"#,
        r#"{"type":"bytes","buffer":4294967296}"#,
        r#"{"type":"bytes","buffer":0.0}"#,
        r#"{"type":"int","hex":""}"#,
        r#"{"type":"int","hex":"-"}"#,
        r#"{"type":"int","hex":"+1"}"#,
        r#"{"type":"int","hex":"0x1"}"#,
        r#"{"type":"float","text":"infinity"}"#,
        r#"{"type":"dict","items":[[1]]}"#,
        r#"{"type":"dict","items":[[1,2,3]]}"#,
        r#"{"type":"dict","items":{"a":1}}"#,
        r#"{"type":"packed","format":"i4","buffer":0}"#,
        r#"{"type":"ndarray","dtype":"|O","shape":[1],"buffer":0}"#,
        r#"{"type":"ndarray","dtype":"<f8","shape":[-1],"buffer":0}"#,
        r#"{"type":"image","mode":"P","size":[1,1],"buffer":0}"#,
        r#"{"type":"image","mode":"L","size":[1],"buffer":0}"#,
        r#"{"type":"range-index","start":0,"stop":1,"step":1}"#,
        "9223372036854775808",
        r#""\ud800""#,
    ];
    for text in refused {
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
    }
}

#[test]
fn unknown_members_are_ignored() {
    let value = read(r#"{"type":"bytes","later":{"a":[1]},"buffer":3}"#);
    assert_eq!(written(&value), r#"{"type":"bytes","buffer":3}"#);
}

#[test]
fn missing_and_wrongly_sized_buffers_are_rejected() {
    let fits = [
        (r#"{"type":"bytes","buffer":1}"#, vec![0, 9]),
        (r#"{"type":"packed","format":"f8","buffer":0}"#, vec![24]),
        (
            r#"{"type":"ndarray","dtype":"<U3","shape":[2,2],"buffer":0}"#,
            vec![48],
        ),
        (
            r#"{"type":"ndarray","dtype":"<f8","shape":[],"buffer":0}"#,
            vec![8],
        ),
        (
            r#"{"type":"ndarray","dtype":"<f8","shape":[5,0],"buffer":0}"#,
            vec![0],
        ),
        (
            r#"{"type":"image","mode":"1","size":[9,2],"buffer":0}"#,
            vec![4],
        ),
        (
            r#"{"type":"image","mode":"RGB","size":[3,2],"buffer":0}"#,
            vec![18],
        ),
    ];
    for (text, lengths) in fits {
        assert_eq!(check(&read(text), Some(&blob(&lengths))), Ok(()), "{text}");
        assert!(matches!(
            check(&read(text), None),
            Err(ValueError::NoBuffer { count: 0, .. })
        ));
    }
    let refused = [
        (r#"{"type":"bytes","buffer":1}"#, 9),
        (r#"{"type":"packed","format":"i8","buffer":0}"#, 12),
        (
            r#"{"type":"ndarray","dtype":"<f8","shape":[2],"buffer":0}"#,
            8,
        ),
        (
            r#"{"type":"ndarray","dtype":"<f8","shape":[5,0],"buffer":0}"#,
            8,
        ),
        (
            r#"{"type":"ndarray","dtype":"<f8","shape":[2305843009213693952],"buffer":0}"#,
            0,
        ),
        (
            r#"{"type":"ndarray","dtype":"|i1","shape":[4294967296,4294967296],"buffer":0}"#,
            0,
        ),
        (
            r#"{"type":"ndarray","dtype":"|i1","shape":[0,9223372036854775808,2],"buffer":0}"#,
            0,
        ),
        (
            r#"{"type":"image","mode":"RGBA","size":[4294967295,4294967295],"buffer":0}"#,
            4,
        ),
        (r#"{"type":"complex","real":1,"imag":0.0}"#, 1),
        (r#"{"type":"range","start":0,"stop":1,"step":"x"}"#, 1),
        (r#"{"type":"uuid","hex":"xyz"}"#, 1),
    ];
    for (text, length) in refused {
        assert!(
            check(&read(text), Some(&blob(&[length]))).is_err(),
            "{text}"
        );
    }
    let dimensions = vec!["1"; 33].join(",");
    let many = format!(r#"{{"type":"ndarray","dtype":"|i1","shape":[{dimensions}],"buffer":0}}"#);
    assert!(check(&read(&many), Some(&blob(&[1]))).is_err());
}

#[test]
fn buffer_of_two_values_is_rejected() {
    let bytes = r#"{"type":"bytes","buffer":0}"#;
    let twice = [
        format!("[{bytes},{bytes}]"),
        format!(r#"{{"type":"dict","items":[[{bytes},{bytes}]]}}"#),
        format!(r#"{{"type":"enum","name":"E.A","value":[{bytes},{{"type":"json","buffer":0}}]}}"#),
        EVERY_TYPE[33]
            .replace(r#"["a"]"#, bytes)
            .replace(r#"["x"]"#, bytes),
        EVERY_TYPE[34]
            .replace(r#""s""#, bytes)
            .replace("[1]", bytes),
    ];
    for text in twice {
        let shared = ValueError::Shared(0);
        assert_eq!(
            check(&read(&text), Some(&blob(&[2]))),
            Err(shared),
            "{text}"
        );
    }
}

#[test]
fn attachments_round_trip() {
    let mut attached = Attachments::default();
    let elements = [1.5f64, -2.0].map(f64::to_le_bytes).concat();
    let long = "ü".repeat(40_000);
    let dtype = Dtype::new("<f8").expect("a dtype");
    let values = [
        attached.bytes(b"raw".as_slice()),
        attached.integers(&[1, i64::MIN]),
        attached.floats(&[0.5]),
        attached.text(&long),
        attached
            .ndarray(dtype.clone(), [2], &elements[..])
            .expect("it fits"),
        attached.text("short"),
    ];
    assert_eq!(attached.ndarray(dtype, [3], &elements[..]), None);
    let blob = attached.blob().expect("they fit").expect("there are some");
    assert_eq!(blob.transport(), Transport::Passed);
    let bytes = attached.concatenated();
    let buffers = blob.buffers(&bytes).expect("all bytes");
    let mut check = BufferCheck::new(Some(&blob));
    assert_eq!(check.values(&values), Ok(()));

    assert_eq!(values[0].bytes(&buffers), Some(b"raw".as_slice()));
    assert_eq!(values[1].integers(&buffers), Some(vec![1, i64::MIN]));
    assert_eq!(values[2].floats(&buffers), Some(vec![0.5]));
    assert_eq!(values[3].text(&buffers).as_deref(), Some(long.as_str()));
    let array = values[4].ndarray(&buffers).expect("an array");
    assert_eq!(array.floats(), Some(vec![1.5, -2.0]));
    assert_eq!(values[5], Value::from("short"));
    assert!(blob.buffers(&bytes[1..]).is_err());
}

#[test]
fn json_buffers_of_a_message_share_one_limit() {
    let blob = Blob::new(vec![40 << 20, 40 << 20], Transport::Passed).expect("they fit");
    let json = |buffer| Value::from(TypedValue::Json(Held { buffer }));
    let mut check = BufferCheck::new(Some(&blob));
    assert_eq!(check.value(&json(0)), Ok(()));
    let refused = check.value(&json(1)).expect_err("together over 64 MiB");
    assert_eq!(
        refused.to_string(),
        "the `json` buffers of a message have 83886080 bytes, more than 67108864"
    );
}

#[test]
fn integers_have_at_most_a_million_bits() {
    assert!(BigInt::new("f".repeat(256 << 10)).is_ok());
    assert!(BigInt::new("f".repeat((256 << 10) + 1)).is_err());
}

#[test]
fn arrays_are_read_in_either_byte_order() {
    let read = |dtype: &str, bytes: &[u8]| {
        let dtype = Dtype::new(dtype).expect("a dtype");
        let view = NdarrayView {
            dtype: &dtype,
            shape: &[],
            bytes,
        };
        view.integers()
    };
    assert_eq!(read(">i2", &[0xff, 0xfe, 0, 2]), Some(vec![-2, 2]));
    assert_eq!(read("<u4", &[1, 0, 0, 0]), Some(vec![1]));
    assert_eq!(read("|b1", &[1, 0]), Some(vec![1, 0]));
    assert_eq!(read("<f8", &[0; 8]), None);
}

#[test]
fn json_buffer_is_parsed_within_limits() {
    let folded = read(r#"{"type":"json","buffer":0}"#);
    let unfold = |text: &str| {
        let blob = blob(&[text.len() as u64]);
        let buffers = blob.buffers(text.as_bytes()).expect("all bytes");
        folded.unfolded(&buffers).map(std::borrow::Cow::into_owned)
    };
    assert_eq!(unfold("[1,2]"), Some(Value::from(vec![1, 2])));
    assert_eq!(unfold("[1,"), None);
    let deep = format!("{}{}", "[".repeat(97), "]".repeat(97));
    assert_eq!(unfold(&deep), None);
    assert_eq!(unfold("{\"a\":1}"), None);
    assert_eq!(folded.unfolded(&Buffers::default()), None);
}

#[test]
fn display_matches_python_repr() {
    let shown = [
        ("null", "None"),
        ("[true,-3]", "[True, -3]"),
        (
            "[1.0,0.0001,1e16,1.5e-5,-0.0,1e300]",
            "[1.0, 0.0001, 1e+16, 1.5e-05, -0.0, 1e+300]",
        ),
        (r#"{"type":"float","text":"nan"}"#, "nan"),
        (r#""it's""#, r#""it's""#),
        (r#""it's \"""#, r#"'it\'s "'"#),
        (r#""\\\n\u001b[31mü\u202e""#, r"'\\\n\x1b[31mü\u202e'"),
        (EVERY_TYPE[12], "(1, ())"),
        (r#"{"type":"tuple","items":[1]}"#, "(1,)"),
        (r#"{"type":"set","items":[]}"#, "set()"),
        (EVERY_TYPE[15], "{1: 'one', None: []}"),
        (EVERY_TYPE[6], "-571849066284996100096"),
        (EVERY_TYPE[18], "Decimal('1.10')"),
        (EVERY_TYPE[27], "Point(x=1.0)"),
        (EVERY_TYPE[33], "<DataFrame of 1 columns, 2 rows>"),
        (r#"{"type":"opaque","repr":"<a\u001b[2J>"}"#, r"<a\x1b[2J>"),
    ];
    for (text, expected) in shown {
        assert_eq!(read(text).to_string(), expected);
    }
}

#[test]
fn large_values_are_displayed_truncated() {
    let row = Value::from(vec![Value::from("x".repeat(1000)); 100]);
    let wide = Value::List(vec![row; 60]);
    let mut deep = Value::None;
    for _ in 0..90 {
        deep = Value::List(vec![deep]);
    }
    let number = BigInt::new("f".repeat(1 << 18)).expect("digits").into();
    let array = Ndarray {
        dtype: Dtype::new("|u1").expect("a dtype"),
        shape: vec![1; 10_000],
        buffer: 0,
    };
    let array = TypedValue::Ndarray(array).into();
    for value in [wide, deep, number, array] {
        let shown = value.to_string();
        assert!(
            shown.len() < 10_000 && shown.contains("..."),
            "{}",
            shown.len()
        );
    }
}
