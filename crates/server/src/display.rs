//! Serializes the displayed values of a cell like Jupyter: text as text, bytes as base64.
//!
//! A guest decides how much it displays. Everything is borrowed from the report until the response is written. A
//! guest's JSON is validated and embedded verbatim, because parsed values would take a hundred times the memory of
//! their text.

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

/// A displayed value in one media type.
#[derive(Debug)]
pub enum MimeData<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// JSON, on a single line.
    Json(Cow<'a, RawValue>),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl Serialize for MimeData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Json(json) => json.serialize(serializer),
            Self::Bytes(bytes) => serializer.collect_str(&Base64Display::new(bytes, &STANDARD)),
        }
    }
}

/// The representations of a displayed value by media type.
pub type MimeBundle<'a> = BTreeMap<&'a str, MimeData<'a>>;

/// Returns the representations of a displayed value.
fn representations(display: &DisplayOutput) -> MimeBundle<'_> {
    let buffers = display.buffers();
    let mut all = MimeBundle::new();
    for (kind, value) in display.data() {
        let data = match (value.text(&buffers), value.bytes(&buffers)) {
            (Some(text), _) => mime_data(kind, text),
            (None, Some(bytes)) => MimeData::Bytes(bytes),
            (None, None) => continue,
        };
        all.insert(kind, data);
    }
    all
}

/// One displayed value of a cell.
#[derive(Debug, Default, Serialize)]
pub struct Displayed<'a> {
    /// Whether this is the value of the last expression.
    #[serde(rename = "main")]
    pub is_main: bool,
    /// The representations of the value.
    pub data: MimeBundle<'a>,
}

/// Returns the displayed values of a cell.
pub fn displayed(report: &CellReport) -> Vec<Displayed<'_>> {
    let displayed = report.shown().iter().map(|display| Displayed {
        is_main: display.is_main(),
        data: representations(display),
    });
    displayed.collect()
}

/// Returns the displayed values of a cell, including the text of its last expression, like a notebook.
pub fn notebook_displays(report: &CellReport) -> Vec<Displayed<'_>> {
    let mut displays = displayed(report);
    if let Some(text) = value_text(report) {
        let main = displays.iter().position(|displayed| displayed.is_main);
        let main = main.unwrap_or_else(|| {
            displays.push(Displayed::default());
            displays.len() - 1
        });
        displays[main].is_main = true;
        displays[main]
            .data
            .entry("text/plain")
            .or_insert(MimeData::Text(text));
    }
    displays
}

/// The error of a cell.
#[derive(Debug)]
pub struct CellError {
    /// The class of the exception, or the status of the cell.
    pub name: String,
    /// The message of the exception, or the limit that was reached.
    pub value: String,
    /// The Python traceback; empty if there was no exception.
    pub traceback: String,
}

/// Returns the error of a cell, or `None` if it succeeded.
pub fn error(outcome: &Outcome) -> Option<CellError> {
    let (raised, status) = (outcome.error(), outcome.status());
    let (name, value) = match (outcome.limit(), raised) {
        // At a limit, the cell's exception is only the interrupt.
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

/// Returns the text of a cell's value with `ResultMode::Notebook`: its `repr`, computed in the guest as Python's
/// prompt does. Very long texts are shortened.
pub fn value_text(report: &CellReport) -> Option<Cow<'_, str>> {
    let main = report.shown().iter().find(|display| display.is_main());
    let own = main.and_then(|display| display.data().get("text/plain")?.text(&display.buffers()));
    let value = report
        .outcome()
        .value()
        .filter(|value| **value != ().into());
    own.or_else(|| value.map(|value| value.to_string().into()))
}

/// Returns a guest's text as JSON if its media type says so and it is valid, otherwise as text.
fn mime_data<'a>(kind: &str, text: Cow<'a, str>) -> MimeData<'a> {
    // E2B's own media types are JSON objects.
    let is_json = kind == "application/json" || kind.ends_with("+json") || kind.starts_with("e2b/");
    let read = if is_json { json(&text) } else { None };
    match read {
        Some(json) => MimeData::Json(json),
        None => MimeData::Text(text),
    }
}

/// Puts JSON on a single line, because responses are line-based. In valid JSON, a literal newline occurs only between
/// values; in strings it is escaped.
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

/// Validates JSON without keeping it. Unlike [`serde::de::IgnoredAny`], it bounds the nesting and rejects invalid
/// strings and numbers.
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
    fn valid_json_is_embedded_and_invalid_json_is_text() {
        let written = |kind, text: &str| {
            let data = mime_data(kind, Cow::Borrowed(text));
            serde_json::to_string(&data).expect("a successful write")
        };
        let text = "{\"a\":\r\n [1, \"\\n\", 12345678901234567890123]}";
        let line = r#"{"a":   [1, "\n", 12345678901234567890123]}"#;
        assert_eq!(written("application/json", text), line);
        assert_eq!(written("e2b/chart", "[]"), "[]");
        assert_eq!(written("text/plain", "[]"), r#""[]""#);
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        for no_json in ["{", "1 1", "\"\\ud800\"", "1e999", "", &deep] {
            let quoted = serde_json::to_string(no_json).expect("a successful write");
            assert_eq!(written("application/json", no_json), quoted);
        }
        let bytes = serde_json::to_string(&MimeData::Bytes(b"abcd")).expect("a successful write");
        assert_eq!(bytes, r#""YWJjZA==""#);
    }
}
