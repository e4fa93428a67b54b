//! Virtual environments with listed packages, made once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::Error;
use crate::interpreters::Interpreter;

/// Written last, so that an incomplete environment is made again.
const STAMP: &str = "made-from.txt";

/// The specification of a virtual environment.
#[derive(Clone, Copy, Debug)]
pub struct Venv<'a> {
    /// The Python to make it with.
    pub interpreter: &'a Interpreter,
    /// Its directory.
    pub directory: &'a Path,
    /// A requirements file that lists every package, so that no dependency is resolved.
    pub requirements: &'a str,
}

impl Venv<'_> {
    /// The path of its interpreter.
    pub fn python(&self) -> PathBuf {
        self.directory.join("bin/python")
    }

    /// Makes the environment, unless it already exists with these contents.
    pub fn make(&self) -> Result<(), Error> {
        let stamp = format!(
            "{}\n{}",
            self.interpreter.executable.display(),
            self.requirements
        );
        if fs::read_to_string(self.directory.join(STAMP)).is_ok_and(|found| found == stamp) {
            return Ok(());
        }
        println!("making {} (once)", self.directory.display());
        if self.directory.exists() {
            fs::remove_dir_all(self.directory)?;
        }
        self.make_empty()?;
        let requirements = self.directory.join("requirements.txt");
        fs::write(&requirements, self.requirements)?;
        let mut pip = self.pip();
        pip.args([
            "install",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ])
        // All packages are listed and prebuilt: no compiler and no dependency resolution is needed.
        .args(["--no-deps", "--only-binary=:all:", "--requirement"])
        .arg(&requirements);
        let installed = run(&mut pip)?;
        if !installed.status.success() {
            return Err(self.pip_failed(&installed).into());
        }
        fs::write(self.directory.join(STAMP), stamp)?;
        Ok(())
    }

    fn make_empty(&self) -> Result<(), Error> {
        let mut venv = Command::new(&self.interpreter.executable);
        let made = run(venv.args(["-m", "venv"]).arg(self.directory))?;
        if made.status.success() {
            return Ok(());
        }
        Err(format!(
            "{} could not make a virtual environment: {}; on Debian and Ubuntu, `apt install \
             python3-venv` adds what its package leaves out",
            self.interpreter.executable.display(),
            last_line(&made),
        )
        .into())
    }

    fn pip(&self) -> Command {
        let mut pip = Command::new(self.python());
        pip.args(["-I", "-m", "pip"]);
        pip
    }

    fn pip_failed(&self, output: &Output) -> String {
        format!(
            "pip could not install xtask's requirements into {}: {}; the first run needs the \
             Python package index (set PIP_INDEX_URL or HTTPS_PROXY where it is behind a mirror or a \
             proxy), later ones do not",
            self.directory.display(),
            last_line(output),
        )
    }
}

fn run(command: &mut Command) -> Result<Output, Error> {
    let program = command.get_program().to_owned();
    let output = command.stdin(Stdio::null()).output();
    output.map_err(|error| format!("could not run {}: {error}", program.display()).into())
}

fn last_line(output: &Output) -> String {
    let said =
        [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let last = said
        .iter()
        .flat_map(|text| text.lines().rev())
        .find(|line| !line.trim().is_empty());
    last.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned())
}
