//! Tests that the JSON Schema accepts what the parser accepts.

use std::collections::BTreeSet;

use sandfork::Policy;
use sandfork::internals::policy::schema;
use serde_json::Value;

/// Returns the dotted keys of a schema. A table with free names counts as one key.
fn schema_keys(table: &Value, prefix: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (name, value) in table["properties"].as_object().unwrap() {
        if value.get("properties").is_some() {
            keys.extend(schema_keys(value, &format!("{prefix}{name}.")));
        } else {
            keys.insert(format!("{prefix}{name}"));
        }
    }
    keys
}

/// Returns the dotted keys of a rendered policy.
fn rendered_keys() -> BTreeSet<String> {
    let policy: toml::Table = Policy::default().to_toml().parse().unwrap();
    let mut keys = BTreeSet::new();
    for (section, value) in &policy {
        match value.as_table() {
            Some(table) => keys.extend(table.keys().map(|key| format!("{section}.{key}"))),
            None => drop(keys.insert(section.clone())),
        }
    }
    keys
}

#[test]
fn the_schema_has_the_keys_of_a_policy() {
    let mut expected = rendered_keys();
    expected.insert("extends".to_owned());
    assert_eq!(schema_keys(&schema(), ""), expected);
}

#[test]
fn every_key_is_described_and_typed() {
    fn check(path: &str, value: &Value) {
        assert!(
            value["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{path}"
        );
        let is_list = value["oneOf"][0]["type"] == "array";
        assert!(is_list || value["type"].is_string(), "{path}: {value}");
        for (name, value) in value["properties"].as_object().into_iter().flatten() {
            check(&format!("{path}.{name}"), value);
        }
    }
    check("policy", &schema());
}

#[test]
fn unknown_keys_are_refused_by_the_schema_too() {
    let schema = schema();
    assert_eq!(schema["additionalProperties"], false);
    for (name, section) in schema["properties"].as_object().unwrap() {
        if section["type"] == "object" {
            assert_eq!(section["additionalProperties"], false, "{name}");
        }
    }
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    // TOML has no null.
    assert!(!schema.to_string().contains("null"));
}

#[test]
fn words_and_patterns_are_those_of_the_reader() {
    let schema = schema();
    let level = &schema["properties"]["assurance"]["properties"]["require"]["enum"];
    assert_eq!(level, &serde_json::json!(["landlock", "standard", "full"]));
    let wall = &schema["properties"]["limits"]["properties"]["wall"]["pattern"];
    assert_eq!(wall, "^[0-9]+(\\.[0-9]+)? ?(h|m|s|ms)$");
}
