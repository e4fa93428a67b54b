//! Handles package directories that a requirements file names. The user who installs the packages may not have written
//! the file, and package code can read every file that the sandbox exposes. So only the packages in such a directory
//! are exposed, and only if it is beneath the file's own directory.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::EnvironmentError;
use super::jail::Builds;
use super::requirements::in_line;

/// The maximum number of packages of a directory: each is a separate mount in the sandbox.
const MAX: usize = 512;

/// A directory that a line of a requirements file names with `--find-links`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Links {
    /// The directory, without symbolic links.
    pub directory: PathBuf,
    /// The path as the line has it.
    written: String,
    /// The requirements file.
    file: PathBuf,
    line: usize,
}

impl Links {
    /// Resolves the directory of a line. `None` for an absolute path that does not exist, which pip ignores.
    ///
    /// # Errors
    /// If a relative path does not exist.
    pub fn of(file: &Path, line: usize, written: &str) -> Result<Option<Self>, String> {
        let path = Path::new(written.strip_prefix("file://").unwrap_or(written));
        // Relative to the file, as in pip.
        let beside = file.parent().unwrap_or(Path::new(""));
        match fs::canonicalize(beside.join(path)) {
            Ok(directory) if directory.is_dir() => Ok(Some(Self {
                directory,
                written: written.to_owned(),
                file: file.to_owned(),
                line,
            })),
            _ if path.is_absolute() => Ok(None),
            _ => Err(format!(
                "`--find-links {written}` names neither a directory beside the file nor an http or https URL: correct it"
            )),
        }
    }

    /// Returns whether it is one of these directories.
    pub fn is_among(&self, directories: &[PathBuf]) -> bool {
        let is_same =
            |other: &PathBuf| fs::canonicalize(other).is_ok_and(|it| it == self.directory);
        directories.iter().any(is_same)
    }

    /// Returns its wheels, and its source distributions if these are built. Symbolic links are skipped, because they
    /// may lead elsewhere.
    ///
    /// # Errors
    /// If the directory is not beneath the file's directory, or has too many packages.
    pub fn distributions(&self, builds: Builds) -> Result<Vec<PathBuf>, EnvironmentError> {
        let beside = fs::canonicalize(directory_of(&self.file));
        if !beside.is_ok_and(|own| self.directory.starts_with(own)) {
            return Err(self.refused("is not beneath the directory of the file"));
        }
        let suffixes = match builds {
            Builds::Allowed => &[".whl", ".tar.gz"][..],
            Builds::Refused => &[".whl"],
        };
        let entries = fs::read_dir(&self.directory);
        let entries = entries.map_err(|cause| {
            EnvironmentError::Request(format!("{}: {cause}", self.directory.display()))
        })?;
        let files = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let is_package = suffixes.iter().any(|suffix| name.ends_with(suffix));
            is_package && entry.file_type().is_ok_and(|kind| kind.is_file())
        });
        let mut files: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
        if files.len() > MAX {
            return Err(self.refused(&format!("has more than {MAX} packages")));
        }
        files.sort();
        Ok(files)
    }

    fn refused(&self, problem: &str) -> EnvironmentError {
        let problem = format!(
            "`--find-links {}` {problem}: if what is installed may read all of it, name it in pip's configuration, such as \
             with `PIP_FIND_LINKS={}`",
            self.written,
            self.directory.display()
        );
        in_line(&self.file, self.line, &problem)
    }
}

/// Returns the directory of a path: the current directory for a bare name.
pub fn directory_of(path: &Path) -> &Path {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_packages_of_a_directory_are_shown() {
        let project = tempfile::tempdir().expect("a directory");
        let own = project.path().canonicalize().expect("it is there");
        for name in ["a-1-py3-none-any.whl", "b-1.tar.gz", "id_rsa"] {
            fs::write(own.join(name), "x").expect("it is written");
        }
        symlink("/etc/passwd", own.join("c-1.tar.gz")).expect("a link");
        fs::create_dir(own.join("d.whl")).expect("a directory");
        let file = own.join("requirements.txt");
        let links = Links::of(&file, 1, ".").expect("a directory");
        let links = links.expect("it is there");
        let shown = |builds| links.distributions(builds).expect("they are shown");
        assert_eq!(shown(Builds::Refused), [own.join("a-1-py3-none-any.whl")]);
        assert_eq!(
            shown(Builds::Allowed),
            [own.join("a-1-py3-none-any.whl"), own.join("b-1.tar.gz")]
        );
        assert_eq!(Links::of(&file, 1, "/nowhere"), Ok(None));
        assert!(Links::of(&file, 1, "nowhere").is_err());
        for outside in ["..", "/", "file:///etc"] {
            let links = Links::of(&file, 1, outside).expect("a directory");
            let links = links.expect("it is there");
            assert!(links.distributions(Builds::Allowed).is_err(), "{outside}");
        }
    }
}
