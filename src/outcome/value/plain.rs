//! Converts values to self-contained JSON: without buffers, and in plain JSON where JSON has the type.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use super::{Buffers, JsonError, JsonLimits, Value};

/// The limits on a tree in a `json` buffer. A tree takes about a hundred bytes of memory for each of its values,
/// and each job of a batch may write one.
const WRITTEN: JsonLimits = JsonLimits {
    values: 1 << 19,
    ..super::access::OF_BUFFER
};

/// The limit on non-finite floats in packed lists. Each becomes a JSON object of about 750 bytes.
const OBJECTS: usize = 1 << 16;

/// Converts a value to JSON that contains the bytes of its buffers, in base64.
///
/// A `dict` with `str` keys becomes an object, and long lists and strings are written out. Values of other
/// types keep their `type`. Each buffer is written only once, because a guest may refer to one buffer from
/// every part of a tree; the size of the buffers therefore bounds the work.
pub fn plain(value: &Value, buffers: &Buffers<'_>) -> Json {
    let taken = vec![false; buffers.len()];
    let mut plain = Plain {
        buffers,
        taken,
        objects: OBJECTS,
        unfolded: false,
    };
    plain.tree(notation(value))
}

fn notation(value: &Value) -> Json {
    serde_json::to_value(value).unwrap_or_default()
}

struct Plain<'a> {
    buffers: &'a Buffers<'a>,
    taken: Vec<bool>,
    /// The number of floats that may still become objects.
    objects: usize,
    /// Whether the current tree comes from a `json` buffer. A `json` buffer inside it is not parsed.
    unfolded: bool,
}

impl<'a> Plain<'a> {
    fn tree(&mut self, tree: Json) -> Json {
        match tree {
            Json::Array(items) => Json::Array(self.items(items)),
            Json::Object(members) => self.object(members),
            scalar => scalar,
        }
    }

    fn items(&mut self, items: Vec<Json>) -> Vec<Json> {
        items.into_iter().map(|item| self.tree(item)).collect()
    }

    fn object(&mut self, mut members: Map<String, Json>) -> Json {
        let kind = members.get("type").and_then(Json::as_str);
        let kind = kind.unwrap_or_default().to_owned();
        if kind == "dict" {
            return self.dict(members);
        }
        let Some(buffer) = members.remove("buffer") else {
            let members = members.into_iter();
            return members
                .map(|(name, part)| (name, self.tree(part)))
                .collect();
        };
        let Some(bytes) = self.take(&buffer) else {
            return opaque("<a missing buffer, or one of another value>");
        };
        match kind.as_str() {
            "text" => Json::from(String::from_utf8_lossy(bytes)),
            "packed" => self.numbers(members, bytes),
            "json" => self.unfold(bytes),
            _ => in_base64(members, bytes),
        }
    }

    /// Writes out the numbers of a packed list. The list stays packed if too many of its numbers would become objects.
    fn numbers(&mut self, members: Map<String, Json>, bytes: &[u8]) -> Json {
        let eights = bytes.as_chunks().0.iter().copied();
        if members.get("format").and_then(Json::as_str) == Some("i8") {
            return eights.map(i64::from_le_bytes).map(Json::from).collect();
        }
        let floats = eights.map(f64::from_le_bytes);
        let objects = floats.clone().filter(|float| !float.is_finite()).count();
        let Some(left) = self.objects.checked_sub(objects) else {
            return in_base64(members, bytes);
        };
        self.objects = left;
        floats.map(|float| notation(&Value::Float(float))).collect()
    }

    fn dict(&mut self, mut members: Map<String, Json>) -> Json {
        let items = match members.remove("items") {
            Some(Json::Array(items)) => self.items(items),
            _ => Vec::new(),
        };
        if !fits_an_object(&items) {
            return json!({"type": "dict", "items": items});
        }
        let pairs = items.into_iter().filter_map(|item| match item {
            Json::Array(pair) => match <[Json; 2]>::try_from(pair) {
                Ok([Json::String(key), value]) => Some((key, value)),
                _ => None,
            },
            _ => None,
        });
        Json::Object(pairs.collect())
    }

    fn unfold(&mut self, text: &[u8]) -> Json {
        if self.unfolded {
            return opaque("<nested `json` buffer>");
        }
        let value = match WRITTEN.parse::<Value>(text) {
            Ok(value) => value,
            Err(JsonError::OverLimit { .. }) => return opaque("<too large to be written as JSON>"),
            Err(JsonError::Invalid(_)) => return opaque("<malformed value>"),
        };
        self.unfolded = true;
        let tree = self.tree(notation(&value));
        self.unfolded = false;
        tree
    }

    /// Returns the bytes of a buffer that no value has taken yet.
    fn take(&mut self, buffer: &Json) -> Option<&'a [u8]> {
        let number = u32::try_from(buffer.as_u64()?).ok()?;
        let taken = self.taken.get_mut(usize::try_from(number).ok()?)?;
        if std::mem::replace(taken, true) {
            return None;
        }
        self.buffers.get(number)
    }
}

