//! An entry of `network.allow` in a policy file: a host, or a table with a host and conditions.

use sandfork_egress::rules::{Credential, Rule, RuleText};
use serde_json::{Value as Json, json};
use toml::de::{DeArray, DeTable, DeValue};

use super::read::wrong_type;
use super::secret::Template;
use super::suggest::closest;

/// The keys of an entry, with what each takes.
const KEYS: [(&str, &str); 7] = [
    (
        "credential",
        "a table, such as { header = \"Authorization\", value = \"Bearer ${TOKEN}\" }",
    ),
    (
        "host",
        "a name or an address in quotes, such as \"api.github.com\"",
    ),
    ("methods", "a list, such as [\"GET\", \"HEAD\"]"),
    ("paths", "a list, such as [\"/repos/*\"]"),
    ("ports", "a list of numbers, such as [443]"),
    ("private", "true or false without quotes"),
    ("raw", "true or false without quotes"),
];

/// The entry in its canonical form, or why it is refused.
pub(super) fn read(value: &DeValue) -> Result<String, String> {
    let text = match value {
        DeValue::String(host) => RuleText {
            host: host.to_string(),
            ..RuleText::default()
        },
        DeValue::Table(table) => entry(table)?,
        other => return Err(wrong_type(other, KEYS[1].1)),
    };
    if let Some(Credential { value, .. }) = &text.credential {
        value.parse::<Template>()?;
    }
    let rule = Rule::try_from(text).map_err(|error| error.to_string())?;
    Ok(rule.to_string())
}

fn entry(table: &DeTable) -> Result<RuleText, String> {
    let mut text = RuleText::default();
    for (name, value) in table {
        match (&**name.get_ref(), value.get_ref()) {
            ("host", DeValue::String(host)) => text.host = host.to_string(),
            ("ports", DeValue::Array(ports)) => {
                text.ports = Some(
                    ports
                        .iter()
                        .map(|port| number(port.get_ref()))
                        .collect::<Result<_, _>>()?,
                );
            }
            ("methods", DeValue::Array(methods)) => text.methods = texts(methods)?,
            ("paths", DeValue::Array(paths)) => text.paths = texts(paths)?,
            ("credential", DeValue::Table(credential)) => {
                text.credential = Some(self::credential(credential)?);
            }
            ("private", DeValue::Boolean(private)) => text.private = *private,
            ("raw", DeValue::Boolean(raw)) => text.raw = *raw,
            (name, other) => {
                let known = KEYS.iter().find(|(known, _)| *known == name);
                return Err(match known {
                    Some((_, expected)) => format!("`{name}`: {}", wrong_type(other, expected)),
                    None => unknown(name, &KEYS.map(|(key, _)| key)),
                });
            }
        }
    }
    if text.host.is_empty() {
        return Err("an entry needs a host: write { host = \"api.github.com\" }".to_owned());
    }
    Ok(text)
}

fn unknown(name: &str, keys: &[&str]) -> String {
    match closest(name, keys.iter().copied()) {
        Some(near) => format!("`{name}` is not a key of an entry: did you mean `{near}`?"),
        None => format!(
            "`{name}` is not a key of an entry, which has {}",
            keys.join(", ")
        ),
    }
}

fn credential(table: &DeTable) -> Result<Credential, String> {
    let text = |key: &str| match table.get(key).map(toml::Spanned::get_ref) {
        Some(DeValue::String(text)) => Ok(text.to_string()),
        _ => Err(format!("`credential` needs `{key}`: write {}", KEYS[0].1)),
    };
    let others = table.keys().map(|name| &**name.get_ref());
    if let Some(other) = others
        .into_iter()
        .find(|name| !["header", "value"].contains(name))
    {
        return Err(unknown(other, &["header", "value"]));
    }
    Ok(Credential {
        header: text("header")?,
        value: text("value")?,
    })
}

fn texts(list: &DeArray) -> Result<Vec<String>, String> {
    let text = |item: &toml::Spanned<DeValue>| match item.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        other => Err(wrong_type(other, "a text in quotes")),
    };
    list.iter().map(text).collect()
}

fn number(value: &DeValue) -> Result<u16, String> {
    let number = match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
        other => {
            return Err(format!(
                "`ports`: {}",
                wrong_type(other, "a number, such as 443")
            ));
        }
    };
    // Zero is refused with the other rules of ports.
    Ok(number
        .and_then(|number| u16::try_from(number).ok())
        .unwrap_or(0))
}

/// The host of an entry in its canonical form.
pub(super) fn host_of(item: &str) -> &str {
    let host = item.strip_prefix("{\"host\":\"");
    host.and_then(|rest| rest.split('"').next()).unwrap_or(item)
}

/// An entry in its canonical form as a table, if it has conditions.
pub(super) fn table_of(item: &str) -> Option<Json> {
    item.starts_with("{\"host\":")
        .then(|| serde_json::from_str(item).ok())?
}

/// The JSON Schema of an entry.
pub(super) fn schema() -> Json {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": text });
    let ports = json!({ "type": "integer", "minimum": 1, "maximum": 65535 });
    json!({
        "oneOf": [text, {
            "type": "object",
            "properties": {
                "host": text,
                "ports": { "type": "array", "items": ports, "minItems": 1 },
                "methods": texts,
                "paths": texts,
                "credential": {
                    "type": "object",
                    "properties": { "header": text, "value": text },
                    "required": ["header", "value"],
                    "additionalProperties": false,
                },
                "private": { "type": "boolean" },
                "raw": { "type": "boolean" },
            },
            "required": ["host"],
            "additionalProperties": false,
        }],
    })
}
