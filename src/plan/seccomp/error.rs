//! Errors in a policy's lists of system calls.

/// Why a policy's list cannot be compiled.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SeccompError {
    /// No architecture has a system call of this name.
    #[error("`{name}` is not a system call: names are those of syscalls(2), without `sys_`")]
    Unknown {
        /// The name, as the policy writes it.
        name: String,
    },
    /// Allowing it would open the sandbox.
    #[error("`{name}` cannot be allowed ({reason}): remove it from `allow`")]
    Never {
        /// The name, as the policy writes it.
        name: String,
        /// The reason from the rule.
        reason: &'static str,
    },
    /// The call is allowed with some arguments, and a policy cannot widen them.
    #[error(
        "`{name}` is allowed already, as far as it is harmless ({reason}): remove it from `allow`"
    )]
    Conditional {
        /// The name, as the policy writes it.
        name: String,
        /// The reason from the rule.
        reason: &'static str,
    },
    /// The interpreter cannot run a single cell without it.
    #[error(
        "`{name}` cannot be denied, the interpreter cannot run without it: remove it from `deny`"
    )]
    Essential {
        /// The name, as the policy writes it.
        name: String,
    },
}

impl SeccompError {
    /// The name of the system call, as the policy writes it.
    pub fn syscall(&self) -> &str {
        match self {
            Self::Unknown { name }
            | Self::Never { name, .. }
            | Self::Conditional { name, .. }
            | Self::Essential { name } => name,
        }
    }
}
