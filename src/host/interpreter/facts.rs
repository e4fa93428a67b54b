//! Derives a plan's interpreter data from the few facts that only the interpreter itself knows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Interpreter, Link, OLDEST, broken, closed, unsuitable};
use crate::error::Error;
use crate::policy::normalize;

/// Defines `_sandfork_facts()`, which returns the text for [`Interpreter::from_facts`]. It is written for CPython 3.9
/// and later, and runs on any Python 3.
pub const FACTS_SCRIPT: &str = include_str!("facts.py");

/// The maximum number of links that the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

impl Interpreter {
    /// Parses the output of `_sandfork_facts()`, and rejects an unsuitable interpreter.
    ///
    /// `probed` is the path under which the interpreter ran, for error messages.
    pub fn from_facts(facts: &str, probed: &Path) -> Result<Self, Error> {
        let broken = |how: &str| broken(probed, &format!("its answer cannot be read: {how}"));
        let fields: Vec<&str> = facts.trim_end_matches('\n').split('\0').collect();
        let [
            executable,
            implementation,
            version,
            abiflags,
            prefix,
            base_prefix,
            base_exec_prefix,
            stdlib,
            _byte_code,
        ] = fields[..]
        else {
            return Err(broken(&format!(
                "it has {} fields instead of 9",
                fields.len()
            )));
        };
        let version = parse_version(version).ok_or_else(|| broken("it has no version"))?;
        let paths = [executable, prefix, base_prefix, base_exec_prefix, stdlib].map(Path::new);
        if let Some(path) = paths.iter().find(|path| !path.is_absolute()) {
            let path = path.display();
            return Err(broken(&format!("it names the relative path `{path}`")));
        }
        let [executable, prefix, base_prefix, base_exec_prefix, stdlib] = paths;
        check(probed, implementation, version, abiflags)?;
        let (links, binary) = follow(executable);
        let venv = virtual_environment(executable);
        Ok(Self {
            executable: executable.to_owned(),
            links,
            implementation: implementation.to_owned(),
            version,
            prefix: venv.as_deref().unwrap_or(prefix).to_owned(),
            base_prefix: base_prefix.to_owned(),
            stdlib: stdlib.to_owned(),
            programs: programs(base_prefix, &binary, version),
            libraries: libraries(
                stdlib,
                [Some(base_prefix), Some(base_exec_prefix), venv.as_deref()],
            ),
            venv,
            closed: closed(&binary, 0o005),
            binary,
        })
    }
}

fn parse_version(text: &str) -> Option<(u8, u8, u8)> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    Some((next()?, next()?, next()?))
}

fn check(
    probed: &Path,
    implementation: &str,
    (major, minor, patch): (u8, u8, u8),
    abiflags: &str,
) -> Result<(), Error> {
    let what = if implementation != "cpython" {
        format!("not CPython but {implementation}")
    } else if (major, minor) < OLDEST {
        format!("Python {major}.{minor}.{patch}")
    } else if abiflags.contains('t') {
        "a free-threaded build of CPython".to_owned()
    } else {
        return Ok(());
    };
    Err(unsuitable(probed, &what))
}

/// Returns the symbolic links from a path to the file, and the file, with `..` resolved lexically as Python's
/// `os.path.normpath` does.
pub(super) fn follow(path: &Path) -> (Vec<Link>, PathBuf) {
    let (mut links, mut path) = (Vec::new(), path.to_owned());
    while links.len() < MAX_LINKS
        && let Ok(points_at) = fs::read_link(&path)
    {
        let beside = path.parent().unwrap_or(&path);
        let next = normalize(&beside.join(&points_at));
        links.push(Link { path, points_at });
        path = next;
    }
    (links, path)
}

/// Returns the virtual environment to which an interpreter belongs, if any.
fn virtual_environment(executable: &Path) -> Option<PathBuf> {
    let home = executable.parent()?.parent()?;
    home.join("pyvenv.cfg").is_file().then(|| home.to_owned())
}

/// Returns the directories that guests need for programs. A conda environment keeps data all over its prefix, so the
/// whole prefix is needed. Any other prefix, such as `~/.local`, may be shared with unrelated files: only its programs
/// are needed, and its headers, for compiling extensions.
fn programs(base_prefix: &Path, binary: &Path, (major, minor, _): (u8, u8, u8)) -> Vec<PathBuf> {
    if base_prefix.join("conda-meta").is_dir() {
        return vec![base_prefix.to_owned()];
    }
    let beside = binary.parent().unwrap_or(binary).to_owned();
    let headers = base_prefix.join(format!("include/python{major}.{minor}"));
    [beside]
        .into_iter()
        .chain(headers.is_dir().then_some(headers))
        .collect()
}

fn libraries(stdlib: &Path, bases: [Option<&Path>; 3]) -> Vec<PathBuf> {
    let beneath = |base: &Path| ["lib", "lib64"].map(|name| base.join(name));
    let named = bases.into_iter().flatten().flat_map(beneath);
    let all: BTreeSet<PathBuf> = named.chain([stdlib.to_owned()]).collect();
    all.into_iter().filter(|path| path.is_dir()).collect()
}
