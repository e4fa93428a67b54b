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
mod mutate_jail;
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

/// An error message for the user.
type Error = Box<dyn std::error::Error>;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test         makes the test environments, then runs every test: as the current user and,
               where that is root, the kernel tests as an ordinary user too; then those of
               the Python package
  test-python  the tests of the Python package alone
  test-package `cargo install` from the packages as crates.io would have them, and a first run
  test-envs    makes the test environments under target/test-envs, which plain
               `cargo test` then finds
  bench        measures all of Sandfork beside what one would pick instead, in one run, and writes a
               table, data and a chart; --quick, --python PATH, or one part of it: spawn, memory,
               overhead
  vm           boots Debian's kernels under qemu and runs the tests there that depend on the kernel:
               --kernel 6.1|6.12, --user root|delegated|plain (all, where not named),
               --test kernel|landlock_level|seccomp_kernel|escape, and after -- what is for them
  fuzz         every reader of hostile bytes, with the inputs that CI tries; --seconds N for each
               target, --seed N|fresh, --keep what goes a new way, --replay FILE; TARGET...
  supply       licences, sources, versions and advisories of all dependencies; needs cargo-deny and
               cargo-audit
  msrv         builds everything with the oldest Rust that Cargo.toml promises
  release      makes what users install, under target/release-files: packages, wheels, the command, a
               list of its parts, checksums; --target TRIPLE (x86_64, where not named), --try ROOT:
               installs the wheel in an older system's root directory, and runs code with it
  reproducible builds the release twice, in two places, and compares
  bench-map    runs HumanEval's programs 20 times over, through `sandfork map` and otherwise, and
               compares; --rounds N, --jobs N
  faults       makes every system call of the set-up fail in every way, leaves out every step
               of the jail, and kills everyone at every call, and puts the table into
               docs/threat-model.md; or, anew, those with NAME in their name
  soak         has very many guests of every kind run, and looks for what is left of them:
               --runs N, --seed N
  deadlines    has guests that do not want to end come to their limit, and measures how long their end
               takes; --guests N
  probes       runs the escape tests, and puts their table into docs/threat-model.md
  mutate-jail  deletes every filter rule, mount flag, Landlock right, limit and step of the jail in turn, and
               says who notices; or those with one of NAME... in their name. As root
  ablate       runs the escape tests without one layer after the other, or without LAYER..., and says what
               that layer alone stops. As root";

fn main() -> ExitCode {
    // In a guest of `vm`, the kernel starts only this program.
    if std::process::id() == 1 {
        vm::guest_main();
    }
    // Arguments after `--` are for the program that is run.
    if std::env::args()
        .take_while(|it| it != "--")
        .any(|it| it == "--help")
    {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let command = std::env::args().nth(1);
    let done = match command.as_deref() {
        Some("test") => test::run(),
        Some("test-python") => test::run_python(),
        Some("test-envs") => test_envs::make(&workspace()).map(|_| ExitCode::SUCCESS),
        Some("bench") => bench::run(std::env::args().skip(2)),
        Some("vm") => vm::run(std::env::args().skip(2)),
        Some("fuzz") => fuzz::run(std::env::args().skip(2)),
        Some("supply") => supply::check(),
        Some("msrv") => supply::oldest_rust(),
        Some("release") => release::run(std::env::args().skip(2)),
        Some("test-package") => package::test_install().map(|tally| test::report(&tally)),
        Some("reproducible") => supply::reproducible(),
        Some("faults") => faults::run(std::env::args().nth(2).as_deref()),
        Some("deadlines") => deadlines::run(std::env::args().skip(2)),
        Some("soak") => soak::run(std::env::args().skip(2)),
        Some("probes") => probes::run(),
        Some("mutate-jail") => mutate_jail::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        Some("ablate") => ablate::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        Some("bench-map") => bench_map::run(std::env::args().skip(2)),
        _ => Err(USAGE.into()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}

/// The root of the workspace.
fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}
