//! Collects what an environment should contain: packages, the lines of requirements files, or a lock.

use std::fs::File;
use std::path::Path;

use super::error::EnvironmentError;
use super::links::Links;
use super::pylock::locked_lines;
use super::requirement_line::{
    Purpose, has_hash, include, local_links, logical_lines, option_of, requirement,
};
use crate::host::{PipConfig, whole_text};
use crate::policy::Requirement;

/// The limits of included files: their number, and the size of each in MiB. Real projects stay far below both.
const MAX_FILES: usize = 64;
const MAX_MIB: u64 = 4;

/// The option that rejects packages without a hash.
const REQUIRE_HASHES: &str = "--require-hashes";

/// The requested packages and settings.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Wanted {
    /// Requirement lines, without includes and index options.
    pub lines: Vec<String>,
    /// Lines that only constrain versions.
    pub constraints: Vec<String>,
    /// Options for pip.
    pub options: Vec<String>,
    /// Index settings from the files.
    pub settings: Vec<(&'static str, String)>,
    /// Package directories that the files name.
    pub links: Vec<Links>,
}

impl Wanted {
    /// Requests these packages.
    pub fn packages(packages: &[Requirement]) -> Self {
        Self {
            lines: packages.iter().map(ToString::to_string).collect(),
            ..Self::default()
        }
    }

    /// Adds a requirements file, and those that it includes.
    ///
    /// # Errors
    /// If a file cannot be read, or requests something that cannot be installed in a sandbox.
    pub fn add_file(&mut self, path: &Path) -> Result<(), EnvironmentError> {
        let mut files = 0;
        self.follow(path, Purpose::Require, &mut files)?;
        let requires_hashes = self.options.iter().any(|it| it == REQUIRE_HASHES);
        match self.lines.iter().find(|line| !has_hash(line)) {
            Some(line) if requires_hashes => Err(EnvironmentError::Request(format!(
                "{} has `{REQUIRE_HASHES}`, and `{line}` has no hash: add `--hash=sha256:...` to it, or remove the option",
                path.display()
            ))),
            _ => Ok(()),
        }
    }

    fn follow(
        &mut self,
        path: &Path,
        purpose: Purpose,
        files: &mut usize,
    ) -> Result<(), EnvironmentError> {
        *files += 1;
        if *files > MAX_FILES {
            return Err(EnvironmentError::Request(format!(
                "{} includes more than {MAX_FILES} files: it may include itself",
                path.display()
            )));
        }
        for (number, line) in logical_lines(&read(path)?) {
            let refused = |problem: String| in_line(path, number, &problem);
            if let Some((purpose, other)) = include(&line, purpose) {
                let beside = path.parent().unwrap_or(Path::new("."));
                self.follow(&beside.join(other), purpose, files)?;
                continue;
            }
            if let Some(links) = local_links(&line) {
                self.links
                    .extend(Links::of(path, number, links).map_err(refused)?);
                continue;
            }
            if line.starts_with('-') {
                self.option(&line).map_err(refused)?;
                continue;
            }
            let line = requirement(&line).map_err(refused)?;
            match purpose {
                Purpose::Require => self.lines.push(line),
                Purpose::Constrain => self.constraints.push(line),
            }
        }
        Ok(())
    }

    fn option(&mut self, line: &str) -> Result<(), String> {
        let (name, value) = option_of(line);
        let setting = match name {
            "-i" | "--index-url" => "index-url",
            "--extra-index-url" => "extra-index-url",
            "-f" | "--find-links" => "find-links",
            "--trusted-host" => "trusted-host",
            "--no-index" => "no-index",
            "--pre" => "pre",
            "--prefer-binary" | "--only-binary" => return Ok(()),
            REQUIRE_HASHES => {
                self.options.push(REQUIRE_HASHES.to_owned());
                return Ok(());
            }
            "-e" | "--editable" => {
                return Err("an editable project cannot be installed in a sandbox: show it to guests with `python.path`".to_owned());
            }
            "--no-binary" => return Err("source distributions run code when they are built, so only wheels are installed: remove `--no-binary`".to_owned()),
            other => return Err(format!("the option `{other}` is not supported: remove it")),
        };
        let value = if value.is_empty() { "true" } else { value };
        self.settings.push((setting, value.to_owned()));
        Ok(())
    }

    /// Requests the packages of a `pylock.toml` (PEP 751), with their hashes.
    ///
    /// # Errors
    /// If the file is invalid, or has a package without a wheel.
    pub fn of_lock(path: &Path) -> Result<Self, EnvironmentError> {
        let lines = locked_lines(&read(path)?).map_err(|problem| {
            EnvironmentError::Request(format!("{} is not a valid {problem}", path.display()))
        })?;
        Ok(Self {
            lines,
            options: vec!["--no-deps".to_owned(), REQUIRE_HASHES.to_owned()],
            ..Self::default()
        })
    }

