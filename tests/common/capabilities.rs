//! The capabilities of the test process.

use std::fs;

/// Returns the effective capabilities as a bit set (linux/capability.h).
pub fn effective() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.map_or(0, |set| u64::from_str_radix(set.trim(), 16).unwrap_or(0))
}
