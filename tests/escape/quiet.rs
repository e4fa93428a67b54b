//! Waits until the CPUs are idle, for attempts that measure them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for other processes on the machine.
const PATIENCE: Duration = Duration::from_secs(30);
const SAMPLE: Duration = Duration::from_millis(200);

/// Returns once almost no process on the machine waits for a CPU, or after `PATIENCE`.
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

/// Returns the CPU stall time since boot; `None` if the kernel does not provide pressure stall information.
fn stalled() -> Option<Duration> {
    let pressure = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let total = pressure.lines().next()?.split("total=").nth(1)?;
    Some(Duration::from_micros(total.trim().parse().ok()?))
}
