//! Who takes part on this machine, and who does not and why.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandfork::outcome::Enforced;

use crate::contestant::{BareForks, Contestant, Error, InFlight, Process, Ready, Sandboxes};
use crate::options::{Extent, Options};
use crate::session::{PythonClient, RustSessions};
use crate::subject::{Preload, Subject};

/// All contestants.
pub struct Field {
    pub entries: Vec<Entry>,
    /// Facts for the head of the table.
    pub facts: Facts,
    /// One sentence for each who is left out.
    pub left_out: Vec<String>,
}

/// A contestant and how often it has its turn.
pub struct Entry {
    pub every: usize,
    pub contestant: Box<dyn Contestant>,
}

/// What was measured on.
#[derive(Clone, Debug)]
pub struct Facts {
    pub python: PathBuf,
    pub version: (u8, u8, u8),
    /// The launcher script that PATH has, where the interpreter itself is another file.
    pub launcher: Option<PathBuf>,
    /// The interpreter of the rows with preloaded modules, where it is another.
    pub preload_python: Option<PathBuf>,
    /// What was verified of a sandbox.
    pub enforced: Enforced,
}

/// Imports of hundreds of milliseconds have a turn in so many rounds.
const SELDOM: usize = 10;

impl Field {
    pub fn assemble(options: &Options) -> Result<Self, Error> {
        let wanted = options
            .python
            .clone()
            .unwrap_or_else(|| PathBuf::from("python3"));
        let bare = Sandboxes::new(&wanted, Preload::Nothing)?;
        let interpreter = &bare.sandbox().plan().interpreter;
        let facts = Facts {
            python: interpreter.executable.clone(),
            version: interpreter.version,
            launcher: launcher(&wanted),
            preload_python: None,
            enforced: bare.last().enforced().clone(),
        };
        let mut field = Self {
            entries: Vec::new(),
            facts,
            left_out: Vec::new(),
        };
        let python = field.facts.python.clone();
        field.enter(python_with(&python, Preload::Nothing), 1)?;
        field.enter(Ok(bare), 1)?;
        field.enter(BareForks::new(&python, Preload::Nothing), 1)?;
        field.enter(Ready::new(&python), 1)?;
        field.enter(InFlight::new(&python), SELDOM)?;
        field.enter_if_able(Subject::ColdRun, cold_run(&python));
        let bubblewrap = Process::new(Subject::Bubblewrap, bubblewrap(&python));
        field.enter_if_able(Subject::Bubblewrap, bubblewrap);
        field.enter(RustSessions::new(&python), 1)?;
        if let Err(why) = field.enter(PythonClient::new(&python), 1) {
            field.left_out.push(format!("the Python client: {why}"));
        }
        field.enter_preloaded(options)?;
        Ok(field)
    }

    fn enter_preloaded(&mut self, options: &Options) -> Result<(), Error> {
        let preloads: &[Preload] = match options.extent {
            Extent::Full => &[Preload::Numpy, Preload::NumpyAndPandas],
            Extent::Quick => &[Preload::NumpyAndPandas],
        };
        for &preload in preloads {
            let modules = preload.modules().join(", ");
            let Some(python) = interpreter_with(preload, &self.facts) else {
                self.left_out.push(format!(
                    "{modules} preloaded: no interpreter has them; `cargo xtask test-envs` makes one"
                ));
                continue;
            };
            self.enter(Sandboxes::new(&python, preload), 1)?;
            self.enter(BareForks::new(&python, preload), 1)?;
            self.enter(python_with(&python, preload), SELDOM)?;
            self.facts.preload_python = Some(python).filter(|path| *path != self.facts.python);
        }
        Ok(())
    }

    fn enter(
        &mut self,
        contestant: Result<impl Contestant + 'static, Error>,
        every: usize,
    ) -> Result<(), Error> {
        let contestant = Box::new(contestant?);
        self.entries.push(Entry { every, contestant });
        Ok(())
    }

    fn enter_if_able(&mut self, subject: Subject, process: Result<Process, Error>) {
        if let Err(why) = self.enter(process, 1) {
            self.left_out.push(format!("{subject}: {why}"));
        }
    }
}

fn python_with(python: &Path, preload: Preload) -> Result<Process, Error> {
    let mut command = Command::new(python);
    command.arg("-c").arg(match preload.modules().last() {
        Some(module) => format!("import {module}"),
        None => "pass".to_owned(),
    });
    Process::new(Subject::Python(preload), command)
}

fn cold_run(python: &Path) -> Result<Process, Error> {
    let run = |code| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        let interpreter = format!("python.interpreter={}", python.display());
        command.args(["run", "--set", &interpreter, "-c", code]);
        command
    };
    // An exit status of 0 alone is no evidence that anything ran.
    let printed = run("print(6 * 7)").output()?.stdout;
    if printed != b"42\n" {
        return Err(format!("printed {:?} for 6 * 7", String::from_utf8_lossy(&printed)).into());
    }
    Process::new(Subject::ColdRun, run("pass"))
}

/// As its own manual has it for untrusted programs: every namespace, the host read-only.
fn bubblewrap(python: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command
        .args([
            "--unshare-all",
            "--die-with-parent",
            "--new-session",
            "--ro-bind",
            "/",
            "/",
        ])
        .args(["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--"])
        .arg(python)
        .args(["-c", "pass"]);
    command
}

/// The script that a bare name finds on PATH (pyenv's shim, say), if it is one.
fn launcher(wanted: &Path) -> Option<PathBuf> {
    let found = std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(wanted))
        .find(|path| path.is_file())?;
    let text = fs::read(&found).ok()?;
    text.starts_with(b"#!").then_some(found)
}

/// The interpreter itself, or one of the test environments, the same version's first.
fn interpreter_with(preload: Preload, facts: &Facts) -> Option<PathBuf> {
    let (major, minor, patch) = facts.version;
    let same_version = format!("cpython-{major}.{minor}.{patch}");
    let mut environments: Vec<PathBuf> = fs::read_dir(target_directory().join("test-envs"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    environments.sort_by_key(|path| (!path.ends_with(&same_version), path.clone()));
    let theirs = environments.into_iter().map(|path| path.join("bin/python"));
    std::iter::once(facts.python.clone())
        .chain(theirs)
        .find(|python| has_modules(python, preload))
}

fn has_modules(python: &Path, preload: Preload) -> bool {
    let mut command = Command::new(python);
    command.arg("-c").arg("import importlib.util, sys\nsys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))");
    command
        .args(preload.modules())
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Where cargo builds.
pub fn target_directory() -> &'static Path {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().unwrap_or(temporary)
}
