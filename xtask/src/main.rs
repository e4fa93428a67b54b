//! The project's maintenance commands.

mod ablate;
mod bench;
mod bench_map;
mod clients;
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

use clap::Parser as _;

use self::python::Versions;

/// An error message for the user.
type Error = Box<dyn std::error::Error>;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test         makes the test environments, then runs every test: as the current user and,
               where that is root, the kernel tests as an ordinary user too; then those of
               the Python package with the oldest and the newest interpreter (--all: one of each
               version), and of the packages
  test envs    makes the test environments under target/test-envs, which plain
               `cargo test` then finds
  test python  the tests of the Python package alone; --all
  test package `cargo install` from the packages as crates.io would have them, and a first run
  bench        measures all of Sandfork beside what one would pick instead, in one run, and writes a
               table, data and a chart; --quick, --python PATH, or one part of it: spawn, memory,
               overhead
  bench map    runs HumanEval's programs 20 times over, through `sandfork map` and otherwise, and
               compares; --rounds N, --jobs N
  fuzz         every reader of hostile bytes, with the inputs that CI tries; --seconds N for each
               target, --seed N|fresh, --replay FILE; TARGET...
  lines        counts the lines of code of the product and of these tools, without tests
  release      makes what users install, under target/release-files: packages, wheels, the command, a
               list of its parts, checksums; --target TRIPLE (both, where not named), --try ROOT:
               installs the wheel in an older system's root directory, and runs code with it

  verify probes       runs the escape tests, and puts their table into docs/threat-model.md
  verify faults       makes every system call of the set-up fail in every way, leaves out every
                      step of the jail, and kills each process at every call, and puts the table
                      into docs/threat-model.md; or, anew, those with NAME in their name
  verify mutants      deletes every filter rule, mount flag, Landlock right, limit and step of the
                      jail in turn, and says which check detects it; or those with one of NAME... in
                      their name. As root
  verify ablate       runs the escape tests without one layer after the other, or without LAYER...,
                      and says what that layer alone stops. As root
  verify soak         runs very many guests of every kind, and looks for what is left of them:
                      --runs N, --seed N
  verify deadlines    runs guests that resist their end to their limit, and measures how long their
                      end takes; --guests N
  verify vm           boots Debian's kernels under qemu and runs the tests there that depend on the
                      kernel: --kernel 6.1|6.12, --user root|delegated|plain (all, where not named),
                      --test kernel|landlock_level|seccomp_kernel|escape, and after -- what is for them
  verify supply       licences, sources, versions and advisories of all dependencies; needs cargo-deny
                      and cargo-audit
  verify msrv         builds everything with the oldest Rust that Cargo.toml promises
  verify reproducible builds the release twice, in two places, and compares";

fn main() -> ExitCode {
    // In a guest of `verify vm`, the kernel starts only this program.
    if std::process::id() == 1 {
        vm::guest_main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Arguments after `--` are for the program that is run.
    if arguments
        .iter()
        .take_while(|it| *it != "--")
        .any(|it| it == "--help")
    {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(&words).unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}

fn run(words: &[&str]) -> Result<ExitCode, Error> {
    let owned = |rest: &[&str]| -> Vec<String> { rest.iter().map(|&it| it.to_owned()).collect() };
    match words {
        ["test"] => test::run(Versions::Ends),
        ["test", "--all"] => test::run(Versions::All),
        ["test", "envs"] => test_envs::make(&workspace()).map(|_| ExitCode::SUCCESS),
        ["test", "python"] => test::run_python(Versions::Ends),
        ["test", "python", "--all"] => test::run_python(Versions::All),
        ["test", "package"] => package::test_install().map(|tally| test::report(&tally)),
        ["bench", "map", rest @ ..] => bench_map::run(owned(rest).into_iter()),
        ["bench", rest @ ..] => bench::run(owned(rest).into_iter()),
        ["lines"] => lines::run(),
        ["fuzz", ..] => fuzz::run(&fuzz::Options::parse_from(words)),
        ["release", rest @ ..] => release::run(owned(rest).into_iter()),
        ["verify", "probes"] => probes::run(),
        ["verify", "faults"] => faults::run(None),
        ["verify", "faults", name] => faults::run(Some(name)),
        ["verify", "mutants", names @ ..] => mutants::run(&owned(names)),
        ["verify", "ablate", layers @ ..] => ablate::run(&owned(layers)),
        ["verify", "soak", rest @ ..] => soak::run(owned(rest).into_iter()),
        ["verify", "deadlines", rest @ ..] => deadlines::run(owned(rest).into_iter()),
        ["verify", "vm", rest @ ..] => vm::run(owned(rest).into_iter()),
        ["verify", "supply"] => supply::check(),
        ["verify", "msrv"] => supply::oldest_rust(),
        ["verify", "reproducible"] => supply::reproducible(),
        _ => Err(USAGE.into()),
    }
}

/// The root of the workspace.
fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}
