//! Renders an effective policy as a file, and hashes it.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::values::Values;

/// Renders the policy as a self-contained file.
pub(super) fn to_toml(values: &Values) -> String {
    toml::to_string_pretty(values)
        .expect("strings, numbers, lists and tables with string keys are TOML")
}

/// Returns the hash that every outcome reports. It covers the policy as canonical JSON: sorted keys, no spaces,
/// and values in the notation of a policy file.
pub(super) fn sha256(values: &Values) -> String {
    let mut json = serde_json::to_value(values)
        .expect("strings, numbers, lists and tables with string keys are JSON");
    if let Some(keys) = json.as_object_mut() {
        keys.remove("description");
    }
    json.sort_all_objects();
    hexadecimal(&Sha256::digest(json.to_string()))
}

/// Formats bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
