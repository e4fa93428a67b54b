//! Finds the Python interpreters of this machine.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use serde::Serialize;

/// The versions for which a test environment can be made.
const SUPPORTED: std::ops::RangeInclusive<(u32, u32)> = (3, 9)..=(3, 14);

/// Runs on every Python since 2.7. In a virtual environment, prints the interpreter that it was made
/// from.
const ASK: &str = "\
import os, platform, sys, sysconfig
print(platform.python_implementation())
print('%d.%d.%d' % tuple(sys.version_info[:3]))
print(os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable))
print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)
";

/// An interpreter.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Interpreter {
    /// The version from `sys.version_info`.
    pub version: [u32; 3],
    /// The path of the binary.
    pub executable: PathBuf,
}

/// The interpreters that tests run with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Versions {
    /// The oldest and the newest, between which the others rarely differ, and the system's, which every user can
    /// execute, or else `python3`.
    Ends,
    /// All.
    All,
}

impl Versions {
    /// Selects from these interpreters, oldest first.
    pub fn of(self, mut found: Vec<Interpreter>) -> Vec<Interpreter> {
        if self == Self::Ends {
            let usual = ["/usr/bin/python3", "python3"].map(|it| Interpreter::ask(Path::new(it)));
            let usual = usual.iter().flatten().find(|it| it.is_supported());
            let chosen = usual.into_iter().chain(found.first()).chain(found.last());
            let versions: Vec<_> = chosen.map(|it| it.version).collect();
            found.retain(|it| versions.contains(&it.version));
        }
        found
    }
}

/// The interpreters found, one for each version.
#[derive(Debug, Default)]
pub struct Found {
    /// CPython 3.9 and later.
    pub supported: Vec<Interpreter>,
    /// Older ones, which Sandfork must refuse.
    pub too_old: Vec<Interpreter>,
}

impl Interpreter {
    /// Returns the version, such as `3.12.1`.
    pub fn version_text(&self) -> String {
        self.version.map(|number| number.to_string()).join(".")
    }

    /// Returns whether a test environment can be made for it.
    pub fn is_supported(&self) -> bool {
        let [major, minor, _] = self.version;
        SUPPORTED.contains(&(major, minor))
    }

    /// Runs a program to identify it. Returns `None` unless it is CPython with a GIL.
    pub fn ask(candidate: &Path) -> Option<Self> {
        let mut command = Command::new(candidate);
        let answer = command
            .args(["-E", "-s", "-c", ASK])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let answer = String::from_utf8(answer.stdout).ok()?;
        match answer.lines().collect::<Vec<_>>()[..] {
            ["CPython", version, executable, "0"] => {
                let mut numbers = version.split('.').map(|number| number.parse().ok());
                let version = [numbers.next()??, numbers.next()??, numbers.next()??];
                Some(Self {
                    version,
                    executable: executable.into(),
                })
            }
            _ => None,
        }
    }
}

/// Finds every interpreter on `PATH`, of pyenv and uv, and of the system. Of several with the same
/// version, the first one found is used.
pub fn find() -> Found {
    let mut by_version = BTreeMap::new();
    for candidate in candidates().iter().filter(|candidate| candidate.is_file()) {
        if let Some(interpreter) = Interpreter::ask(candidate) {
            by_version.entry(interpreter.version).or_insert(interpreter);
        }
    }
    let mut found = Found::default();
    for interpreter in by_version.into_values() {
        let [major, minor, _] = interpreter.version;
        if interpreter.is_supported() {
            found.supported.push(interpreter);
        } else if (major, minor) < *SUPPORTED.start() {
            found.too_old.push(interpreter);
        }
    }
    found
}

/// Returns `PATH` with the directory of the real `python3` prepended. A version manager's shim is a shell script, which
/// takes longer than the interpreter and a sandbox together.
pub fn path_without_shims() -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let python = Interpreter::ask(Path::new("python3"));
    let beside = python.and_then(|it| it.executable.parent().map(Path::to_owned));
    let directories = beside.filter(|it| it.join("python3").exists());
    Ok(env::join_paths(
        directories.into_iter().chain(env::split_paths(&path)),
    )?)
}

fn candidates() -> Vec<PathBuf> {
    let search_path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from).into();
    directories.extend(env::split_paths(&search_path));
    let home = env::home_dir().unwrap_or_default();
    let pyenv = env::var_os("PYENV_ROOT").map_or_else(|| home.join(".pyenv"), PathBuf::from);
    for installations in [pyenv.join("versions"), home.join(".local/share/uv/python")] {
        let installations = fs::read_dir(installations).into_iter().flatten().flatten();
        directories.extend(installations.map(|installation| installation.path().join("bin")));
    }
    let mut names = vec!["python3".to_owned(), "python".to_owned()];
    let minors = SUPPORTED.start().1..=SUPPORTED.end().1;
    names.extend(minors.map(|minor| format!("python3.{minor}")));
    let in_each = directories.iter();
    in_each
        .flat_map(|directory| names.iter().map(|name| directory.join(name)))
        .collect()
}
