//! Runs every test of the project, with the set-up that they need.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use nix::unistd::geteuid;
use serde_json::Value;

use crate::ordinary_user::OrdinaryUser;
use crate::python::Versions;
use crate::tally::Tally;
use crate::test_envs::{self, TestEnvs};
use crate::{Error, package, python, supply, vm, workspace};

/// The test programs that depend on the user who runs them.
const KERNEL_TESTS: [&str; 1] = ["kernel"];

/// Runs all tests and prints the counts in the last line.
pub fn run(versions: Versions) -> Result<ExitCode, Error> {
    let workspace = workspace();
    let envs = test_envs::make(&workspace)?;
    let mut tally = Tally::of(cargo(&workspace).args(["test", "--workspace", "--no-fail-fast"]))?;
    if geteuid().is_root() {
        tally.add(as_ordinary_user(&workspace, &envs)?);
    } else {
        println!("\nnot root: the tests as root were not run");
    }
    tally.add(of_python(&workspace, &envs, versions)?);
    tally.add(package::test_install()?);
    tally.add(in_a_guest()?);
    tally.add(supply::test()?);
    Ok(report(&tally))
}

/// Names a kernel to boot, such as 6.1, with cgroups of version 2.
const GUEST: &str = "SANDFORK_VM";

/// Runs some of the tests on another kernel. It must be requested, because it downloads the kernel
/// and needs qemu.
fn in_a_guest() -> Result<Tally, Error> {
    match env::var(GUEST) {
        Ok(_) if !vm::is_possible() => Ok(Tally::skipped("no qemu-system-x86_64 for a guest")),
        Ok(line) => vm::sample(line.parse()?),
        Err(_) => Ok(Tally::skipped(
            "no guest with another kernel was asked for: `SANDFORK_VM=6.1`",
        )),
    }
}

/// Runs the tests of the Python package.
pub fn run_python(versions: Versions) -> Result<ExitCode, Error> {
    let workspace = workspace();
    let envs = test_envs::make(&workspace)?;
    Ok(report(&of_python(&workspace, &envs, versions)?))
}

fn of_python(workspace: &Path, envs: &TestEnvs, versions: Versions) -> Result<Tally, Error> {
    python::test(workspace, envs, &binary(workspace, Profile::Dev)?, versions)
}

/// The path of the command that cargo built.
pub fn binary(workspace: &Path, profile: Profile) -> Result<PathBuf, Error> {
    let build = ["build", "--bin", "sandfork", "--profile", profile.name()];
    built(workspace, &build, |message| {
        message["target"]["name"] == "sandfork" && message["target"]["kind"][0] == "bin"
    })
}

/// How Cargo builds the programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Profile {
    /// The profile of `cargo test`.
    Dev,
    /// For an emulated processor: the whole of the tests takes a third of the time.
    Emulated,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Emulated => "emulated",
        }
    }
}

/// Prints the counts. Returns the exit code for them.
pub fn report(tally: &Tally) -> ExitCode {
    println!("\n{tally}");
    if tally.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn as_ordinary_user(workspace: &Path, envs: &TestEnvs) -> Result<Tally, Error> {
    let user = OrdinaryUser::prepare(envs)?;
    println!("\nas an ordinary user ({user}):");
    let mut tally = Tally::default();
    for name in KERNEL_TESTS {
        tally.add(Tally::of(&mut user.command(&test_program(
            workspace,
            name,
            Profile::Dev,
        )?)?)?);
    }
    Ok(tally)
}

/// The path of a test program that cargo built.
pub fn test_program(workspace: &Path, name: &str, profile: Profile) -> Result<PathBuf, Error> {
    let profile = profile.name();
    let build = ["test", "--no-run", "--test", name, "--profile", profile];
    built(workspace, &build, |message| {
        message["target"]["name"] == name && message["profile"]["test"] == true
    })
}

/// The path of the executable that this command builds and `is_it` accepts.
pub fn built(
    workspace: &Path,
    command: &[&str],
    is_it: impl Fn(&Value) -> bool,
) -> Result<PathBuf, Error> {
    let mut build = cargo(workspace);
    build
        .args(command)
        .args(["--quiet", "--message-format=json"]);
    let output = build.stderr(Stdio::inherit()).output()?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        is_it(&message).then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executable.ok_or_else(|| format!("`cargo {}` built nothing", command.join(" ")).into())
}

/// A cargo command in the workspace.
pub fn cargo(workspace: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace);
    cargo
}
