//! `/proc/PID/status` (proc(5)).

use std::io;

use crate::supervisor::proc_dir::ProcDir;

/// The file's text.
#[derive(Debug)]
pub struct ProcStatus(String);

impl ProcStatus {
    /// Reads the status of a process.
    pub fn read(process: &ProcDir) -> io::Result<Self> {
        process.read("status").map(Self)
    }

    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    }

    /// Returns the value of a numeric field.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_matched_whole() {
        let status = ProcStatus("Seccomp:\t2\nSeccomp_filters:\t3\nVmRSS:\t  120 kB\n".into());
        assert_eq!(status.field("Seccomp"), Some("2"));
        assert_eq!(status.number("Seccomp_filters"), Some(3));
        assert_eq!(status.number("VmRSS"), Some(120));
        assert_eq!(status.field("Sec"), None);
    }
}
