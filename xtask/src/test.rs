//! Runs every test of the project, with its set-up.

use std::env;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::unistd::geteuid;
use serde_json::Value;
use xshell::cmd;

use crate::interpreters::{self, Versions};
use crate::ordinary_user::OrdinaryUser;
use crate::python;
use crate::tally::Tally;
use crate::test_envs::{self, TestEnvs};
use crate::{package, shell, supply, vm};

/// Kernel tests of the Python code or the plan, whose results do not depend on the user. With `--all`, they run for
/// each user.
const AS_ONE_USER: [&str; 11] = [
    "bad_input::interpreters",
    "bad_input::preloads",
    "compat::",
    "cost::",
    "humaneval::",
    "machine::",
    "outcomes_by_python::",
    "sessions::terms",
    "sessions::tools",
    "sessions::types",
    "sessions::values",
];

#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(subcommand)]
    part: Option<Part>,
    /// Test with every interpreter found, not only `python3`, the oldest and the newest, and run the whole suites of
    /// inspect_ai and LangChain
    #[arg(long, global = true)]
    all: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Makes the environments of all tests; plain `cargo test` finds those under target/test-envs
    Envs,
    /// The tests of the Python package alone
    Python,
    /// `cargo install` from the packages as crates.io would have them, and a first run
    Package,
}

pub fn run(options: &Options) -> Result<()> {
    let versions = if options.all {
        Versions::All
    } else {
        Versions::Ends
    };
    match options.part {
        None => test_all(versions)?.report(),
        Some(Part::Envs) => python::prepare(&test_envs::make(versions)?, versions),
        Some(Part::Python) => {
            let envs = test_envs::make(versions)?;
            // The command looks for the server in its own directory.
            built(
                "sandfork-server",
                &["build", "--package", "sandfork-server"],
            )?;
            python::test(&envs, &binary("dev")?, versions)?.report()
        }
        Some(Part::Package) => package::install()?.tally.report(),
    }
}

fn test_all(versions: Versions) -> Result<Tally> {
    let sh = shell()?;
    sh.set_var("PATH", interpreters::path_without_shims()?);
    let envs = timed("environments", || test_envs::make(versions))?;
    timed("building the tests", || {
        Ok(cmd!(sh, "cargo test --workspace --no-run").quiet().run()?)
    })?;
    let mut tally = timed("`cargo test`", || {
        let tests = cmd!(sh, "cargo test --workspace --no-fail-fast");
        Tally::of(tests, Tally::read)
    })?;
    if geteuid().is_root() {
        tally.add(timed("as an ordinary user", || {
            as_ordinary_user(&envs, versions)
        })?);
    } else {
        println!("\nnot root: the tests as root were not run");
    }
    let installed = timed("installing the packages", package::install)?;
    if installed.tally.is_success() {
        // With the installed programs.
        let command = installed.command();
        tally.add(timed("the Python package", || {
            python::test(&envs, &command, versions)
        })?);
    }
    tally.add(installed.tally);
    tally.add(timed("another kernel", in_a_guest)?);
    tally.add(timed("dependencies", supply::test)?);
    Ok(tally)
}

/// Runs a part and prints how long it took.
fn timed<T>(part: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let done = act();
    println!("\n{part}: {} s", begun.elapsed().as_secs());
    done
}

/// The environment variable that names a kernel to boot, such as 6.1, with cgroups of version 2.
const GUEST: &str = "SANDFORK_VM";

/// Runs some of the tests on another kernel. This must be requested, because it downloads the kernel
/// and needs qemu.
fn in_a_guest() -> Result<Tally> {
    match env::var(GUEST) {
        Ok(_) if !vm::is_possible() => Ok(Tally::skipped("no qemu-system-x86_64 for a guest")),
        Ok(line) => vm::sample(&line),
        Err(_) => Ok(Tally::skipped(
            "no guest with another kernel was asked for: `SANDFORK_VM=6.1`",
        )),
    }
}

fn as_ordinary_user(envs: &TestEnvs, versions: Versions) -> Result<Tally> {
    let user = OrdinaryUser::prepare(envs)?;
    println!("\nas an ordinary user ({user}):");
    // Built with the features of the whole workspace: with this package's alone, it would be recompiled.
    let program = built("kernel", &["test", "--workspace", "--no-run"])?;
    let mut command = user.command(&program)?;
    if versions == Versions::Ends {
        command.args(AS_ONE_USER.iter().flat_map(|name| ["--skip", name]));
    }
    Tally::of(command, Tally::read)
}

/// Builds the command with a profile of Cargo.toml and returns its path.
pub fn binary(profile: &str) -> Result<PathBuf> {
    built(
        "sandfork",
        &["build", "--bin", "sandfork", "--profile", profile],
    )
}

/// Builds a test program with a profile of Cargo.toml and returns its path.
pub fn test_program(name: &str, profile: &str) -> Result<PathBuf> {
    built(
        name,
        &["test", "--no-run", "--test", name, "--profile", profile],
    )
}

/// Runs `cargo COMMAND` and returns the path of the executable `name` that it builds.
pub fn built(name: &str, command: &[&str]) -> Result<PathBuf> {
    let sh = shell()?;
    let build = cmd!(sh, "cargo {command...} --quiet --message-format=json");
    let messages = build.quiet().ignore_status().read()?;
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == name;
        message["executable"]
            .as_str()
            .filter(|_| is_it)
            .map(PathBuf::from)
    });
    executable.with_context(|| format!("`cargo {}` built nothing", command.join(" ")))
}
