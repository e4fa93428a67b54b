//! Determines the kernel's version (uname(2)) and the processor architecture.

use std::fmt;

/// The version of the running kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The full release string, as `uname -r` prints it.
    pub release: String,
}

impl KernelVersion {
    /// Parses a release string such as `6.1.0-18-cloud-amd64`; `None` if it contains no version.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next()?.parse().ok();
        Some(Self {
            major: next()?,
            minor: next()?,
            release: release.to_owned(),
        })
    }

    pub(super) fn probe() -> Option<Self> {
        let name = nix::sys::utsname::uname().ok()?;
        Self::parse(name.release().to_str()?)
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.release)
    }
}

/// The architectures whose system calls Sandfork knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arch {
    /// `x86_64`
    X86_64,
    /// `aarch64`
    Aarch64,
}

impl Arch {
    /// Returns the architecture for which this library was built.
    pub fn current() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_releases_are_parsed() {
        for (release, version) in [
            ("6.1.0-18-cloud-amd64", (6, 1)),
            ("6.12.43+deb13-cloud-amd64", (6, 12)),
            ("5.15.0-1051-aws", (5, 15)),
            ("6.18-rc1", (6, 18)),
        ] {
            let kernel = KernelVersion::parse(release).map(|k| (k.major, k.minor));
            assert_eq!(kernel, Some(version), "{release}");
        }
        assert_eq!(KernelVersion::parse("mainline"), None);
        assert_eq!(KernelVersion::parse(""), None);
    }

    #[test]
    fn this_kernel_has_a_version() {
        assert!(KernelVersion::probe().is_some());
    }
}
