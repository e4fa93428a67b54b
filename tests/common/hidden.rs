//! What the host's `/proc` shows.

use std::fs;

/// Returns whether `/proc` hides processes that the user may not trace (`hidepid` of proc(5)).
pub fn hides_processes() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let of_proc = mounts.lines().rfind(|line| line.contains(" /proc proc "));
    of_proc.is_some_and(|line| line.contains("hidepid=") && !line.contains("hidepid=0"))
}
