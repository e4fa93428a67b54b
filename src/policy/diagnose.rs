//! Turns an error of the TOML reader into one that names the key and the remedy.
//!
//! serde stops at the first problem and reports it in its own terms. This module reads the text
//! again, as a tree with positions, and compares it with the JSON Schema of the file.

use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Error};

use super::error::{PolicyError, PolicyProblem};
use super::layer::Source;
use super::schema;
use super::suggest::closest;

/// A key that no policy file accepts.
struct UnknownKey {
    path: Vec<String>,
    span: Range<usize>,
}

/// Explains why `text` is not a policy file.
pub(super) fn diagnose(error: &Error, text: &str, source: &Source) -> PolicyError {
    let offset = error.span().map_or(0, |span| span.start);
    let Ok(document) = DeTable::parse(text) else {
        let message = error.message().to_owned();
        return PolicyError::of_file(source.origin(offset), PolicyProblem::Syntax { message });
    };
    let schema = schema();
    if let Some(unknown) = first_unknown_key(document.get_ref(), &schema, &[]) {
        let hint = hint(&unknown.path, &schema);
        return PolicyError::new(
            source.origin(unknown.span.start),
            unknown.path.join("."),
            PolicyProblem::UnknownKey { hint },
        );
    }
    let problem = PolicyProblem::WrongValue {
        message: in_plain_words(error.message()),
    };
    match key_at(document.get_ref(), offset) {
        Some(key) => PolicyError::new(source.origin(offset), key, problem),
        None => PolicyError::of_file(source.origin(offset), problem),
    }
}

/// Rewrites serde's "invalid type: X, expected Y" as an instruction, with TOML's names for its
/// types.
fn in_plain_words(message: &str) -> String {
    let types = message.strip_prefix("invalid type: ");
    let Some((found, expected)) = types.and_then(|types| types.split_once(", expected ")) else {
        return message.to_owned();
    };
    let expected = match expected {
        "a boolean" => "true or false without quotes",
        "a string" => "a text in quotes",
        "a map" => "a table, such as { NAME = \"value\" }",
        other => other,
    };
    let found = match found {
        "sequence" => "a list",
        "map" => "a table",
        other => other,
    };
    format!("{found} is the wrong type: write {expected}")
}

/// The first unknown key in the text.
fn first_unknown_key(table: &DeTable, schema: &Value, path: &[String]) -> Option<UnknownKey> {
    let known = schema::names(schema)?;
    let unknown_within = |(key, value): (&Spanned<DeString>, &Spanned<DeValue>)| {
        let name = key.get_ref().as_ref();
        let path = [path, &[name.to_owned()]].concat();
        if !known.contains(&name) {
            let span = key.span();
            return Some(UnknownKey { path, span });
        }
        let inner = value.get_ref().as_table()?;
        first_unknown_key(inner, schema.get("properties")?.get(name)?, &path)
    };
    table
        .iter()
        .filter_map(unknown_within)
        .min_by_key(|unknown| unknown.span.start)
}

/// What to write in place of an unknown key.
fn hint(path: &[String], schema: &Value) -> String {
    let Some((name, table)) = path.split_last() else {
        return String::new();
    };
    let siblings = schema::value_at(schema, table)
        .and_then(schema::names)
        .unwrap_or_default();
    let qualified = |table: &[String], name: &str| [table, &[name.to_owned()]].concat().join(".");
    if let Some(near) = closest(name, siblings.iter().copied()) {
        return format!("did you mean `{}`?", qualified(table, near));
    }
    for section in schema::names(schema).unwrap_or_default() {
        let section = [section.to_owned()];
        let keys = schema::value_at(schema, &section).and_then(schema::names);
        if keys.is_some_and(|keys| keys.contains(&name.as_str())) {
            return format!("did you mean `{}`?", qualified(&section, name));
        }
    }
    match table {
        [] => format!("a policy has {}", siblings.join(", ")),
        _ => format!("[{}] has {}", table.join("."), siblings.join(", ")),
    }
}

/// The dotted key whose value holds the byte at `offset`.
fn key_at(table: &DeTable, offset: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let inner = value.get_ref().as_table();
        if let Some(deeper) = inner.and_then(|inner| key_at(inner, offset)) {
            return Some(format!("{}.{deeper}", key.get_ref()));
        }
        // The span of a [table] is its header; the span of a dotted key is empty.
        let holds = value.span().contains(&offset) || key.span().contains(&offset);
        holds.then(|| key.get_ref().to_string())
    })
}
