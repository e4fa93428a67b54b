//! Which policy a caller's session or batch has.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A policy by name or path, or its text. Another field is refused: a text without its directory would be passed over for
/// the policy of its name.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a policy has `toml` and `directory`, or `name`, and nothing unknown"
)]
pub enum PolicyChoice {
    /// The text of a policy file.
    Text {
        /// The text.
        toml: String,
        /// The directory for its relative paths.
        directory: PathBuf,
        /// Its name in reports.
        #[serde(default, alias = "name")]
        label: Option<String>,
        /// The interpreter, unless the policy names one.
        #[serde(default)]
        interpreter: Option<String>,
    },
    /// A built-in policy, or a file.
    Name {
        /// Its name or path.
        name: String,
        /// The directory for a relative path, if it is not the supervisor's working directory.
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
    fn a_policys_text_is_never_passed_over_for_its_name() {
        let read = |text: &str| serde_json::from_str::<PolicyChoice>(text);
        let text = read(r#"{"toml": "", "directory": "/srv", "name": "standard"}"#);
        assert!(
            matches!(text.unwrap(), PolicyChoice::Text { label: Some(label), .. } if label == "standard")
        );
        let name = read(r#"{"name": "standard", "directory": "/srv"}"#);
        assert!(matches!(name.unwrap(), PolicyChoice::Name { .. }));
        let neither = read(r#"{"toml": "limits.wall = '2s'", "name": "standard"}"#);
        let said = neither.unwrap_err().to_string();
        assert!(
            said.starts_with("a policy has `toml` and `directory`"),
            "{said}"
        );
    }
}
