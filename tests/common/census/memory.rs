//! Measures the memory of a process (proc_pid_smaps(5)).

use std::fs;
use std::thread;
use std::time::Duration;

use serde::Serialize;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Memory {
    /// The resident set.
    pub resident: u64,
    /// The proportional set: a page that n processes map counts as 1/n.
    pub proportional: u64,
}

/// The number of readings for one figure, and the pause between them.
const READINGS: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

impl Memory {
    /// Returns the median of several readings; `None` if this user may not read it.
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

    /// Returns a single reading.
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
