//! Ends the process when one input keeps it busy for too long.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Processor time, in ticks of 10 ms (proc_pid_stat(5), times(2)), that one input may take: half a
/// minute, where the slowest honest one takes a tenth of a second. Not time on the clock: a busy machine
/// is no failure.
const MOST_TICKS: u64 = 3000;

/// Which input is at work.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<AtomicU64>);

impl Watch {
    /// Looks on from now on, and calls `stuck` when it is too much.
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

    /// The next input begins.
    pub(super) fn next(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Time in user mode of this process so far.
fn processor_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the program's name, which is in brackets and may hold anything.
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
