//! The virtual environments of the host's side: what the Python package and its users are tested in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::test_envs::{self, TestEnv};
use crate::venv::Venv;

/// With the guests' packages, in the same releases: values that cross are then equal on both sides.
const REQUIREMENTS: &str = concat!(
    include_str!("../test-requirements.txt"),
    include_str!("../python-requirements.txt")
);

/// The release whose own tests are run with our executor in it.
const SMOLAGENTS: &str = "smolagents==1.26.0";

/// Where all of them are: guests may have them, too.
pub fn root(workspace: &Path) -> Result<PathBuf, Error> {
    test_envs::place(&workspace.join("target/python-envs"), "python-envs")
}

/// Makes the one beside the environment of a guest, if it is missing; its interpreter.
pub fn make(workspace: &Path, guest: &TestEnv) -> Result<PathBuf, Error> {
    let root = root(workspace)?;
    fs::create_dir_all(&root)?;
    let directory = root.join(format!("cpython-{}", guest.interpreter.version_text()));
    let venv = Venv {
        interpreter: &guest.interpreter,
        directory: &directory,
        requirements: REQUIREMENTS,
    };
    venv.make()?;
    Ok(venv.python())
}

/// The directory that has smolagents' source distribution, with its tests; it is empty where that
/// could not be downloaded, and what needs it then says so.
pub fn smolagents_source(workspace: &Path, python: &Path) -> Result<PathBuf, Error> {
    let directory = root(workspace)?.join("smolagents-source");
    fs::create_dir_all(&directory)?;
    if fs::read_dir(&directory)?.next().is_none() {
        let mut pip = Command::new(python);
        pip.args(["-I", "-m", "pip", "download", "--quiet", "--no-deps"])
            .args(["--disable-pip-version-check", "--no-binary=smolagents"])
            .args([SMOLAGENTS, "--dest"])
            .arg(&directory);
        let status = pip.stdin(Stdio::null()).status()?;
        if !status.success() {
            eprintln!("{SMOLAGENTS} could not be downloaded: {status}");
        }
    }
    Ok(directory)
}
