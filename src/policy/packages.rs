//! Names of environments, and the packages that an environment has.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::render::hexadecimal;

/// The longest name of an environment.
const LONGEST_NAME: usize = 64;

/// The longest requirement: much more than any that people write.
const LONGEST_REQUIREMENT: usize = 512;

/// How the names of environments begin that belong to the `python.packages` of policies.
const OF_PACKAGES: &str = "packages-";

/// The name of an environment: `analysis`, or one that stands for the packages of policies.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct EnvironmentName(String);

impl EnvironmentName {
    /// The name of the environment that has these packages of these sources, for the interpreter at this path.
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
            // No package is empty.
            digest.update([0, 0]);
            digest.update(sources);
        }
        Self(format!("{OF_PACKAGES}{}", short(digest)))
    }

    /// The name of the same packages where the versions of others are given.
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

    /// Whether it stands for the packages of policies.
    pub(crate) fn is_of_packages(&self) -> bool {
        self.0.starts_with(OF_PACKAGES)
    }

    /// The name as text.
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

/// A digest of the options that say where packages come from.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct SourcesDigest(String);

impl SourcesDigest {
    /// The digest of these options. Without any there is none.
    pub(crate) fn of(options: &[String]) -> Option<Self> {
        let mut digest = Sha256::new();
        for option in options {
            digest.update(option);
            digest.update([0]);
        }
        (!options.is_empty()).then(|| Self(short(digest)))
    }
}

/// The beginning of a digest, as text.
fn short(digest: Sha256) -> String {
    hexadecimal(&digest.finalize()[..16])
}

/// A package and its versions, as in a requirements file: `pandas==2.2.*`. No URL, no path and no option.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Requirement(String);

fn is_of_name(c: char) -> bool {
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
        let name_end = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(name_end);
        let rest = rest.trim_start();
        let is_outer = |c: char| c.is_ascii_alphanumeric();
        let is_harmless = |c: char| c.is_ascii_graphic() || c == ' ';
        let is_requirement = name.starts_with(is_outer)
            && name.ends_with(is_outer)
            && text.len() <= LONGEST_REQUIREMENT
            && (rest.is_empty() || rest.starts_with(['[', '<', '>', '=', '!', '~', '(', ';']))
            && rest.chars().all(|c| is_harmless(c) && !"@\\#/:${}".contains(c))
            // `pkg==1 --hash=...` would pass an option on.
            && !rest.contains(" -");
        if !is_requirement {
            return Err(refused());
        }
        Ok(Self(format!("{name}{}", without_spaces(rest))))
    }
}

/// The same requirement is written in one way. Words of a marker keep the space between them.
fn without_spaces(rest: &str) -> String {
    match rest.split_once(';') {
        Some((versions, marker)) => {
            let words: Vec<&str> = marker.split_whitespace().collect();
            format!("{};{}", without_spaces(versions), words.join(" "))
        }
        None => rest.split_whitespace().collect(),
    }
}

/// The beginning of a text, for an error.
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
    fn a_requirement_is_a_package_with_versions() {
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
    fn a_name_is_a_file_name_and_no_path() {
        assert!("a-1_b.c".parse::<EnvironmentName>().is_ok());
        for text in ["", ".", "..", "a/b", "-a", "A", "a b", &"a".repeat(65)] {
            assert!(text.parse::<EnvironmentName>().is_err(), "{text}");
        }
    }

    #[test]
    fn packages_have_one_environment_for_each_interpreter() {
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
        // Releases find what earlier ones have made.
        assert_eq!(name.as_str(), "packages-b6203055d94f990bb28cb78ce65154dc");
    }

    #[test]
    fn packages_of_other_sources_are_another_environment() {
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
