//! Explains what a guest did not find but `python3` would have: files and modules beside the script, and stdin.
//!
//! A guest chooses the name that it misses, so the hint goes to the caller only; otherwise a guest could learn from it
//! which files exist. Only names beneath the script's directory and the current directory are looked up.

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::host::UNPRIVILEGED_ID;
use crate::outcome::{Ending, ExceptionInfo, Outcome};
use crate::policy::Stdin;

/// The longest path that is looked up, in bytes.
const MAX_NAME: usize = 1024;

/// The files and input that `python3` would have found.
pub struct Surroundings {
    /// The script's directory, or the current directory for code without a file.
    pub beside: PathBuf,
    /// The current directory.
    pub current: PathBuf,
    /// Whether the guest sees the script's directory.
    pub is_shown: bool,
    /// The guest's stdin setting.
    pub stdin: Stdin,
    /// The host paths to which a guest started by root may write.
    pub writable: Vec<PathBuf>,
    /// The guest's arguments.
    pub arguments: Vec<String>,
    /// The files named by `--in`.
    pub given: Vec<PathBuf>,
}

impl Surroundings {
    /// Returns one sentence if what the guest missed exists.
    pub fn hint(&self, outcome: &Outcome) -> Option<String> {
        match (outcome.ending(), outcome.error()) {
            (_, Some(error)) => self.of_exception(error),
            // A program's message has no fixed form, so look at its arguments.
            (Ending::Exit(code), None) if *code != 0 && !self.is_shown => self.of_arguments(),
            _ => None,
        }
    }

    /// Returns a hint for the first argument that names a file in the current directory.
    fn of_arguments(&self) -> Option<String> {
        let mut names = self.arguments.iter();
        let name = names.find(|name| {
            let is_given = self.given.iter().any(|given| given == Path::new(name));
            !is_given && self.copied(name).is_some()
        })?;
        Some(in_current_directory(name))
    }

    fn of_exception(&self, error: &ExceptionInfo) -> Option<String> {
        let (found, copied) = match error.name.as_str() {
            "ModuleNotFoundError" => {
                let name = quoted(&error.message, "No module named '")?;
                (self.module(name), None)
            }
            "FileNotFoundError" => {
                let name = quoted(&error.message, "directory: '")?;
                (self.file(name), self.copied(name))
            }
            "PermissionError" => {
                return self.unwritable(quoted(&error.message, "denied: '")?);
            }
            "EOFError" if self.stdin == Stdin::Closed => {
                return Some("stdin is not passed to the guest; `-i` passes it".to_owned());
            }
            _ => return None,
        };
        match (found.filter(|_| !self.is_shown), copied) {
            (Some(found), None) => Some(format!(
                "`{}` is in {}, which the guest does not see; `--project` shows that directory, read-only",
                found.display(),
                self.beside.display()
            )),
            (Some(_), Some(name)) => Some(format!(
                "`{name}` is in {}, which the guest does not see; `--in {name}` copies it, and `--project` \
                 shows that directory, read-only",
                self.beside.display()
            )),
            (None, Some(name)) => Some(in_current_directory(name)),
            (None, None) => None,
        }
    }

    /// Explains a failed write to a path of the host. Without id-mapped mounts, a guest started by root runs as a user
    /// other than the owner.
    fn unwritable(&self, name: &str) -> Option<String> {
        let mut writable = self.writable.iter();
        let (shown, within) = writable.find_map(|path| {
            let within = Path::new(name).strip_prefix(path).ok()?;
            Some((path, within))
        })?;
        let owner = |path: &Path| Some(path.symlink_metadata().ok()?.uid());
        let of_file = owner(&shown.join(within)).filter(|_| goes_down(within));
        if of_file.is_some() && of_file != owner(shown) {
            return Some(format!(
                "`{name}` has a different owner than {}, and guests started by root write there as that owner: give it the same \
                 owner, or let others write to it",
                shown.display()
            ));
        }
        Some(format!(
            "where the file system (such as overlayfs) or the kernel has no id-mapped mounts, guests started by root write \
             to {} as uid {UNPRIVILEGED_ID}: let that user write there, or copy the file with `--out`",
            shown.display()
        ))
    }

    /// Returns the name if `--in` could copy a file of the current directory to where the guest looked.
    fn copied<'n>(&self, name: &'n str) -> Option<&'n str> {
        let is_file = goes_down(Path::new(name)) && self.current.join(name).is_file();
        is_file.then_some(name)
    }

    fn module(&self, name: &str) -> Option<PathBuf> {
        let stem = name.replace('.', "/");
        let forms = [format!("{stem}.py"), stem];
        forms.iter().find_map(|form| self.file(form))
    }

    /// Returns the path relative to the script's directory, if it exists.
    fn file(&self, name: &str) -> Option<PathBuf> {
        let path = Path::new(name);
        let within = path.strip_prefix(&self.beside).unwrap_or(path);
        let found = goes_down(within) && self.beside.join(within).symlink_metadata().is_ok();
        found.then(|| within.to_owned())
    }
}

