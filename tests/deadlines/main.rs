//! Guests that do not want to end: each is killed, reaped and reported at its limit, and survived by
//! nothing.
//!
//! `cargo xtask verify deadlines` measures how long that takes. Without it, as in CI, there are a few of each kind,
//! and their ends are looked at, whenever they come.

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

/// How many guests, in place of the usual.
const GUESTS: &str = "SANDFORK_DEADLINES_GUESTS";
/// A directory for what came of them, a file for each level.
const REPORTS: &str = "SANDFORK_DEADLINES_REPORTS";
/// Set to the level for the process in which it happens.
const APART: &str = "SANDFORK_DEADLINES_APART";

/// One of each kind.
const USUAL: usize = 24;

fn main() -> ExitCode {
    if let Ok(level) = env::var(APART) {
        return measure(&level);
    }
    let mut arguments = Arguments::from_args();
    if env::var_os(REPORTS).is_some() {
        // One after the other, so that the times are their own.
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

/// As on a host that lets its user have none: there they are not seen either.
fn hide_cgroups() {
    if apart::have_own_mounts() {
        // Where nothing is mounted there is nothing to hide.
        _ = umount2("/sys/fs/cgroup", MntFlags::MNT_DETACH);
    }
}
