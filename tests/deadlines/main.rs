//! Runs guests that resist their end: each is killed, reaped and reported at its limit, and nothing
//! survives it.
//!
//! `cargo xtask verify deadlines` measures how long that takes. Otherwise, as in CI, a few guests of each kind run, and
//! only how they end is checked, not when.

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
#[path = "../common/guests.rs"]
#[allow(dead_code, reason = "what other tests share is there too")]
mod guests;
#[path = "../common/census/processes.rs"]
#[allow(dead_code, reason = "what other tests count is there too")]
mod processes;

mod measure;
mod unwilling;

use std::env;
use std::fs;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};
use nix::mount::{MntFlags, umount2};
use sandfork::Level;

/// The number of guests, instead of the default.
const GUESTS: &str = "SANDFORK_DEADLINES_GUESTS";
/// A directory for the reports, one file for each level.
const REPORTS: &str = "SANDFORK_DEADLINES_REPORTS";
/// Set to the level, in the separate process that runs the guests.
const APART: &str = "SANDFORK_DEADLINES_APART";

/// The default: one guest of each kind.
const USUAL: usize = 24;

fn main() -> ExitCode {
    if let Ok(level) = env::var(APART) {
        return measure(&level);
    }
    let mut arguments = Arguments::from_args();
    if env::var_os(REPORTS).is_some() {
        // One test at a time, so that they do not disturb each other's times.
        arguments.test_threads = Some(1);
    }
    let trials = [Level::Full, Level::Standard].map(|level| {
        common::trial(format!("ends_at_its_limit::{level}"), level, move || {
            apart::finishes(Command::new(env::current_exe()?).env(APART, level.to_string()))
        })
    });
    libtest_mimic::run(&arguments, Vec::<Trial>::from(trials)).exit_code()
}

fn measure(level: &str) -> ExitCode {
    if level == Level::Standard.to_string() {
        hide_cgroups();
    }
    nix::sys::prctl::set_child_subreaper(true).expect("any process can be a subreaper");
    let guests = env::var(GUESTS).ok().and_then(|guests| guests.parse().ok());
    let report = match measure::measure(guests.unwrap_or(USUAL)) {
        Ok(report) => report,
        Err(error) => {
            println!("no sandbox: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(directory) = env::var_os(REPORTS) {
        let path = std::path::Path::new(&directory).join(level);
        let json = serde_json::to_vec_pretty(&report).expect("a report is JSON");
        fs::write(path, json).expect("the report can be written");
    }
    if report.wrong.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("{}", report.wrong.join("\n"));
    ExitCode::FAILURE
}

/// Unmounts the cgroup file systems, as on a host that does not delegate any cgroup to its user.
fn hide_cgroups() {
    if apart::have_own_mounts() {
        // If nothing is mounted, there is nothing to hide.
        _ = umount2("/sys/fs/cgroup", MntFlags::MNT_DETACH);
    }
}