    /// Returns whether any requirement lists hashes.
    pub fn has_hashes(&self) -> bool {
        self.lines.iter().any(|line| has_hash(line))
    }

    /// Returns everything as sorted lines, for comparison.
    pub fn as_lines(&self) -> Vec<String> {
        let bounds = self.constraints.iter().map(|line| format!("-c {line}"));
        let mut lines: Vec<String> = self.lines.iter().cloned().chain(bounds).collect();
        lines.sort();
        lines.dedup();
        lines
    }

    /// Adds the files' settings to pip's configuration.
    pub fn configure(&self, config: &mut PipConfig) {
        for (option, value) in &self.settings {
            match *option {
                "index-url" => config.set(option, value),
                option => config.add(option, value),
            }
        }
    }
}

fn read(path: &Path) -> Result<String, EnvironmentError> {
    let text = File::open(path).and_then(|file| whole_text(file, MAX_MIB));
    text.map_err(|cause| EnvironmentError::Request(format!("{}: {cause}", path.display())))
}

/// Returns the error for a line: its location, the problem, and the remedy.
pub fn in_line(path: &Path, line: usize, problem: &str) -> EnvironmentError {
    EnvironmentError::Request(format!("{}:{line}: {problem}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(files: &[(&str, &str)]) -> Result<Wanted, String> {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("it is written");
        }
        let mut wanted = Wanted::default();
        let expected = |error: EnvironmentError| {
            error
                .to_string()
                .replace(&format!("{}/", dir.path().display()), "")
        };
        wanted
            .add_file(&dir.path().join(files[0].0))
            .map_err(expected)?;
        Ok(wanted)
    }

    #[test]
    fn includes_and_index_options_are_followed() {
        let wanted = of(&[
            ("all.txt", "# all\n-r more.txt\n-c bounds.txt\n--index-url https://i.example/simple\npandas == 2.* # new\n\n"),
            ("more.txt", "six==1.16.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"),
            ("bounds.txt", "numpy<2\n"),
        ])
        .expect("they are read");
        assert_eq!(
            wanted.lines,
            [
                "six==1.16.0 --hash=sha256:00 --hash=sha256:11",
                "pandas==2.*"
            ]
        );
        assert_eq!(wanted.constraints, ["numpy<2"]);
        assert_eq!(
            wanted.settings,
            [("index-url", "https://i.example/simple".to_owned())]
        );
    }

    #[test]
    fn require_hashes_rejects_unhashed_packages() {
        let hashed = "--require-hashes\nsix==1.16.0 --hash=sha256:00\n";
        let wanted = of(&[("a.txt", hashed)]).expect("it is read");
        assert_eq!(wanted.options, ["--require-hashes"]);
        let files = [("a.txt", &*format!("{hashed}-r b.txt")), ("b.txt", "attrs")];
        let expected = "a.txt has `--require-hashes`, and `attrs` has no hash: add `--hash=sha256:...` to it, or remove the option";
        assert_eq!(of(&files), Err(expected.to_owned()));
    }

    #[test]
    fn overlong_file_is_rejected() {
        let text = format!("six\n#{}\n", "x".repeat((4 << 20) - 6));
        assert!(of(&[("a.txt", &text)]).is_ok());
        let longer = of(&[("a.txt", &format!("{text}attrs"))]);
        assert_eq!(longer, Err("a.txt: longer than 4 MiB".to_owned()));
    }

    #[test]
    fn unsupported_lines_are_rejected_with_their_number() {
        for (text, expected) in [
            (
                "\n-e .\n",
                "a.txt:2: an editable project cannot be installed in a sandbox: show it to guests with `python.path`",
            ),
            (
                "./x.whl\n",
                "a.txt:1: \"./x.whl\" is not a package: write its name, and versions if need be, such as \"pandas==2.2.*\"",
            ),
            (
                "--config-settings=x\n",
                "a.txt:1: the option `--config-settings` is not supported: remove it",
            ),
            (
                "six --global-option=x\n",
                "a.txt:1: `--global-option=x` is not a hash (`--hash=sha256:...`): remove it",
            ),
            (
                "-r a.txt\n",
                "a.txt includes more than 64 files: it may include itself",
            ),
            (
                "-r b.txt\n",
                "b.txt: No such file or directory (os error 2)",
            ),
        ] {
            assert_eq!(of(&[("a.txt", text)]), Err(expected.to_owned()), "{text}");
        }
    }
}
