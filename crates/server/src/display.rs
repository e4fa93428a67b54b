//! What a cell showed, as JSON: text as text, bytes as base64, as notebooks have it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandfork::session::DisplayOutput;
use serde_json::{Map, Value};

/// The representations of a displayed value by media type.
pub fn representations(display: &DisplayOutput) -> Map<String, Value> {
    let buffers = display.buffers();
    let mut all = Map::new();
    for (kind, value) in display.data() {
        let text = match (value.text(&buffers), value.bytes(&buffers)) {
            (Some(text), _) => text.into_owned(),
            (None, Some(bytes)) => STANDARD.encode(bytes),
            (None, None) => continue,
        };
        all.insert(kind.clone(), json_of(kind, text));
    }
    all
}

/// JSON of a guest as JSON, if it is some.
fn json_of(kind: &str, text: String) -> Value {
    let is_json = kind == "application/json" || kind.ends_with("+json");
    let read = if is_json {
        serde_json::from_str(&text).ok()
    } else {
        None
    };
    read.unwrap_or(Value::String(text))
}
