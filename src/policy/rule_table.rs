//! Parses an entry of `network.allow` in a policy file: a host, or a table with a host and conditions.

use sandfork_egress::rules::{Credential, Rule, RuleText};
use serde_json::{Value as Json, json};
use toml::de::{DeArray, DeTable, DeValue};

use super::read::wrong_type;
use super::secret::Template;
use super::suggest::closest;

/// The keys of an entry, and the values that each accepts.
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

/// Parses an entry and returns it in canonical form.
///
/// # Errors
/// If the entry is invalid. Returns each problem with the entry's host.
pub(super) fn read(value: &DeValue) -> Result<String, Vec<String>> {
    let (text, problems) = match value {
        DeValue::String(host) => {
            let host = host.to_string();
            let text = RuleText {
                host,
                ..RuleText::default()
            };
            (text, Vec::new())
        }
        DeValue::Table(table) => entry(table),
        other => return Err(vec![wrong_type(other, KEYS[1].1)]),
    };
    let host = text.host.clone();
    let rule = rule(text, problems);
    rule.map(|rule| rule.to_string()).map_err(|problems| {
        let of_entry = |problem: String| match format!("\"{host}\"") {
            _ if host.is_empty() => problem,
            quoted if problem.starts_with(&quoted) => problem,
            quoted => format!("{quoted}: {problem}"),
        };
        problems.into_iter().map(of_entry).collect()
    })
}

/// Creates the rule of an entry, in whose table these problems were found.
fn rule(mut text: RuleText, mut problems: Vec<String>) -> Result<Rule, Vec<String>> {
    if let Some(Credential { value, .. }) = &text.credential {
        problems.extend(value.parse::<Template>().err());
    }
    if text.host.is_empty() && !problems.is_empty() {
        // The missing host is reported already. A placeholder lets `Rule::new` find the other errors.
        "host.example".clone_into(&mut text.host);
    }
    match Rule::new(text) {
        Ok(rule) if problems.is_empty() => Ok(rule),
        Ok(_) => Err(problems),
        Err(errors) => {
            problems.extend(errors.iter().map(ToString::to_string));
            Err(problems)
        }
    }
}

/// Parses the keys of a table, and returns the problems of those that are invalid.
fn entry(table: &DeTable) -> (RuleText, Vec<String>) {
    let (mut text, mut problems) = (RuleText::default(), Vec::new());
    for (name, value) in table {
        let read = match (&**name.get_ref(), value.get_ref()) {
            ("host", DeValue::String(host)) => {
                text.host = host.to_string();
                Ok(())
            }
            ("ports", DeValue::Array(ports)) => {
                let ports = ports.iter().map(|port| number(port.get_ref()));
                let ports = ports.collect::<Result<_, _>>();
                ports.map(|ports| text.ports = Some(ports))
            }
            ("methods", DeValue::Array(methods)) => {
                texts("methods", methods).map(|methods| text.methods = methods)
            }
            ("paths", DeValue::Array(paths)) => {
                texts("paths", paths).map(|paths| text.paths = paths)
            }
            ("credential", DeValue::Table(credential)) => {
                self::credential(credential).map(|credential| text.credential = Some(credential))
            }
            ("private", DeValue::Boolean(private)) => {
                text.private = *private;
                Ok(())
            }
            ("raw", DeValue::Boolean(raw)) => {
                text.raw = *raw;
                Ok(())
            }
            (name, other) => {
                // An invalid `private` counts as true, so that a private address is not reported as a second problem.
                text.private |= name == "private";
                let known = KEYS.iter().find(|(known, _)| *known == name);
                Err(match known {
                    Some((_, expected)) => format!("`{name}`: {}", wrong_type(other, expected)),
                    None => unknown(name, &KEYS.map(|(key, _)| key)),
                })
            }
        };
        problems.extend(read.err());
    }
    // An unknown key may be a misspelt `host`, and is reported already.
    let is_meant = |name: &str| name == "host" || KEYS.iter().all(|(known, _)| *known != name);
    if !table.keys().any(|name| is_meant(name.get_ref())) {
        problems.push("an entry needs a host: write { host = \"api.github.com\" }".to_owned());
    }
    (text, problems)
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

/// Parses a list of strings, and rejects an empty list: a reader would expect it to allow nothing, but a rule without
/// entries allows everything.
fn texts(key: &str, list: &DeArray) -> Result<Vec<String>, String> {
    if list.is_empty() {
        return Err(format!(
            "`{key}` is empty, which would allow no request: name some, or leave `{key}` out to allow all"
        ));
    }
    let text = |item: &toml::Spanned<DeValue>| match item.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        other => Err(format!(
            "`{key}`: {}",
            wrong_type(other, "a text in quotes")
        )),
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
    // An invalid port becomes 0, which `Rule::new` rejects.
    Ok(number
        .and_then(|number| u16::try_from(number).ok())
        .unwrap_or(0))
}

/// Returns the host of an entry in canonical form.
pub(super) fn host_of(item: &str) -> &str {
    let host = item.strip_prefix("{\"host\":\"");
    host.and_then(|rest| rest.split('"').next()).unwrap_or(item)
}

/// Converts an entry in canonical form to a table, if it has conditions.
pub(super) fn table_of(item: &str) -> Option<Json> {
    item.starts_with("{\"host\":")
        .then(|| serde_json::from_str(item).ok())?
}

/// Returns the JSON Schema of an entry.
pub(super) fn schema() -> Json {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": text, "minItems": 1 });
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