fn in_current_directory(name: &str) -> String {
    format!(
        "`{name}` is in the current directory, which the guest does not see; `--in {name}` copies it"
    )
}

/// Returns whether a path that a guest chose stays beneath the directory from which it is resolved.
fn goes_down(path: &Path) -> bool {
    let mut parts = path.components();
    let is_short = (1..=MAX_NAME).contains(&path.as_os_str().len());
    is_short && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Returns the text between `before` and the next quote.
fn quoted<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(before)?;
    rest.split_once('\'').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn hint_names_a_file_with_a_different_owner() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("theirs");
        std::fs::write(&file, "").unwrap();
        if std::os::unix::fs::chown(&file, Some(UNPRIVILEGED_ID - 1), None).is_err() {
            // Only root can chown.
            return;
        }
        let around = Surroundings {
            beside: PathBuf::new(),
            current: PathBuf::new(),
            is_shown: false,
            stdin: Stdin::Closed,
            writable: vec![directory.path().to_owned()],
            arguments: Vec::new(),
            given: Vec::new(),
        };
        let hint = around.unwritable(&file.display().to_string()).unwrap();
        assert!(hint.contains("has a different owner"), "{hint}");
        let hint = around.unwritable(&directory.path().join("new").display().to_string());
        assert!(hint.is_some_and(|hint| hint.contains("id-mapped")));
    }

    #[test]
    fn only_names_beneath_the_script_are_looked_up() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::create_dir_all(program.join("data")).unwrap();
        for file in ["secret", "program/helper.py", "program/data/table.csv"] {
            std::fs::write(directory.path().join(file), "").unwrap();
        }
        let around = Surroundings {
            beside: program.clone(),
            current: directory.path().join("none"),
            is_shown: false,
            stdin: Stdin::Closed,
            writable: vec!["/srv/out".into()],
            arguments: Vec::new(),
            given: Vec::new(),
        };
        let refused = |name: &str| {
            let message = format!("[Errno 13] Permission denied: '{name}'");
            around.of_exception(&ExceptionInfo::new("PermissionError", message, ""))
        };
        assert!(refused("/srv/out/x").is_some_and(|hint| hint.contains("`--out`")));
        assert_eq!(refused("/srv/other"), None);
        let missing = |around: &Surroundings, class: &str, message: &str| {
            around.of_exception(&ExceptionInfo::new(class, message, ""))
        };
        let module = |name: &str| format!("No module named '{name}' (and more)");
        let file = |name: &str| format!("[Errno 2] No such file or directory: '{name}'");
        let absolute = program.join("data/table.csv").display().to_string();
        for found in ["data/table.csv", "helper.py", "data", &absolute] {
            let hint = missing(&around, "FileNotFoundError", &file(found));
            assert!(
                hint.is_some_and(|hint| hint.contains("`--project`")),
                "{found}"
            );
        }
        for found in ["helper", "data"] {
            let hint = missing(&around, "ModuleNotFoundError", &module(found));
            assert!(hint.is_some_and(|hint| hint.contains(found)), "{found}");
        }
        for other in ["../secret", "/etc/passwd", "", "none", "data/../../secret"] {
            assert_eq!(missing(&around, "FileNotFoundError", &file(other)), None);
            assert_eq!(
                missing(&around, "ModuleNotFoundError", &module(other)),
                None
            );
        }
        assert_eq!(missing(&around, "ValueError", &file("helper.py")), None);
        let ended = |around: &Surroundings| missing(around, "EOFError", "EOF when reading a line");
        assert!(ended(&around).is_some_and(|hint| hint.contains("`-i`")));
        let around = Surroundings {
            current: program.clone(),
            stdin: Stdin::Pass,
            ..around
        };
        assert_eq!(ended(&around), None);
        let hint = missing(&around, "FileNotFoundError", &file("data/table.csv"));
        assert!(hint.is_some_and(|hint| hint.contains("`--in data/table.csv` copies it")));
        let hint = missing(&around, "FileNotFoundError", &file("../secret"));
        assert_eq!(hint, None);
        let around = Surroundings {
            is_shown: true,
            ..around
        };
        assert_eq!(
            missing(&around, "ModuleNotFoundError", &module("helper")),
            None
        );
    }
}