/// Returns whether a JSON object can hold these pairs. A key `type` would make the object look like another
/// value, and of two equal keys one would be lost.
fn fits_an_object(items: &[Json]) -> bool {
    let mut keys = HashSet::new();
    items.iter().all(|item| {
        let key = item.get(0).and_then(Json::as_str);
        key.is_some_and(|key| key != "type" && keys.insert(key))
    })
}

fn in_base64(mut members: Map<String, Json>, bytes: &[u8]) -> Json {
    members.insert("base64".to_owned(), STANDARD.encode(bytes).into());
    Json::Object(members)
}

fn opaque(repr: &str) -> Json {
    json!({"type": "opaque", "name": "", "repr": repr})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::outcome::value::{Attachments, Blob, Transport};

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn of(text: &str) -> Json {
        plain(&parsed(text), &Buffers::default())
    }

    fn with(text: &str, parts: &[&[u8]]) -> Json {
        let lengths = parts.iter().map(|part| part.len() as u64).collect();
        let blob = Blob::new(lengths, Transport::Payload).unwrap();
        let mut attachments = Attachments::default();
        for part in parts {
            _ = attachments.bytes(*part);
        }
        let bytes = attachments.concatenated();
        plain(&parsed(text), &blob.buffers(&bytes).unwrap())
    }

    #[test]
    fn only_dicts_with_distinct_str_keys_become_objects() {
        let dict = r#"{"type":"dict","items":[["a",[1,{"type":"dict","items":[]}]],["b",null]]}"#;
        assert_eq!(of(dict), json!({"a": [1, {}], "b": null}));
        for kept in [
            r#"{"type":"dict","items":[[1,"a"]]}"#,
            r#"{"type":"dict","items":[["type","opaque"],["repr","x"]]}"#,
            r#"{"type":"dict","items":[["a",1],["a",2]]}"#,
            r#"{"type":"tuple","items":[1,2.5]}"#,
            r#"{"type":"int","hex":"ffffffffffffffffff"}"#,
            r#"{"type":"float","text":"nan"}"#,
        ] {
            assert_eq!(of(kept), serde_json::from_str::<Json>(kept).unwrap());
        }
    }

    #[test]
    fn buffers_are_inlined() {
        let text = r#"[{"type":"text","buffer":0},{"type":"bytes","buffer":1},
            {"type":"packed","format":"i8","buffer":2},
            {"type":"ndarray","dtype":"<u1","shape":[2],"buffer":3}]"#;
        let numbers: Vec<u8> = [7i64, -1].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!(
            with(text, &["é".as_bytes(), b"\0\xff", &numbers, b"\x01\x02"]),
            json!(["é", {"type": "bytes", "base64": "AP8="}, [7, -1],
                {"type": "ndarray", "dtype": "<u1", "shape": [2], "base64": "AQI="}])
        );
        let json = r#"{"type":"json","buffer":0}"#;
        assert_eq!(
            with(json, &[br#"[1,{"type":"dict","items":[["a",2]]}]"#]),
            json!([1, {"a": 2}])
        );
    }

    #[test]
    fn list_with_too_many_nans_stays_packed() {
        let list = |number| format!(r#"{{"type":"packed","format":"f8","buffer":{number}}}"#);
        let nans = |count| f64::NAN.to_le_bytes().repeat(count);
        let text = format!("[{},{},{}]", list(0), list(1), list(2));
        let (half, finite) = (nans(OBJECTS / 2 + 1), 1f64.to_le_bytes());
        let written = with(&text, &[&half, &half, &finite]);
        assert_eq!(
            written[0][OBJECTS / 2],
            json!({"type": "float", "text": "nan"})
        );
        let packed = json!({"type": "packed", "format": "f8", "base64": STANDARD.encode(&half)});
        assert_eq!(written[1], packed);
        assert_eq!(written[2], json!([1.0]));
    }

    #[test]
    fn repeated_buffer_is_written_once() {
        let tree = format!("[{}]", [r#"{"type":"bytes","buffer":1}"#; 1000].join(","));
        let outer = r#"{"type":"json","buffer":0}"#;
        let written = with(outer, &[tree.as_bytes(), &[0; 1000]]).to_string();
        assert!(written.len() < 100_000, "{}", written.len());
        let itself = with(outer, &[outer.as_bytes()]);
        assert_eq!(itself["type"], "opaque");
        let large = format!("[{}1]", "1,".repeat(1 << 19));
        let refused = with(outer, &[large.as_bytes()]);
        assert_eq!(refused["repr"], "<too large to be written as JSON>");
        let other = with(outer, &[br#"{"type":"json","buffer":1}"#, b"[1]"]);
        assert_eq!(other["repr"], "<nested `json` buffer>");
    }
}
