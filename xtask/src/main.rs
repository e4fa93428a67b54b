//! The project's maintenance commands.

mod ablate;
mod at_once;
mod bench;
mod compat;
mod deadlines;
mod document;
mod faults;
mod fuzz;
mod interpreters;
mod lines;
mod mutants;
mod ordinary_user;
mod package;
mod probes;
mod python;
mod release;
mod soak;
mod supply;
mod tally;
mod test;
mod test_envs;
mod venv;
mod vm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use xshell::Shell;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about, disable_help_subcommand = true)]
enum Task {
    /// Creates the test environments, then runs every test: as the current user and, if that is root,
    /// the kernel tests as an ordinary user too; then the tests of the Python package and of the packages
    Test(test::Options),
    /// Measures Sandfork and its alternatives in one run, and writes a table, data and a chart.
    /// `map` runs HumanEval's programs through `sandfork map` and other executors
    Bench(bench::Options),
    /// Runs CPython's own tests, packages and programs outside and inside a sandbox, and writes every
    /// difference to docs/compatibility.md
    Compat(compat::Options),
    /// Fuzzes every reader of hostile bytes, by default with the inputs that CI uses
    Fuzz(fuzz::Options),
    /// Counts the lines of code of the product and of these tools, without tests
    Lines,
    /// Builds the release files in target/release-files: packages, wheels, the command, a bill of
    /// materials, checksums
    Release(release::Options),
    /// Runs checks that take long or need more than CI has
    #[command(subcommand)]
    Verify(Verify),
}

#[derive(clap::Subcommand)]
enum Verify {
    /// Runs the escape tests, and writes their table to docs/threat-model.md
    Probes,
    /// Makes every system call of the set-up fail in every way, leaves out every step of the jail, and
    /// kills each process at every call, and writes the table to docs/threat-model.md
    Faults {
        /// Run only tests with NAME in their names
        name: Option<String>,
    },
    /// Deletes every filter rule, mount flag, Landlock right, limit and step of the jail in turn, and
    /// reports which check detects it. Needs root
    Mutants {
        /// Run only mutants with one of these in their names
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Runs the escape tests with one layer removed at a time, and reports what that layer alone stops.
    /// Needs root
    Ablate {
        /// Remove only these layers
        #[arg(value_name = "LAYER")]
        layers: Vec<String>,
    },
    /// Runs very many guests of every kind, and looks for leaked resources
    Soak(soak::Options),
    /// Runs guests that resist termination until their limit, and measures how long it takes
    Deadlines {
        /// The number of guests
        #[arg(long, default_value_t = 1_000)]
        guests: usize,
    },
    /// Boots Debian's kernels under qemu, and runs the tests there that depend on the kernel
    Vm(vm::Options),
    /// Checks licences, sources, versions and advisories of all dependencies; needs cargo-deny and cargo-audit
    Supply,
    /// Builds everything with the oldest Rust version that Cargo.toml allows
    Msrv,
    /// Compiles everything for each release target
    Targets,
    /// Builds the release twice in two directories, and compares the results
    Reproducible,
}

fn main() -> ExitCode {
    // In a guest of `verify vm`, the kernel starts only this program.
    if std::process::id() == 1 {
        vm::guest_main();
    }
    match run(Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Test(options) => test::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Compat(options) => compat::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Lines => lines::run(),
        Task::Release(options) => release::run(&options),
        Task::Verify(Verify::Probes) => probes::run(),
        Task::Verify(Verify::Faults { name }) => faults::run(name.as_deref()),
        Task::Verify(Verify::Mutants { names }) => mutants::run(&names),
        Task::Verify(Verify::Ablate { layers }) => ablate::run(&layers),
        Task::Verify(Verify::Soak(options)) => soak::run(&options),
        Task::Verify(Verify::Deadlines { guests }) => deadlines::run(guests),
        Task::Verify(Verify::Vm(options)) => vm::run(options),
        Task::Verify(Verify::Supply) => supply::check(),
        Task::Verify(Verify::Msrv) => supply::oldest_rust(),
        Task::Verify(Verify::Targets) => release::compile(),
        Task::Verify(Verify::Reproducible) => supply::reproducible(),
    }
}

/// The root of the workspace.
fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Runs commands in the workspace.
fn shell() -> Result<Shell> {
    let sh = Shell::new()?;
    sh.change_dir(workspace());
    Ok(sh)
}
