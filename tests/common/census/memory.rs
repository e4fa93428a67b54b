//! What a process holds in memory (proc_pid_smaps(5)).

use std::fs;
use std::thread;
use std::time::Duration;

use serde::Serialize;

/// How much, bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Memory {
    /// All that is mapped and there.
    pub resident: u64,
    /// Its share of it: a page that so many map counts as one so-manyth.
    pub proportional: u64,
}

/// How often it is read for one figure, and how long the pause is.
const READINGS: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

impl Memory {
    /// The median of several readings; `None` where this user may not look.
    pub fn of(pid: u32) -> Option<Self> {
        let read = |nth| {
            if nth > 0 {
                thread::sleep(PAUSE);
            }
            Self::read(pid)
        };
        let mut readings: Vec<Self> = (0..READINGS).map(read).collect::<Option<_>>()?;
        readings.sort_unstable();
        readings.get(READINGS / 2).copied()
    }

    /// One reading.
    pub fn read(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let bytes = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
            Some(kib * 1024)
        };
        Some(Self {
            resident: bytes("Rss:")?,
            proportional: bytes("Pss:")?,
        })
    }
}
