//! The virtual environments of the host's side, in which the tests run the Python package and its
//! clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::test_envs::{self, TestEnv};
use crate::venv::Venv;

/// The same releases as the guests' packages, so that values compare equal on both sides.
const REQUIREMENTS: &str = concat!(
    include_str!("../test-requirements.txt"),
    include_str!("../python-requirements.txt")
);

/// The smolagents release whose own tests run with Sandfork's executor.
const SMOLAGENTS: &str = "smolagents==1.26.0";

/// The parent directory of the environments, which guests may also get.
pub fn root(workspace: &Path) -> Result<PathBuf, Error> {
    test_envs::place(&workspace.join("target/python-envs"), "python-envs")
}

/// Makes the environment that belongs to a guest's, if it is missing. Returns its interpreter.
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

/// The directory with smolagents' source distribution and its tests. It is empty if the download
/// failed, and the tests that need it report that.
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
