//! Parses the names of environments and the requirements of packages, and derives environment names from packages.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::render::hexadecimal;

/// The maximum length of an environment's name.
const LONGEST_NAME: usize = 64;

/// The maximum length of a requirement, much more than people write.
const LONGEST_REQUIREMENT: usize = 512;

/// The prefix of the names that are derived from the `python.packages` of policies.
const OF_PACKAGES: &str = "packages-";

/// The name of an environment: chosen by a user (`analysis`), or derived from the packages of policies.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct EnvironmentName(String);

impl EnvironmentName {
    /// Returns the name of the environment with these packages from these sources, for the interpreter at this path.
    pub(crate) fn of_packages(
        packages: &[Requirement],
        interpreter: &Path,
        sources: Option<&SourcesDigest>,
    ) -> Self {
        let mut lines: Vec<&str> = packages.iter().map(|package| &*package.0).collect();
        lines.sort_unstable();
        lines.dedup();
        let mut digest = Sha256::new();
        digest.update(interpreter.as_os_str().as_encoded_bytes());
        for line in lines {
            digest.update([0]);
            digest.update(line);
        }
        if let Some(SourcesDigest(sources)) = sources {
            // Two NULs cannot occur between packages, because no package is empty.
            digest.update([0, 0]);
            digest.update(sources);
        }
        Self(format!("{OF_PACKAGES}{}", short(digest)))
    }

    /// Returns the name for the same packages when the versions of `others` are fixed.
    pub(crate) fn beside(self, others: &[String]) -> Self {
        if others.is_empty() {
            return self;
        }
        let mut digest = Sha256::new_with_prefix(&self.0);
        for other in others {
            digest.update([0]);
            digest.update(other);
        }
        Self(format!("{OF_PACKAGES}{}", short(digest)))
    }

    /// Returns whether the name is derived from the packages of policies.
    pub(crate) fn is_of_packages(&self) -> bool {
        self.0.starts_with(OF_PACKAGES)
    }

    /// Returns the name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EnvironmentName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_name = text.starts_with(is_outer)
            && text.chars().all(|c| is_outer(c) || "-_.".contains(c))
            && text.len() <= LONGEST_NAME;
        if is_name {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "\"{}\" is not the name of an environment: use at most {LONGEST_NAME} lower-case letters, digits, `-`, `_` \
             and `.`, and begin with a letter or a digit",
            shortened(text)
        ))
    }
}

impl fmt::Display for EnvironmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A digest of the options that define where packages come from.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct SourcesDigest(String);

impl SourcesDigest {
    /// Returns the digest of these options, or `None` if there are none.
    pub(crate) fn of(options: &[String]) -> Option<Self> {
        let mut digest = Sha256::new();
        for option in options {
            digest.update(option);
            digest.update([0]);
        }
        (!options.is_empty()).then(|| Self(short(digest)))
    }
}

/// Formats the first 16 bytes of a digest in hexadecimal.
fn short(digest: Sha256) -> String {
    hexadecimal(&digest.finalize()[..16])
}

/// A package and its versions, as in a requirements file: `pandas==2.2.*`. URLs, paths and options are not accepted.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Requirement(String);

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "\"{}\" is not a package: write its name, and versions if need be, such as \"pandas==2.2.*\"",
                shortened(text)
            )
        };
        let text = text.trim();
        let name_end = text.find(|c| !is_name_char(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(name_end);
        let rest = rest.trim_start();
        let is_outer = |c: char| c.is_ascii_alphanumeric();
        let is_harmless = |c: char| c.is_ascii_graphic() || c == ' ';
        let is_requirement = name.starts_with(is_outer)
            && name.ends_with(is_outer)
            && text.len() <= LONGEST_REQUIREMENT
            && (rest.is_empty() || rest.starts_with(['[', '<', '>', '=', '!', '~', '(', ';']))
            && rest.chars().all(|c| is_harmless(c) && !"@\\#/:${}".contains(c))
            // `pkg==1 --hash=...` would pass an option to the installer.
            && !rest.contains(" -");
        if !is_requirement {
            return Err(refused());
        }
        Ok(Self(format!("{name}{}", without_spaces(rest))))
    }
}

/// Removes optional spaces, so that equal requirements have one form. Words of a marker keep one space between them.
fn without_spaces(rest: &str) -> String {
    match rest.split_once(';') {
        Some((versions, marker)) => {
            let words: Vec<&str> = marker.split_whitespace().collect();
            format!("{};{}", without_spaces(versions), words.join(" "))
        }
        None => rest.split_whitespace().collect(),
    }
}

/// Truncates a text for an error message.
fn shortened(text: &str) -> String {
    const ENOUGH: usize = 80;
    match text.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_normalized_and_others_are_rejected() {
        for (text, written) in [
            ("pandas", "pandas"),
            (" pandas == 2.2.* ", "pandas==2.2.*"),
            ("scikit-learn>=1.2, <2", "scikit-learn>=1.2,<2"),
            ("requests[socks]~=2.0", "requests[socks]~=2.0"),
            (
                "tomli ; python_version  < '3.11'",
                "tomli;python_version < '3.11'",
            ),
        ] {
            let read: Requirement = text.parse().expect("a requirement");
            assert_eq!(read.to_string(), written);
        }
        for text in [
            "",
            "-r other.txt",
            "--index-url=http://x",
            "a b",
            "./a",
            "/a",
            "a @ https://example.org/a.whl",
            "git+https://example.org/a",
            "a==1 --hash=sha256:0",
            "a==1\nb",
            "a==1 \\",
            "a.",
            "é",
            &"a".repeat(600),
        ] {
            assert!(text.parse::<Requirement>().is_err(), "{text}");
        }
    }

    #[test]
    fn environment_names_are_file_names_not_paths() {
        assert!("a-1_b.c".parse::<EnvironmentName>().is_ok());
        for text in ["", ".", "..", "a/b", "-a", "A", "a b", &"a".repeat(65)] {
            assert!(text.parse::<EnvironmentName>().is_err(), "{text}");
        }
    }

    #[test]
    fn name_depends_on_packages_and_interpreter() {
        let of = |packages: &[&str], python: &str| {
            let packages: Vec<Requirement> = packages
                .iter()
                .map(|it| it.parse().expect("a requirement"))
                .collect();
            EnvironmentName::of_packages(&packages, Path::new(python), None)
        };
        let name = of(&["a", "b==1"], "/usr/bin/python3.11");
        assert_eq!(name, of(&["b == 1", "a", "a"], "/usr/bin/python3.11"));
        assert_ne!(name, of(&["a", "b==2"], "/usr/bin/python3.11"));
        assert_ne!(name, of(&["a", "b==1"], "/usr/bin/python3.12"));
        assert_eq!(name.as_str().parse(), Ok(name.clone()));
        assert!(name.is_of_packages());
        // The name must not change: a release has to find the environments of earlier releases.
        assert_eq!(name.as_str(), "packages-b6203055d94f990bb28cb78ce65154dc");
    }

    #[test]
    fn name_depends_on_the_package_sources() {
        let packages = ["a".parse().expect("a requirement")];
        let of = |options: &[&str]| {
            let options: Vec<String> = options.iter().map(|it| (*it).to_owned()).collect();
            let sources = SourcesDigest::of(&options);
            EnvironmentName::of_packages(&packages, Path::new("/usr/bin/python3"), sources.as_ref())
        };
        assert_ne!(of(&[]), of(&["--pre"]));
        assert_ne!(of(&["--no-index"]), of(&["--pre"]));
        assert_eq!(of(&["--pre"]), of(&["--pre"]));
    }
}
