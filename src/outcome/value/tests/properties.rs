use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::outcome::value::blob::ALIGNMENT;
use crate::outcome::value::typed::{RangeIndex, Series};
use crate::protocol::{CellResult, Ended, JsonLimits, Reply};

/// Generates values of all shapes, whose buffer numbers fit a message of eight buffers or not.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        Just(Value::Float(f64::NEG_INFINITY)),
        any::<String>().prop_map(Value::from),
        any::<String>().prop_map(Value::opaque),
        (0u32..10).prop_map(|buffer| TypedValue::Bytes(Held { buffer }).into()),
        (any::<(u8, u8)>(), 0u32..10).prop_map(|((width, height), buffer)| {
            let shape = vec![width.into(), height.into()];
            let dtype = Dtype::new("<i8").expect("a dtype");
            TypedValue::Ndarray(Ndarray {
                dtype,
                shape,
                buffer,
            })
            .into()
        }),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(Value::List),
            vec(inner.clone(), 0..8).prop_map(Value::tuple),
            vec((inner.clone(), inner.clone()), 0..8).prop_map(Value::dict),
            vec((any::<String>(), inner.clone()), 0..4).prop_map(|fields| {
                let name = "Point".to_owned();
                TypedValue::Dataclass(Record { name, fields }).into()
            }),
            inner.prop_map(|values| {
                let dtype = "object".to_owned();
                let data = TableColumn {
                    dtype,
                    schema: None,
                    values,
                    mask: None,
                    categories: None,
                    ordered: None,
                };
                let index = RangeIndex {
                    start: 0,
                    stop: 1,
                    step: 1,
                    name: Value::None,
                };
                let index = TableIndex::RangeIndex(index);
                TypedValue::Series(Series {
                    of: None,
                    name: Value::None,
                    index,
                    data,
                })
                .into()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn values_round_trip(value in values()) {
        let text = serde_json::to_vec(&value).expect("values are written");
        let back: Value = JsonLimits::FROM_WORKER.parse(&text).expect("they are read");
        prop_assert_eq!(&back, &value);
        // The value also round-trips in a message.
        let result = CellResult::new(1, Ended::Ok(Some(value.clone())));
        let text = serde_json::to_vec(&Reply::Result(result.clone())).expect("it is written");
        let read = JsonLimits::FROM_WORKER.tagged::<String>(&text).expect("it has a kind");
        prop_assert_eq!(read.kind.as_str(), "result");
        let reply = Reply::Result(read.members().expect("it is read"));
        let wanted = if value.is_none() { None } else { Some(value.clone()) };
        let ended = Ended::Ok(wanted);
        prop_assert_eq!(reply, Reply::Result(CellResult { ended, ..result }));
        let _ = value.to_string();
        let _ = check(&value, Some(&blob(&[8; 8])));
    }

    #[test]
    fn floats_keep_every_bit(bits in any::<u64>()) {
        let float = f64::from_bits(bits);
        let back = read(&written(&Value::Float(float))).as_f64().expect("a float");
        prop_assert!(back.to_bits() == bits || (float.is_nan() && back.is_nan()));
    }

    #[test]
    fn buffers_are_found_by_the_blob(parts in vec(vec(any::<u8>(), 0..200), 1..6)) {
        let mut attached = Attachments::default();
        let values: Vec<Value> = parts.iter().map(|part| attached.bytes(part.as_slice())).collect();
        let blob = attached.blob().expect("they fit").expect("there are some");
        let bytes = attached.concatenated();
        let buffers = blob.buffers(&bytes).expect("all bytes");
        for (value, part) in values.iter().zip(&parts) {
            prop_assert_eq!(value.bytes(&buffers), Some(part.as_slice()));
        }
        prop_assert!(blob.ranges().all(|range| range.start % ALIGNMENT == 0));
    }

    #[test]
    fn check_never_panics(
        shape in vec(any::<u64>(), 0..5), size in any::<(u32, u32)>(), length in 0u64..1000,
    ) {
        let blob = blob(&[length]);
        let array = Ndarray { dtype: Dtype::new("<U9").expect("a dtype"), shape, buffer: 0 };
        let _ = check(&TypedValue::Ndarray(array).into(), Some(&blob));
        let image = Image { mode: ImageMode::Rgba, size, buffer: 0 };
        let _ = check(&TypedValue::Image(image).into(), Some(&blob));
    }
}
