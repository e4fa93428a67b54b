//! Defines the lock of an environment: its wheels with their hashes. Pure.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::policy::hexadecimal;

/// The maximum number of packages of an environment. The largest real ones have some hundreds.
pub const MAX_PACKAGES: usize = 4096;

/// The version of the on-disk format. A new version makes new environments from the same lock.
const FORMAT: u32 = 1;

/// The wheels of an environment, sorted by name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Lock(Vec<LockedWheel>);

/// A wheel, and the hash that it must have.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LockedWheel {
    /// The package's canonical name.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// The file name, whose tags tell for which interpreters and machines the wheel is.
    pub file: String,
    /// The URL of the wheel.
    pub url: String,
    /// The wheel's SHA-256 in hexadecimal.
    pub sha256: String,
    /// The source distribution from which the wheel was built, if the index has no wheel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// A source distribution.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Source {
    /// The URL of the source distribution.
    pub url: String,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

/// Returns the error for too many packages.
pub fn too_many() -> String {
    format!("it has more than {MAX_PACKAGES} packages")
}

impl Lock {
    /// Creates a lock of these wheels.
    ///
    /// # Errors
    /// If a wheel's description is invalid: an index chose all of it.
    pub fn new(mut wheels: Vec<LockedWheel>) -> Result<Self, String> {
        if wheels.len() > MAX_PACKAGES {
            return Err(too_many());
        }
        for wheel in &mut wheels {
            wheel.check()?;
        }
        wheels.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some(twice) = wheels.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(format!("it lists `{}` twice", twice[0].name));
        }
        Ok(Self(wheels))
    }

    /// Returns the wheels.
    pub fn wheels(&self) -> &[LockedWheel] {
        &self.0
    }

    /// Returns the directory name of an environment with these wheels for this build of an interpreter. It does not
    /// depend on where the wheels come from, so equal wheels share an environment.
    pub fn key(&self, build: &InterpreterBuild) -> String {
        let mut text = format!(
            "{FORMAT}\n{}\n{}\n{}\n{}\n",
            build.binary.display(),
            build.version,
            build.size,
            std::env::consts::ARCH,
        );
        for wheel in &self.0 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} {} {}", wheel.name, wheel.file, wheel.sha256);
        }
        hexadecimal(&Sha256::digest(text)[..16])
    }

    /// Formats the lock as `pylock.toml` (PEP 751), which other installers read.
    pub fn to_pylock(&self) -> String {
        let mut text = "lock-version = \"1.0\"\ncreated-by = \"sandfork\"\n".to_owned();
        for wheel in &self.0 {
            let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
            let (table, file, url, sha256) = match &wheel.source {
                None => (
                    "[packages.wheels]",
                    wheel.file.clone(),
                    &wheel.url,
                    &wheel.sha256,
                ),
                Some(source) => (
                    "packages.sdist",
                    file_of(&source.url),
                    &source.url,
                    &source.sha256,
                ),
            };
            let _ = write!(
                text,
                "\n[[packages]]\nname = {}\nversion = {}\n\n[{table}]\nname = {}\nurl = {}\nhashes = {{ sha256 = {} }}\n",
                quoted(&wheel.name),
                quoted(&wheel.version),
                quoted(&file),
                quoted(url),
                quoted(sha256),
            );
        }
        text
    }
}

/// The properties of an interpreter that determine whether an environment fits it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InterpreterBuild<'a> {
    /// The path of the binary.
    pub binary: &'a Path,
    /// The version.
    pub version: &'a str,
    /// The size of the binary.
    pub size: u64,
}

impl LockedWheel {
    /// Returns whether the URL is that of a wheel, not of a source distribution.
    pub fn is_wheel(&self) -> bool {
        file_of(&self.url).strip_suffix(".whl").is_some()
    }

    /// Validates and normalizes what an index says of a wheel or a source distribution.
    ///
    /// # Errors
    /// If the description is invalid.
    pub fn check_package(&mut self) -> Result<(), String> {
        let name = canonical(&self.name);
        let is_outer = |c: char| c.is_ascii_alphanumeric();
        if !name.starts_with(is_outer)
            || !name.chars().all(|c| is_outer(c) || c == '-')
            || name.len() > 128
        {
            return Err(self.wrong("a name that no package can have"));
        }
        let of_version = |c: char| c.is_ascii_alphanumeric() || ".!+_-".contains(c);
        if self.version.is_empty()
            || self.version.len() > 128
            || !self.version.chars().all(of_version)
        {
            return Err(self.wrong("a version that no package can have"));
        }
        let is_hash = |text: &str| {
            text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
        };
        if !is_hash(&self.sha256) {
            return Err(self.wrong("no SHA-256 at the index"));
        }
        let has_scheme = ["https://", "http://", "file:///"]
            .iter()
            .any(|it| self.url.starts_with(it));
        let is_plain = self.url.len() < 4096 && self.url.chars().all(|c| c.is_ascii_graphic());
        if !has_scheme || !is_plain {
            return Err(self.wrong("a URL that is none of http, https or file"));
        }
        // Only the installer that created the URL uses its fragment.
        self.url
            .truncate(self.url.find('#').unwrap_or(self.url.len()));
        self.name = name;
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        self.check_package()?;
        self.file = file_of(&self.url);
        let of_file = |c: char| c.is_ascii_alphanumeric() || "._-+!".contains(c);
        let parts = self.file.strip_suffix(".whl").unwrap_or_default();
        let parts: Vec<&str> = parts.split('-').collect();
        let is_wheel = matches!(parts.len(), 5 | 6)
            && self.file.chars().all(of_file)
            && self.file.len() <= 255;
        if !is_wheel {
            return Err(self.wrong("no wheel, but another kind of file"));
        }
        if canonical(parts[0]) != self.name {
            return Err(self.wrong("a wheel of another name"));
        }
        Ok(())
    }

