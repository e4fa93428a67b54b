//! Waiting for the processors to be free, for attempts that measure them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How long others on the machine are waited for.
const PATIENCE: Duration = Duration::from_secs(30);
const SAMPLE: Duration = Duration::from_millis(200);

/// Returns once hardly anything on the machine waits for a processor, or patience ends.
pub fn wait() {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let before = stalled();
        thread::sleep(SAMPLE);
        let (Some(before), Some(after)) = (before, stalled()) else {
            return;
        };
        if after.saturating_sub(before) < SAMPLE / 10 {
            return;
        }
    }
}

/// How long something waited for a processor since boot; `None` where the kernel does not count.
fn stalled() -> Option<Duration> {
    let pressure = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let total = pressure.lines().next()?.split("total=").nth(1)?;
    Some(Duration::from_micros(total.trim().parse().ok()?))
}
