//! What came of a soak.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::census::memory::Memory;
use crate::census::{Census, Kind};

/// How much more a supervisor may hold at the end than after the warm-up, bytes.
const DRIFT: u64 = 5 << 20;

/// All of it.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    /// Workers that guests were given.
    pub runs: usize,
    pub questions: usize,
    pub zygotes_killed: usize,
    /// Warm-up and rests included.
    pub seconds: f64,
    /// How many sessions were forked, rolled back and paused.
    pub copies: BTreeMap<&'static str, usize>,
    /// How many runs, cells and tasks ended so.
    pub endings: BTreeMap<String, usize>,
    /// Before the first sandbox.
    pub before: Census,
    /// Between questions: after the warm-up, then evenly.
    pub rests: Vec<Rest>,
    /// When everything was given back.
    pub after: Census,
    /// What was not as it should be.
    pub wrong: Vec<String>,
}

/// A census while no request is active.
#[derive(Debug, Serialize)]
pub struct Rest {
    pub runs: usize,
    pub census: Census,
    /// Of the supervisor in this process.
    pub library: Memory,
    /// Of `sandfork serve`.
    pub served: Memory,
    /// Of the zygote that has the most.
    pub zygote: Memory,
}

impl Rest {
    /// A line.
    pub fn in_words(&self) -> String {
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

/// Endings that have to be among them: one that is not was not tried.
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
    /// All that is not as it should be, a line each.
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
