//! Ends the process when one input keeps it busy for too long.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The processor time that one input may take, in ticks of 10 ms (proc_pid_stat(5), times(2)): half
/// a minute, while the slowest valid input takes a tenth of a second. Wall-clock time would fail on
/// a busy machine.
const MOST_TICKS: u64 = 3000;

/// The number of the current input.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<AtomicU64>);

impl Watch {
    /// Starts watching, and calls `stuck` when an input takes too long.
    pub(super) fn start(stuck: impl Fn() + Send + 'static) -> Self {
        let watch = Self::default();
        let watched = watch.clone();
        std::thread::spawn(move || {
            let mut seen = (watched.0.load(Ordering::Relaxed), processor_ticks());
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let now = (watched.0.load(Ordering::Relaxed), processor_ticks());
                if now.0 != seen.0 {
                    seen = now;
                } else if now
                    .1
                    .zip(seen.1)
                    .is_some_and(|(now, then)| now - then > MOST_TICKS)
                {
                    stuck();
                }
            }
        });
        watch
    }

    /// Marks the start of the next input.
    pub(super) fn next(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// This process's time in user mode so far.
fn processor_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The fields after the program's name, which is in parentheses and may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen() {
        let before = processor_ticks().expect("proc has it");
        let mut sum = 0u64;
        while processor_ticks().expect("proc has it") < before + 3 {
            sum = (0..100_000u64).fold(sum, u64::wrapping_add);
        }
        assert!(sum > 0);
    }
}
