//! Makes virtual environments with listed packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::interpreters::Interpreter;

/// Written last, so that an incomplete environment is made again.
const STAMP: &str = "made-from.txt";

/// Makes an environment, unless it already exists with these packages. Returns its interpreter.
/// `requirements` lists every package, so that no dependency is resolved.
pub fn make(interpreter: &Interpreter, directory: &Path, requirements: &str) -> Result<PathBuf> {
    let python = directory.join("bin/python");
    let base = &interpreter.executable;
    let stamp = format!("{}\n{requirements}", base.display());
    if fs::read_to_string(directory.join(STAMP)).is_ok_and(|found| found == stamp) {
        return Ok(python);
    }
    println!("making {} (once)", directory.display());
    let sh = Shell::new()?;
    sh.remove_path(directory)?;
    cmd!(sh, "{base} -m venv {directory}").quiet().run().context(
        "there is no virtual environment; on Debian and Ubuntu, `apt install python3-venv` adds what \
         Python's package leaves out",
    )?;
    let list = directory.join("requirements.txt");
    sh.write_file(&list, requirements)?;
    // All packages are listed and prebuilt: no compiler and no dependency resolution is needed.
    cmd!(
        sh,
        "{python} -I -m pip install --quiet --no-input --disable-pip-version-check --no-deps
         --only-binary=:all: --requirement {list}"
    )
    .quiet()
    .run()
    .context(
        "pip could not install xtask's requirements; the first run needs the Python package index (set \
         PIP_INDEX_URL or HTTPS_PROXY where it is behind a mirror or a proxy), later ones do not",
    )?;
    sh.write_file(directory.join(STAMP), stamp)?;
    Ok(python)
}
