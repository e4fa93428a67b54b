//! What a cell showed, as JSON: text as text, bytes as base64, as notebooks have it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandfork::session::{CellReport, DisplayOutput};
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

/// The text of a cell's value, as Python's prompt shows it. Very long ones are shortened.
pub fn value_text(report: &CellReport) -> Option<String> {
    let main = report.shown().iter().find(|display| display.is_main());
    let own = main.and_then(|display| {
        let text = representations(display).remove("text/plain")?;
        text.as_str().map(str::to_owned)
    });
    let value = report
        .outcome()
        .value()
        .filter(|value| **value != ().into());
    own.or_else(|| value.map(ToString::to_string))
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
