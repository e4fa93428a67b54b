//! Defines a kernel error number that can be serialized and compared.

use std::fmt;
use std::io;

/// An error number (errno(3)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Errno(pub i32);

impl Errno {
    /// Not an error number: the kernel killed the process.
    pub const KILLED: Self = Self(0);

    /// Returns the errno of a failed system call.
    pub(super) fn of(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::KILLED {
            return f.write_str("the process was killed");
        }
        let errno = nix::errno::Errno::from_raw(self.0);
        write!(f, "{errno:?} ({})", errno.desc().to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_shows_name_and_description() {
        assert_eq!(Errno(1).to_string(), "EPERM (operation not permitted)");
        assert_eq!(Errno::KILLED.to_string(), "the process was killed");
    }
}
