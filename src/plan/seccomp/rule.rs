//! A rule of the preset: the system calls, the filter's answer, and the reason.

/// Error numbers in a filter's answers (errno(3)), equal on all supported architectures.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
#[repr(u16)]
pub enum Errno {
    /// Success: the call returns 0 and the kernel does nothing.
    Nothing = 0,
    /// `EPERM`: known and refused.
    Perm = 1,
    /// `ENOMEM`: the answer of a host without the resource.
    NoMemory = 12,
    /// `EINVAL`: the answer of a kernel without the feature.
    Invalid = 22,
    /// `ENOTTY`: the answer of a descriptor that does not support the request.
    NotTty = 25,
    /// `ENOSYS`: the answer of a kernel without the call, so that libraries fall back.
    NoSys = 38,
    /// `EOPNOTSUPP`: the answer of a kernel without the feature.
    NotSupported = 95,
}

/// Whether a policy's `[syscalls] allow` may lift a refusal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grant {
    /// It may: guests seldom need the call, and refusing it makes less of the kernel reachable.
    ByPolicy,
    /// It may not: the call would open a wall of the sandbox.
    Never,
}

/// A condition on one argument.
///
/// A filter sees only the registers, so it cannot test the target of a pointer. The kernel takes
/// every argument that is compared by value here as a 32-bit integer, or uses only its low 32 bits
/// (the flags of clone(2) and mmap(2)). A comparison of all 64 bits would be a way around the filter,
/// because the kernel drops the upper half after the filter has seen it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Check {
    /// The masked argument is one of the values.
    OneOf {
        /// Index of the argument, 0 to 5.
        argument: u8,
        /// The bits to compare.
        mask: u32,
        /// The allowed values.
        values: &'static [u32],
    },
    /// The masked argument is none of the values.
    NoneOf {
        /// Index of the argument, 0 to 5.
        argument: u8,
        /// The bits to compare.
        mask: u32,
        /// The forbidden values.
        values: &'static [u32],
    },
    /// Another check holds, if the argument is one of the values.
    When {
        /// Index of the argument, 0 to 5.
        argument: u8,
        /// The values for which the other check must hold.
        values: &'static [u32],
        /// The other check.
        then: &'static Check,
    },
}

/// The answer to a call about which the supervisor would be asked, in a worker that it cannot listen to: the kernel
/// has one listener at most for the filters of a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unheard {
    /// `ENOSYS`: the call costs others something.
    NoSys,
    /// The call is allowed: the kernel describes the host instead of the sandbox.
    Allow,
}

/// A filter's answer to a system call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The call is allowed.
    Allow,
    /// The call is allowed if every check holds.
    AllowIf {
        /// The conditions under which it succeeds and does nothing, if there are any.
        ignored: &'static [Check],
        /// The conditions.
        checks: &'static [Check],
        /// The error if a condition fails.
        otherwise: Errno,
    },
    /// Like `AllowIf`, but the worker's supervisor decides first if a condition holds.
    AskIf {
        /// The answer if no supervisor can be asked.
        unheard: Unheard,
        /// The condition under which the supervisor is asked.
        asked: Check,
        /// The conditions.
        checks: &'static [Check],
        /// The error if a condition fails.
        otherwise: Errno,
    },
    /// The call returns an error.
    Refuse {
        /// The error.
        errno: Errno,
        /// Whether a policy may allow the call nevertheless.
        grant: Grant,
    },
}

/// Whether the supervisor hears of a call that a filter refuses with [`Errno::Perm`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusals {
    /// It does, and answers the call itself.
    Reported,
    /// The filter answers.
    Unreported,
}

/// The verdict on one system call, as a filter has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Answered {
    /// The answer.
    pub verdict: Verdict,
    /// Whether a refusal is reported.
    pub refusals: Refusals,
}

/// System calls that share a verdict and the reason for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Names as in syscalls(2), separated by spaces. A name that an architecture lacks is skipped
    /// there.
    pub syscalls: &'static str,
    /// The filter's answer.
    pub verdict: Verdict,
    /// The reason for the answer.
    pub reason: &'static str,
}

impl Verdict {
    /// The verdict for the zygote's filter: while the jail is set up there is no supervisor to ask.
    pub(super) const fn without_asking(self) -> Self {
        match self {
            Self::AskIf {
                checks, otherwise, ..
            } => Self::AllowIf {
                ignored: &[],
                checks,
                otherwise,
            },
            other => other,
        }
    }
}

impl Rule {
    /// The names, as an iterator.
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
    allow_or_ignore_if(reason, syscalls, &[], checks, otherwise)
}

/// A rule by which a call succeeds and does nothing where all of `ignored` hold.
pub(super) const fn allow_or_ignore_if(
    reason: &'static str,
    syscalls: &'static str,
    ignored: &'static [Check],
    checks: &'static [Check],
    otherwise: Errno,
) -> Rule {
    Rule {
        syscalls,
        verdict: Verdict::AllowIf {
            ignored,
            checks,
            otherwise,
        },
        reason,
    }
}

/// A rule that asks the supervisor about each call for which `asked` holds.
pub(super) const fn ask_if(
    reason: &'static str,
    syscalls: &'static str,
    asked: Check,
    checks: &'static [Check],
    otherwise: Errno,
) -> Rule {
    Rule {
        syscalls,
        verdict: Verdict::AskIf {
            unheard: Unheard::NoSys,
            asked,
            checks,
            otherwise,
        },
        reason,
    }
}

/// A rule for a call that describes the machine. The supervisor answers it in the place of the kernel.
pub(super) const fn describe(reason: &'static str, syscalls: &'static str) -> Rule {
    Rule {
        syscalls,
        verdict: Verdict::AskIf {
            unheard: Unheard::Allow,
            asked: ALWAYS,
            checks: &[],
            otherwise: Errno::Perm,
        },
        reason,
    }
}

pub(super) const fn refuse(reason: &'static str, syscalls: &'static str) -> Rule {
    refuse_with(reason, syscalls, Errno::Perm, Grant::ByPolicy)
}

/// A call that succeeds without effect, because its effect would be on the host alone.
pub(super) const fn nothing(reason: &'static str, syscalls: &'static str) -> Rule {
    refuse_with(reason, syscalls, Errno::Nothing, Grant::ByPolicy)
}

pub(super) const fn never(reason: &'static str, syscalls: &'static str) -> Rule {
    refuse_with(reason, syscalls, Errno::Perm, Grant::Never)
}

pub(super) const fn refuse_with(
    reason: &'static str,
    syscalls: &'static str,
    errno: Errno,
    grant: Grant,
) -> Rule {
    Rule {
        syscalls,
        verdict: Verdict::Refuse { errno, grant },
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

pub(super) const fn masked_one_of(argument: u8, mask: u32, values: &'static [u32]) -> Check {
    Check::OneOf {
        argument,
        mask,
        values,
    }
}

/// A check that must hold where an argument has one of these values.
pub(super) const fn when(argument: u8, values: &'static [u32], then: &'static Check) -> Check {
    Check::When {
        argument,
        values,
        then,
    }
}

pub(super) const fn none_of(argument: u8, values: &'static [u32]) -> Check {
    Check::NoneOf {
        argument,
        mask: u32::MAX,
        values,
    }
}

/// A check that holds for all arguments.
pub(super) const ALWAYS: Check = Check::OneOf {
    argument: 0,
    mask: 0,
    values: &[0],
};

/// A check that all of the bits are clear.
pub(super) const fn clear(argument: u8, bits: u32) -> Check {
    Check::OneOf {
        argument,
        mask: bits,
        values: &[0],
    }
}
