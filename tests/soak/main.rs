//! Guests of every kind, thousands of them: what is left behind, what grows, and whether each gets its
//! own answer.
//!
//! `cargo xtask verify soak` asks for as many as one wants, in the release build. Without it, as in CI, there are
//! few enough to be over in about a minute.

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

/// How many runs, in place of the usual.
const RUNS: &str = "SANDFORK_SOAK_RUNS";
/// Where the questions begin, in place of the usual.
const SEED: &str = "SANDFORK_SOAK_SEED";
/// A file for what came of it.
const REPORT: &str = "SANDFORK_SOAK_REPORT";
/// Set for the process in which it happens.
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

/// With a directory of its own for temporary files, so that what is left there is seen.
///
/// glibc keeps some of what was freed, for each of as many threads as ever asked for memory at once: it takes some
/// thousand runs until that grows no more. The few runs of CI do without, so that what grows is the supervisor's.
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
    // As the commands do, of which `serve` is one.
    keep_little();
    // What others mount meanwhile is not seen, where this user may look away.
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
