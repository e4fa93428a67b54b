//! The policy that a caller chooses for a session or a batch.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A policy by name or path, or its text. Unknown fields are rejected: a text without its directory would otherwise
/// parse as [`PolicyChoice::Name`], and the text would be ignored.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a policy has `toml` and `directory`, or `name`, and no unknown fields"
)]
pub enum PolicyChoice {
    /// The text of a policy file.
    Text {
        /// The text.
        toml: String,
        /// The directory against which relative paths are resolved.
        directory: PathBuf,
        /// The name of the policy in reports.
        #[serde(default, alias = "name")]
        label: Option<String>,
        /// The interpreter, unless the policy names one.
        #[serde(default)]
        interpreter: Option<String>,
    },
    /// A built-in policy, or a file.
    Name {
        /// The name or path.
        name: String,
        /// The directory for a relative path, by default the supervisor's current directory.
        #[serde(default)]
        directory: Option<PathBuf>,
        /// The interpreter, unless the policy names one.
        #[serde(default)]
        interpreter: Option<String>,
    },
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn text_without_a_directory_is_not_taken_for_a_name() {
        let read = |text: &str| serde_json::from_str::<PolicyChoice>(text);
        let text = read(r#"{"toml": "", "directory": "/srv", "name": "standard"}"#);
        assert!(
            matches!(text.unwrap(), PolicyChoice::Text { label: Some(label), .. } if label == "standard")
        );
        let name = read(r#"{"name": "standard", "directory": "/srv"}"#);
        assert!(matches!(name.unwrap(), PolicyChoice::Name { .. }));
        let neither = read(r#"{"toml": "limits.wall = '2s'", "name": "standard"}"#);
        let message = neither.unwrap_err().to_string();
        assert!(
            message.starts_with("a policy has `toml` and `directory`"),
            "{message}"
        );
    }
}
