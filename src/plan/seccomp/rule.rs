//! The rules of the preset: system calls, the filter's answer, and the reason.

/// The error numbers in a filter's answers (errno(3)), equal on all supported architectures.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
#[repr(u16)]
pub enum Errno {
    /// Success: the call returns 0 and the kernel does nothing.
    Nothing = 0,
    /// `EPERM`: the call is known and refused.
    Perm = 1,
    /// `ENOMEM`: as on a host without the resource.
    NoMemory = 12,
    /// `EINVAL`: as on a kernel without the feature.
    Invalid = 22,
    /// `ENOTTY`: as from a descriptor that does not support the request.
    NotTty = 25,
    /// `ENOSYS`: as on a kernel without the call, so that libraries fall back.
    NoSys = 38,
    /// `EOPNOTSUPP`: as on a kernel without the feature.
    NotSupported = 95,
}

/// Whether a policy's `syscalls.allow` may override a refusal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grant {
    /// A policy may allow the call: guests seldom need it, and refusing it reduces the attack surface.
    ByPolicy,
    /// No policy may allow the call: it would breach the sandbox.
    Never,
}

/// A condition on one argument.
///
/// A filter sees only the registers, so it cannot test memory behind a pointer. The kernel takes every
/// argument that is compared here as a 32-bit integer, or uses only its low 32 bits (the flags of clone(2) and
/// mmap(2)). Comparing all 64 bits would let guests bypass the filter, because the kernel drops the upper half
/// after the filter has seen it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Check {
    /// The masked argument is one of the values.
    OneOf {
        /// The index of the argument, 0 to 5.
        argument: u8,
        /// The bits to compare.
        mask: u32,
        /// The allowed values.
        values: &'static [u32],
    },
    /// The masked argument is none of the values.
    NoneOf {
        /// The index of the argument, 0 to 5.
        argument: u8,
        /// The bits to compare.
        mask: u32,
        /// The forbidden values.
        values: &'static [u32],
    },
    /// If the argument is one of the values, another check holds.
    When {
        /// The index of the argument, 0 to 5.
        argument: u8,
        /// The values for which the other check must hold.
        values: &'static [u32],
        /// The other check.
        then: &'static Check,
    },
}

/// The answer to a call that needs the supervisor's decision, in a worker to which no supervisor can listen. The kernel
/// allows only one listener among all filters of a process, which an outer filter may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WithoutListener {
    /// `ENOSYS`: allowing the call would be at the expense of others.
    NoSys,
    /// Allow the call: the kernel then describes the host instead of the sandbox.
    Allow,
}

/// A filter's answer to a system call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The call is allowed.
    Allow,
    /// The call is allowed if every check holds.
    AllowIf {
        /// The conditions under which the call succeeds without effect. Empty for none.
        ignored: &'static [Check],
        /// The conditions.
        checks: &'static [Check],
        /// The error if a condition fails.
        otherwise: Errno,
    },
    /// Like `AllowIf`, but the worker's supervisor decides on calls for which `asked` holds.
    AskIf {
        /// The answer if no supervisor listens.
        without_listener: WithoutListener,
        /// The condition under which the supervisor decides.
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

/// Whether calls that a filter refuses with [`Errno::Perm`] are reported to the supervisor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusals {
    /// The call is reported to the supervisor, which answers it.
    Reported,
    /// The filter answers the call.
    Unreported,
}

/// The verdict on one system call in a filter.
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
    /// The names as in syscalls(2), separated by spaces. Names that an architecture lacks are skipped there.
    pub syscalls: &'static str,
    /// The filter's answer.
    pub verdict: Verdict,
    /// The reason for the answer.
    pub reason: &'static str,
}

impl Verdict {
    /// Returns the verdict for the zygote's filter: no supervisor listens during the jail's set-up.
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
    /// Returns the names.
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

/// Creates a rule by which a call succeeds without effect if all of `ignored` hold.
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

/// Creates a rule by which the supervisor decides on each call for which `asked` holds.
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
            without_listener: WithoutListener::NoSys,
            asked,
            checks,
            otherwise,
        },
        reason,
    }
}

/// Creates a rule for a call that describes the machine. The supervisor answers it in place of the kernel.
pub(super) const fn describe(reason: &'static str, syscalls: &'static str) -> Rule {
    Rule {
        syscalls,
        verdict: Verdict::AskIf {
            without_listener: WithoutListener::Allow,
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

/// Creates a rule for a call that succeeds without effect, because it would only affect the host.
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

/// Creates a check that must hold if an argument has one of these values.
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

/// The check that always holds.
pub(super) const ALWAYS: Check = Check::OneOf {
    argument: 0,
    mask: 0,
    values: &[0],
};

/// Creates a check that all of the bits are clear.
pub(super) const fn clear(argument: u8, bits: u32) -> Check {
    Check::OneOf {
        argument,
        mask: bits,
        values: &[0],
    }
}
