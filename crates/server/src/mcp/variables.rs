//! Converts JSON values of a call into Python variables.

use rmcp::model::JsonObject;
use sandfork::session::{Attachments, OutgoingValue};
use serde_json::{Number, Value};

use crate::failure::Failure;

/// The length from which a list of numbers is sent as an array.
const ARRAY_THRESHOLD: usize = 64;

/// Converts JSON values into Python variables.
///
/// # Errors
/// Returns an error if a number has lost digits.
pub fn variables(of: JsonObject) -> Result<Vec<(String, OutgoingValue)>, Failure> {
    of.into_iter()
        .map(|(name, value)| {
            let mut attachments = Attachments::default();
            let value = value_of(value, &mut attachments).map_err(|problem| {
                Failure::Request(format!("global_variables: `{name}` {problem}"))
            })?;
            Ok((name, OutgoingValue { value, attachments }))
        })
        .collect()
}

/// Explains why a variable was not set.
pub fn set_failure(name: &str, error: sandfork::Error) -> Failure {
    match error.into() {
        Failure::Request(_) => Failure::Request(format!(
            "global_variables: `{name}` is too large or nested too deeply: only strings and lists of numbers may be larger. \
             Pass it as a JSON string, or write it to a file of a session (`open_session`, `write_file`)"
        )),
        failure => failure,
    }
}

/// Converts a JSON value.
fn value_of(
    value: Value,
    attachments: &mut Attachments<'static>,
) -> Result<sandfork::Value, &'static str> {
    Ok(match value {
        Value::Null => ().into(),
        Value::Bool(truth) => truth.into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            _ => float(&number)?.into(),
        },
        Value::String(text) => attachments.text(text),
        Value::Array(items) if items.len() >= ARRAY_THRESHOLD => list(items, attachments)?,
        Value::Array(items) => items_of(items, attachments)?,
        Value::Object(pairs) => {
            let pairs = pairs
                .into_iter()
                .map(|(name, value)| value_of(value, attachments).map(|value| (name, value)));
            sandfork::Value::dict(pairs.collect::<Result<Vec<_>, _>>()?)
        }
    })
}

fn items_of(
    items: Vec<Value>,
    attachments: &mut Attachments<'static>,
) -> Result<sandfork::Value, &'static str> {
    let items = items
        .into_iter()
        .map(|item| value_of(item, attachments))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(items.into())
}

/// Converts a long list. Lists of integers or of floats may be as long as a message.
fn list(
    items: Vec<Value>,
    attachments: &mut Attachments<'static>,
) -> Result<sandfork::Value, &'static str> {
    let integers: Option<Vec<_>> = items.iter().map(Value::as_i64).collect();
    if let Some(integers) = integers {
        return Ok(attachments.integers(&integers));
    }
    let floats = items.iter().map(|item| match item {
        Value::Number(number) if number.is_f64() => Some(float(number)),
        _ => None,
    });
    match floats.collect::<Option<Result<Vec<_>, _>>>() {
        Some(floats) => Ok(attachments.floats(&floats?)),
        None => items_of(items, attachments),
    }
}

/// Converts a number that is not a 64-bit integer. Larger integers were parsed as floats and have lost digits.
fn float(number: &Number) -> Result<f64, &'static str> {
    /// Every float from 2^63 on is an integer.
    const LOSES_DIGITS: f64 = 9_223_372_036_854_775_808.0;
    let float = number.as_f64().unwrap_or(f64::NAN);
    if float.abs() < LOSES_DIGITS {
        return Ok(float);
    }
    Err(
        "has a number that may have lost digits: pass numbers beyond 64 bits as strings, and convert them with `int` or \
         `float`",
    )
}