    fn wrong(&self, what: &str) -> String {
        let name = self.name.chars().filter(char::is_ascii_graphic);
        wrong(&name.take(64).collect::<String>(), what)
    }
}

/// Returns the error for a package that cannot be locked because it has this problem.
pub fn wrong(package: &str, what: &str) -> String {
    format!("its package `{package}` has {what}")
}

/// Returns the canonical form of a package's name (PEP 503).
pub fn canonical(name: &str) -> String {
    let mut form = String::new();
    for c in name.chars().map(|c| c.to_ascii_lowercase()) {
        match c {
            '-' | '_' | '.' if form.ends_with('-') => {}
            '-' | '_' | '.' => form.push('-'),
            other => form.push(other),
        }
    }
    form
}

/// Returns the file name at the end of a URL's path. `%2B` is the `+` of a local version.
pub fn file_of(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    last.replace("%2B", "+")
        .replace("%2b", "+")
        .replace("%21", "!")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wheel(name: &str, url: &str) -> LockedWheel {
        LockedWheel {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            file: String::new(),
            url: url.to_owned(),
            sha256: "0".repeat(64),
            source: None,
        }
    }

    fn build(binary: &str) -> InterpreterBuild<'_> {
        let binary = Path::new(binary);
        InterpreterBuild {
            binary,
            version: "3.11.2",
            size: 7,
        }
    }

    #[test]
    fn key_depends_on_wheels_and_interpreter() {
        let lock = |urls: &[(&str, &str)]| {
            Lock::new(urls.iter().map(|(name, url)| wheel(name, url)).collect()).expect("a lock")
        };
        let a = (
            "A_b",
            "https://one.example/A_b-1.0-py3-none-any.whl#sha256=0",
        );
        let c = ("c", "https://one.example/c-1.0-py3-none-any.whl");
        let elsewhere = ("a.b", "https://two.example/x/A_b-1.0-py3-none-any.whl");
        let key = lock(&[a, c]).key(&build("/usr/bin/python3.11"));
        assert_eq!(
            key,
            lock(&[c, elsewhere]).key(&build("/usr/bin/python3.11"))
        );
        assert_ne!(key, lock(&[a, c]).key(&build("/opt/python3.11")));
        assert_ne!(key, lock(&[a]).key(&build("/usr/bin/python3.11")));
        let mut other = wheel(a.0, a.1);
        other.sha256 = "1".repeat(64);
        let other = Lock::new(vec![other, wheel(c.0, c.1)]).expect("a lock");
        assert_ne!(key, other.key(&build("/usr/bin/python3.11")));
        assert_eq!(key.len(), 32);
    }

    #[test]
    fn package_descriptions_are_validated() {
        let good = "https://i.example/a-1.0-py3-none-any.whl";
        let refused = |wheel: LockedWheel| Lock::new(vec![wheel]).expect_err("refused");
        for (name, url, why) in [
            (
                "a/../b",
                good,
                "its package `a/../b` has a name that no package can have",
            ),
            (
                "a",
                "ftp://i.example/a-1.0-py3-none-any.whl",
                "its package `a` has a URL that is none of http, https or file",
            ),
            (
                "a",
                "https://i.example/a b-1.0-py3-none-any.whl",
                "its package `a` has a URL that is none of http, https or file",
            ),
            (
                "a",
                "https://i.example/a-1.0.tar.gz",
                "its package `a` has no wheel, but another kind of file",
            ),
            (
                "a",
                "https://i.example/..%2Fa-1.0-py3-none-any.whl",
                "its package `a` has no wheel, but another kind of file",
            ),
            (
                "a",
                "https://i.example/b-1.0-py3-none-any.whl",
                "its package `a` has a wheel of another name",
            ),
        ] {
            assert_eq!(refused(wheel(name, url)), why);
        }
        let mut unhashed = wheel("a", good);
        unhashed.sha256.clear();
        assert_eq!(
            refused(unhashed),
            "its package `a` has no SHA-256 at the index"
        );
        let twice = Lock::new(vec![wheel("a", good), wheel("A", good)]);
        assert_eq!(twice, Err("it lists `a` twice".to_owned()));
    }

    #[test]
    fn lock_is_written_as_pylock_toml() {
        let url = "https://i.example/torch-2.0%2Bcpu-cp311-cp311-linux_x86_64.whl";
        let lock = Lock::new(vec![wheel("torch", url)]).expect("a lock");
        insta::assert_snapshot!(lock.to_pylock(), @r#"
        lock-version = "1.0"
        created-by = "sandfork"

        [[packages]]
        name = "torch"
        version = "1.0"

        [[packages.wheels]]
        name = "torch-2.0+cpu-cp311-cp311-linux_x86_64.whl"
        url = "https://i.example/torch-2.0%2Bcpu-cp311-cp311-linux_x86_64.whl"
        hashes = { sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
        "#);
    }
}
