//! The virtual environments of the host's side: what the Python package and its users are tested in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::test_envs::TestEnv;
use crate::venv::Venv;

const REQUIREMENTS: &str = include_str!("../python-requirements.txt");

/// The release whose own tests are run with our executor in it.
const SMOLAGENTS: &str = "smolagents==1.26.0";

/// Where all of them are.
pub fn root(workspace: &Path) -> PathBuf {
    workspace.join("target/python-envs")
}

/// Makes the one that belongs to the environment of a guest, if it is missing; its interpreter.
pub fn make(workspace: &Path, guest: &TestEnv) -> Result<PathBuf, Error> {
    let [major, minor, _] = guest.interpreter.version;
    fs::create_dir_all(root(workspace))?;
    let name = format!("cpython-{}", guest.interpreter.version_text());
    let directory = root(workspace).join(name);
    let venv = Venv {
        interpreter: &guest.interpreter,
        directory: &directory,
        requirements: REQUIREMENTS,
    };
    venv.make()?;
    // numpy and pandas are those of the guest: values that cross are then equal on both sides.
    let packages = format!("lib/python{major}.{minor}/site-packages");
    fs::write(
        directory.join(&packages).join("guest-packages.pth"),
        format!("{}\n", guest.directory.join(&packages).display()),
    )?;
    Ok(venv.python())
}

/// The directory that has smolagents' source distribution, with its tests; it is empty where that
/// could not be downloaded, and what needs it then says so.
pub fn smolagents_source(workspace: &Path, python: &Path) -> Result<PathBuf, Error> {
    let directory = root(workspace).join("smolagents-source");
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
