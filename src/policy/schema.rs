//! Generates the JSON Schema of a policy file.

use serde_json::{Map, Value as Json, json};

use super::keys::{ABOUT, Grammar, Kind, NEVER, SECTIONS, keys_of};
use super::rule_table;
use crate::outcome::Unit;

/// Returns the JSON Schema (draft 2020-12) of a policy file, for editors and other tools.
pub fn schema() -> Json {
    let mut file = table("", ABOUT);
    file["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    file["title"] = json!("Sandfork policy");
    for (section, about) in SECTIONS {
        file["properties"][section] = table(section, about);
    }
    file
}

fn table(section: &str, about: &str) -> Json {
    let keys = keys_of(section).map(|key| {
        let mut schema = key.kind.schema();
        schema["description"] = json!(key.about);
        (key.parts().1.to_owned(), schema)
    });
    json!({
        "type": "object",
        "description": about,
        "properties": keys.collect::<Map<_, _>>(),
        "additionalProperties": false,
    })
}

impl Kind {
    fn schema(&self) -> Json {
        match self {
            Self::Flag => json!({ "type": "boolean" }),
            Self::Word(words) => json!({ "type": "string", "enum": words }),
            Self::Text(grammar) => grammar.schema(),
            Self::List(grammar) => {
                let items =
                    json!({ "type": "array", "items": grammar.schema(), "uniqueItems": true });
                let change = json!({
                    "type": "object",
                    "properties": { "remove": items, "add": items },
                    "additionalProperties": false,
                });
                json!({ "oneOf": [items, change] })
            }
            Self::Rules => {
                let entry = rule_table::schema();
                let items = json!({ "type": "array", "items": entry, "uniqueItems": true });
                let hosts = json!({ "type": "array", "items": { "type": "string" } });
                let change = json!({
                    "type": "object",
                    "properties": { "remove": hosts, "add": items },
                    "additionalProperties": false,
                });
                json!({ "oneOf": [items, change] })
            }
            Self::Variables => {
                json!({ "type": "object", "additionalProperties": { "type": "string" } })
            }
            Self::Limit(limit) => limit.spec().unit.schema(),
            Self::Term => {
                let mut schema = Unit::Duration.schema();
                let pattern = schema["pattern"].as_str().unwrap_or_default();
                schema["pattern"] = format!("^{NEVER}$|{pattern}").into();
                schema
            }
        }
    }
}

impl Grammar {
    fn schema(&self) -> Json {
        match self.pattern {
            Some(pattern) => json!({ "type": "string", "pattern": pattern }),
            None => json!({ "type": "string" }),
        }
    }
}
