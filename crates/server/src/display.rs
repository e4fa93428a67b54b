//! What a cell showed, as JSON: text as text, bytes as base64, as notebooks have it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandfork::Outcome;
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

/// One thing that a cell showed.
#[derive(Debug, Default)]
pub struct Shown {
    /// It is the value of the last expression.
    pub is_main: bool,
    /// Its representations.
    pub data: Map<String, Value>,
}

/// What the cell displayed, and the text of its value, as a notebook shows them.
pub fn displays(report: &CellReport) -> Vec<Shown> {
    let mut displays: Vec<_> = report
        .shown()
        .iter()
        .map(|display| Shown {
            is_main: display.is_main(),
            data: representations(display),
        })
        .collect();
    if let Some(text) = value_text(report) {
        let main = displays.iter().position(|shown| shown.is_main);
        let main = main.unwrap_or_else(|| {
            displays.push(Shown::default());
            displays.len() - 1
        });
        displays[main].is_main = true;
        displays[main]
            .data
            .entry("text/plain")
            .or_insert(text.into());
    }
    displays
}

/// Why a cell did not end well.
#[derive(Debug)]
pub struct CellError {
    /// The class of the exception, or the status of the cell.
    pub name: String,
    /// Its message, or the limit that was reached.
    pub value: String,
    /// What Python would print, if there was an exception.
    pub traceback: String,
}

/// The error of a cell that did not end well.
pub fn error(outcome: &Outcome) -> Option<CellError> {
    let (raised, status) = (outcome.error(), outcome.status());
    let (name, value) = match (outcome.limit(), raised) {
        // What it raises then is the interrupt.
        (Some(hit), _) => (
            status.to_string(),
            format!("the cell reached {}", hit.name.key()),
        ),
        (None, Some(error)) => (error.name.clone(), error.message.clone()),
        (None, None) if outcome.is_ok() => return None,
        (None, None) => (
            status.to_string(),
            format!("the cell ended with `{status}`"),
        ),
    };
    let traceback = raised.map_or_else(String::new, |error| error.traceback.clone());
    Some(CellError {
        name,
        value,
        traceback,
    })
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
    // Those of E2B's clients are objects.
    let is_json = kind == "application/json" || kind.ends_with("+json") || kind.starts_with("e2b/");
    let read = if is_json {
        serde_json::from_str(&text).ok()
    } else {
        None
    };
    read.unwrap_or(Value::String(text))
}
