//! Runs thousands of guests of every kind: nothing may be left behind or grow, and each caller must get its
//! own result.
//!
//! `cargo xtask verify soak` runs any number of them in the release build. Otherwise, as in CI, they take
//! about a minute.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test program"
)]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "what other tests share is there too")]
mod common;

#[path = "../common/apart.rs"]
mod apart;
#[path = "../common/census/mod.rs"]
mod census;
#[path = "../common/guests.rs"]
#[allow(dead_code, reason = "what other tests share is there too")]
mod guests;

mod answers;
mod client;
mod course;
mod kills;
mod library;
mod mix;
mod repertoire;
mod report;
mod served;

use std::env;
use std::fs;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed};
use sandfork::Level;

use course::Settings;
use sandfork_jail::sys::memory::keep_little;

/// The number of runs, instead of the default.
const RUNS: &str = "SANDFORK_SOAK_RUNS";
/// The seed of the requests, instead of the default.
const SEED: &str = "SANDFORK_SOAK_SEED";
/// The file for the report.
const REPORT: &str = "SANDFORK_SOAK_REPORT";
/// Set in the separate process that runs the soak.
const APART: &str = "SANDFORK_SOAK_APART";

const USUAL: Settings = Settings {
    runs: 5_000,
    seed: 20_261_122,
};

fn main() -> ExitCode {
    if env::var_os(APART).is_some() {
        return soak();
    }
    let trial = common::trial("nothing_is_left", Level::Standard, in_a_process_of_its_own);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

/// Runs the soak with its own directory for temporary files, so that leftovers there are found.
///
/// glibc caches freed memory in arenas, of which there are as many as threads ever allocated at once. The caches stop
/// growing only after some thousand runs. The few runs of CI use one arena, so that only the supervisor's growth shows.
fn in_a_process_of_its_own() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let mut soak = Command::new(env::current_exe()?);
    soak.env(APART, "1").env("TMPDIR", directory.path());
    if env::var_os(RUNS).is_none() {
        soak.env("MALLOC_ARENA_MAX", "1");
    }
    apart::finishes(&mut soak)
}

fn soak() -> ExitCode {
    let number = |name: &str| env::var(name).ok()?.parse().ok();
    let settings = Settings {
        runs: number(RUNS).map_or(USUAL.runs, |runs: u64| {
            usize::try_from(runs).unwrap_or(USUAL.runs)
        }),
        seed: number(SEED).unwrap_or(USUAL.seed),
    };
    eprintln!("{settings:?}");
    // Like the commands, `serve` among them.
    keep_little();
    // Mounts that others make meanwhile are not seen, if this user may have a mount namespace.
    apart::have_own_mounts();
    let report = match course::run(settings) {
        Ok(report) => report,
        Err(error) => {
            println!("the soak ended: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(path) = env::var_os(REPORT) {
        let json = serde_json::to_vec_pretty(&report).expect("a report is JSON");
        fs::write(path, json).expect("the report can be written");
    }
    eprintln!(
        "{} runs in {:.0} s: {:?}",
        report.runs, report.seconds, report.endings
    );
    let complaints = report.complaints();
    if complaints.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("seed {}:\n{}", settings.seed, complaints.join("\n"));
    ExitCode::FAILURE
}
