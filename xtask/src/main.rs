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
    /// Makes the test environments, then runs every test: as the current user and, where that is root,
    /// the kernel tests as an ordinary user too; then those of the Python package and of the packages
    Test(test::Options),
    /// Measures all of Sandfork beside what one would pick instead, in one run, and writes a table,
    /// data and a chart. `map` runs HumanEval's programs through `sandfork map` and otherwise
    Bench(bench::Options),
    /// Runs CPython's own tests, packages and programs outside and inside a sandbox, and puts every
    /// difference into docs/compatibility.md
    Compat(compat::Options),
    /// Tries every reader of hostile bytes, with the inputs that CI tries unless others are asked for
    Fuzz(fuzz::Options),
    /// Counts the lines of code of the product and of these tools, without tests
    Lines,
    /// Makes what users install, under target/release-files: packages, wheels, the command, a list of
    /// its parts, checksums
    Release(release::Options),
    /// Checks that take long, or need more than CI has
    #[command(subcommand)]
    Verify(Verify),
}

#[derive(clap::Subcommand)]
enum Verify {
    /// Runs the escape tests, and puts their table into docs/threat-model.md
    Probes,
    /// Makes every system call of the set-up fail in every way, leaves out every step of the jail, and
    /// kills each process at every call, and puts the table into docs/threat-model.md
    Faults {
        /// Only those with NAME in their name
        name: Option<String>,
    },
    /// Deletes every filter rule, mount flag, Landlock right, limit and step of the jail in turn, and
    /// says which check detects it. As root
    Mutants {
        /// Only those with one of these in their name
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Runs the escape tests without one layer after the other, and says what that layer alone stops.
    /// As root
    Ablate {
        /// Only without these
        #[arg(value_name = "LAYER")]
        layers: Vec<String>,
    },
    /// Runs very many guests of every kind, and looks for what is left of them
    Soak(soak::Options),
    /// Runs guests that resist their end to their limit, and measures how long their end takes
    Deadlines {
        /// How many
        #[arg(long, default_value_t = 1_000)]
        guests: usize,
    },
    /// Boots Debian's kernels under qemu and runs the tests there that depend on the kernel
    Vm(vm::Options),
    /// Licences, sources, versions and advisories of all dependencies; needs cargo-deny and cargo-audit
    Supply,
    /// Builds everything with the oldest Rust that Cargo.toml promises
    Msrv,
    /// Compiles everything for each processor that releases are made for
    Targets,
    /// Builds the release twice, in two places, and compares
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
