//! `/proc/PID/status` (proc(5)).

/// The fields of the file.
#[derive(Debug)]
pub struct ProcStatus<'t>(Vec<(&'t str, &'t str)>);

impl<'t> ProcStatus<'t> {
    /// Takes the file's text apart.
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
}
