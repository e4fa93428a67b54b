//! A kernel error number as a value that can be serialized and compared.

use std::fmt;
use std::io;

/// errno(3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Errno(pub i32);

impl Errno {
    /// Not an error number: the kernel ended the process instead of answering it.
    pub const KILLED: Self = Self(0);

    /// The number of a failed system call.
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
    fn says_name_and_meaning() {
        assert_eq!(Errno(1).to_string(), "EPERM (operation not permitted)");
        assert_eq!(Errno::KILLED.to_string(), "the process was killed");
    }
}
