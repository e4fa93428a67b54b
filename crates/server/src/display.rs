//! What a cell showed, as JSON: text as text, bytes as base64, as notebooks have it.
//!
//! A guest chooses how much that is, and all of it is borrowed from the report until the answer is written. JSON of a guest
//! is checked and embedded as it is: its values would take a hundred times the memory of its text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use sandfork::Outcome;
use sandfork::session::{CellReport, DisplayOutput};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// One representation of a displayed value.
#[derive(Debug)]
pub enum Form<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// JSON, on one line.
    Json(Cow<'a, RawValue>),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl Serialize for Form<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Json(json) => json.serialize(serializer),
            Self::Bytes(bytes) => serializer.collect_str(&Base64Display::new(bytes, &STANDARD)),
        }
    }
}

/// Representations by media type.
pub type Forms<'a> = BTreeMap<&'a str, Form<'a>>;

/// The representations of a displayed value.
fn representations(display: &DisplayOutput) -> Forms<'_> {
    let buffers = display.buffers();
    let mut all = Forms::new();
    for (kind, value) in display.data() {
        let form = match (value.text(&buffers), value.bytes(&buffers)) {
            (Some(text), _) => form(kind, text),
            (None, Some(bytes)) => Form::Bytes(bytes),
            (None, None) => continue,
        };
        all.insert(kind, form);
    }
    all
}

/// One thing that a cell showed.
#[derive(Debug, Default, Serialize)]
pub struct Shown<'a> {
    /// It is the value of the last expression.
    #[serde(rename = "main")]
    pub is_main: bool,
    /// Its representations.
    pub data: Forms<'a>,
}

/// What the cell displayed.
pub fn shown(report: &CellReport) -> Vec<Shown<'_>> {
    let shown = report.shown().iter().map(|display| Shown {
        is_main: display.is_main(),
        data: representations(display),
    });
    shown.collect()
}

/// The same, and the text of its value, as a notebook shows them.
pub fn displays(report: &CellReport) -> Vec<Shown<'_>> {
    let mut displays = shown(report);
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
            .or_insert(Form::Text(text));
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

/// The text of the value of a cell with `ResultMode::Notebook`, which is its `repr` in the guest: as Python's prompt shows it.
/// Very long ones are shortened.
pub fn value_text(report: &CellReport) -> Option<Cow<'_, str>> {
    let main = report.shown().iter().find(|display| display.is_main());
    let own = main.and_then(|display| display.data().get("text/plain")?.text(&display.buffers()));
    let value = report
        .outcome()
        .value()
        .filter(|value| **value != ().into());
    own.or_else(|| value.map(|value| value.to_string().into()))
}

/// Text of a guest: as JSON, if it is some.
fn form<'a>(kind: &str, text: Cow<'a, str>) -> Form<'a> {
    // Those of E2B's clients are objects.
    let is_json = kind == "application/json" || kind.ends_with("+json") || kind.starts_with("e2b/");
    let read = if is_json { json(&text) } else { None };
    match read {
        Some(json) => Form::Json(json),
        None => Form::Text(text),
    }
}

/// JSON on one line, since answers have lines. A line ends only between values: in a string it is escaped.
fn json<'a>(text: &Cow<'a, str>) -> Option<Cow<'a, RawValue>> {
    const ENDS: [char; 2] = ['\n', '\r'];
    let Bounded = serde_json::from_str(text).ok()?;
    match text {
        Cow::Borrowed(line) if !line.contains(ENDS) => {
            let line: &RawValue = serde_json::from_str(line).ok()?;
            Some(Cow::Borrowed(line))
        }
        lines => {
            let line = RawValue::from_string(lines.replace(ENDS, " ")).ok()?;
            Some(Cow::Owned(line))
        }
    }
}

/// Any JSON that clients can read, of which nothing is kept. [`serde::de::IgnoredAny`] has no bound of nesting, and lets
/// through what is no text and no number.
struct Bounded;

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Bounded {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self, A::Error> {
        while pairs.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_embedded_on_one_line_and_what_is_none_is_text() {
        let written = |kind, text: &str| {
            let form = form(kind, Cow::Borrowed(text));
            serde_json::to_string(&form).expect("it is written")
        };
        let text = "{\"a\":\r\n [1, \"\\n\", 12345678901234567890123]}";
        let line = r#"{"a":   [1, "\n", 12345678901234567890123]}"#;
        assert_eq!(written("application/json", text), line);
        assert_eq!(written("e2b/chart", "[]"), "[]");
        assert_eq!(written("text/plain", "[]"), r#""[]""#);
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        for no_json in ["{", "1 1", "\"\\ud800\"", "1e999", "", &deep] {
            let quoted = serde_json::to_string(no_json).expect("it is written");
            assert_eq!(written("application/json", no_json), quoted);
        }
        let bytes = serde_json::to_string(&Form::Bytes(b"abcd")).expect("it is written");
        assert_eq!(bytes, r#""YWJjZA==""#);
    }
}
