//! The JSON Schema of a policy file, and queries on it.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::Value;

use super::file::PolicyFile;

/// The JSON Schema (draft 2020-12) of a policy file, for editors and other tools.
pub fn schema() -> Value {
    SchemaSettings::draft2020_12()
        // Inlined, so that a walk along `properties` finds a key's schema.
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(without_null))
        .into_generator()
        .into_root_schema_for::<PolicyFile>()
        .to_value()
}

/// Removes null from optional keys: TOML cannot write it, and a file leaves the key out.
fn without_null(schema: &mut Schema) {
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    let Some(Value::Array(types)) = schema.get_mut("type") else {
        return;
    };
    types.retain(|name| name != "null");
    if let [only] = types.as_slice() {
        let only = only.clone();
        schema.insert("type".to_owned(), only);
    }
}

/// The schema of the value under `key`, if a policy file has such a key.
pub(super) fn value_at<'a>(schema: &'a Value, key: &[String]) -> Option<&'a Value> {
    key.iter().try_fold(schema, |table, part| {
        let known = table.get("properties").and_then(|keys| keys.get(part));
        known.or_else(|| {
            table
                .get("additionalProperties")
                .filter(|any| any.is_object())
        })
    })
}

/// The keys that a table accepts, or `None` if it accepts any.
pub(super) fn names(table: &Value) -> Option<Vec<&str>> {
    let known = table.get("properties")?.as_object()?;
    Some(known.keys().map(String::as_str).collect())
}
