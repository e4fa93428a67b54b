//! Parses `/proc/PID/status` (proc(5)).

/// The capability sets that must be empty in a process without privileges. The bounding set only limits what execve(2)
/// grants.
pub const CAPABILITY_SETS: [&str; 4] = ["CapInh", "CapPrm", "CapEff", "CapAmb"];

/// The fields of the file.
#[derive(Debug)]
pub struct ProcStatus<'t>(Vec<(&'t str, &'t str)>);

impl<'t> ProcStatus<'t> {
    /// Splits the file's text into fields.
    pub fn parse(text: &'t str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name, value.trim())).collect())
    }

    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<&'t str> {
        let mut fields = self.0.iter();
        fields.find(|field| field.0 == name).map(|field| field.1)
    }

    /// Returns the value of a numeric field.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    }

    /// Returns the value of a capability set.
    pub fn set(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.field(name)?, 16).ok()
    }

    /// Whether the real, effective, saved and file-system ids of a field all equal `id`.
    pub fn has_only_id(&self, name: &str, id: u32) -> bool {
        let ids = self.field(name).unwrap_or("").split_ascii_whitespace();
        ids.map(str::parse).eq([Ok(id), Ok(id), Ok(id), Ok(id)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_matched_whole() {
        let status = ProcStatus::parse("Seccomp:\t2\nSeccomp_filters:\t3\nVmRSS:\t  120 kB\n");
        assert_eq!(status.field("Seccomp"), Some("2"));
        assert_eq!(status.number("Seccomp_filters"), Some(3));
        assert_eq!(status.number("VmRSS"), Some(120));
        assert_eq!(status.field("Sec"), None);
    }

    #[test]
    fn all_four_ids_must_match() {
        let status = ProcStatus::parse("Uid:\t5\t5\t5\t5\nGid:\t5\t5\t5\t6\nCapEff:\t00ff\n");
        assert!(status.has_only_id("Uid", 5));
        assert!(!status.has_only_id("Uid", 6));
        assert!(!status.has_only_id("Gid", 5));
        assert!(!status.has_only_id("Groups", 5));
        assert_eq!(
            (status.set("CapEff"), status.set("CapPrm")),
            (Some(0xff), None)
        );
    }
}
