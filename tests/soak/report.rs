//! The report of a soak.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::census::memory::Memory;
use crate::census::{Census, Kind};

/// How much more memory a supervisor may hold at the end than after the warm-up, in bytes.
const DRIFT: u64 = 5 << 20;

/// The results of a soak.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    /// The number of workers that were used.
    pub runs: usize,
    pub questions: usize,
    pub zygotes_killed: usize,
    /// Duration, with warm-up and pauses.
    pub seconds: f64,
    /// The number of sessions that were forked, rolled back and paused.
    pub copies: BTreeMap<&'static str, usize>,
    /// The number of runs, cells and tasks by status.
    pub endings: BTreeMap<String, usize>,
    /// Before the first sandbox.
    pub before: Census,
    /// During the pauses: after the warm-up, then evenly spaced.
    pub rests: Vec<Rest>,
    /// After everything was released.
    pub after: Census,
    /// What went wrong.
    pub wrong: Vec<String>,
}

/// A census while no request is active.
#[derive(Debug, Serialize)]
pub struct Rest {
    pub runs: usize,
    pub census: Census,
    /// Memory of the supervisor in this process.
    pub library: Memory,
    /// Memory of `sandfork serve`.
    pub served: Memory,
    /// Memory of the largest zygote.
    pub zygote: Memory,
}

impl Rest {
    /// Formats it as one line.
    pub fn summary(&self) -> String {
        let counts: Vec<String> = Kind::ALL
            .iter()
            .map(|kind| format!("{} {kind}", self.census.total(*kind)))
            .collect();
        let kib = |memory: Memory| memory.resident / 1024;
        format!(
            "{} runs: resident {} KiB, serve {} KiB; {}",
            self.runs,
            kib(self.library),
            kib(self.served),
            counts.join(", ")
        )
    }
}

/// Statuses that must occur: one that does not was not tested.
const ENDINGS: [&str; 13] = [
    "ok",
    "exception",
    "exit",
    "timeout",
    "cpu-limit",
    "memory-limit",
    "pids-limit",
    "output-limit",
    "file-limit",
    "denied",
    "signal",
    "protocol-violation",
    "interrupted",
];

impl Report {
    /// Returns everything that went wrong, one line each.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = self.wrong.clone();
        for ending in ENDINGS {
            if !self.endings.contains_key(ending) {
                complaints.push(format!("no run ended with `{ending}`"));
            }
        }
        if let [warm, .., last] = self.rests.as_slice() {
            for (name, warm, last) in [
                ("the library's process", warm.library, last.library),
                ("`sandfork serve`", warm.served, last.served),
                ("a zygote", warm.zygote, last.zygote),
            ] {
                if last.resident > warm.resident + DRIFT {
                    complaints.push(format!(
                        "{name} held {} bytes after the warm-up, and {} in the end",
                        warm.resident, last.resident
                    ));
                }
            }
        }
        complaints
    }
}
