//! A rule of the preset: which system calls, what the filter answers, and why.

/// Error numbers that a filter answers with (errno(3)), equal on all supported architectures.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
#[repr(u16)]
pub enum Errno {
    /// `EPERM`: known and refused.
    Perm = 1,
    /// `ENOMEM`: what a host without the resource answers.
    NoMemory = 12,
    /// `EINVAL`: what a kernel without the feature answers.
    Invalid = 22,
    /// `ENOTTY`: what a descriptor answers that does not know the request.
    NotTty = 25,
    /// `ENOSYS`: what a kernel without the call answers, so that libraries fall back.
    NoSys = 38,
    /// `EOPNOTSUPP`: what a kernel without the feature answers.
    NotSupported = 95,
}

/// Whether `[syscalls] allow` of a policy may take a refusal away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grant {
    /// The guest needs it seldom; without it less of the kernel is in reach.
    ByPolicy,
    /// It would open a wall of the sandbox.
    Never,
}

/// A condition on one argument.
///
/// A filter sees the registers only, so what a pointer points at cannot be tested. The kernel takes
/// every argument that is compared by value here as a 32-bit integer, or looks at its low 32 bits
/// alone (the flags of clone(2) and mmap(2)). A comparison of all 64 bits would be a way round the
/// filter: the kernel drops the upper half after the filter has seen it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Check {
    /// The masked argument is one of the values.
    OneOf {
        /// Index of the argument, 0 to 5.
        argument: u8,
        /// The bits that count.
        mask: u32,
        /// What they may be.
        values: &'static [u32],
    },
    /// The masked argument is none of the values.
    NoneOf {
        /// Index of the argument, 0 to 5.
        argument: u8,
        /// The bits that count.
        mask: u32,
        /// What they may not be.
        values: &'static [u32],
    },
    /// The argument is a null pointer: all 64 bits count.
    Null {
        /// Index of the argument, 0 to 5.
        argument: u8,
    },
}

/// What a filter answers to a system call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It goes through.
    Allow,
    /// It goes through if every check holds.
    AllowIf {
        /// What must hold.
        checks: &'static [Check],
        /// The error otherwise.
        otherwise: Errno,
    },
    /// It returns an error.
    Refuse {
        /// The error.
        errno: Errno,
        /// Whether a policy may allow it nevertheless.
        grant: Grant,
    },
}

/// System calls that share a verdict and the reason for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Names as in syscalls(2), with spaces between. One that an architecture lacks is skipped there.
    pub syscalls: &'static str,
    /// The answer.
    pub verdict: Verdict,
    /// Why.
    pub reason: &'static str,
}

impl Rule {
    /// The names, one by one.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.syscalls.split_whitespace()
    }
}

pub(super) const fn allow(reason: &'static str, syscalls: &'static str) -> Rule {
    Rule {
        syscalls,
        verdict: Verdict::Allow,
        reason,
    }
}

pub(super) const fn allow_if(
    reason: &'static str,
    syscalls: &'static str,
    checks: &'static [Check],
    otherwise: Errno,
) -> Rule {
    Rule {
        syscalls,
        verdict: Verdict::AllowIf { checks, otherwise },
        reason,
    }
}

pub(super) const fn refuse(reason: &'static str, syscalls: &'static str) -> Rule {
    let verdict = Verdict::Refuse {
        errno: Errno::Perm,
        grant: Grant::ByPolicy,
    };
    Rule {
        syscalls,
        verdict,
        reason,
    }
}

pub(super) const fn never(reason: &'static str, syscalls: &'static str) -> Rule {
    let verdict = Verdict::Refuse {
        errno: Errno::Perm,
        grant: Grant::Never,
    };
    Rule {
        syscalls,
        verdict,
        reason,
    }
}

pub(super) const fn one_of(argument: u8, values: &'static [u32]) -> Check {
    Check::OneOf {
        argument,
        mask: u32::MAX,
        values,
    }
}

pub(super) const fn none_of(argument: u8, values: &'static [u32]) -> Check {
    Check::NoneOf {
        argument,
        mask: u32::MAX,
        values,
    }
}

/// All of the bits are clear.
pub(super) const fn clear(argument: u8, bits: u32) -> Check {
    Check::OneOf {
        argument,
        mask: bits,
        values: &[0],
    }
}
