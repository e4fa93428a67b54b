//! What a policy cannot ask of the filters.

/// A list of a policy that cannot be kept.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SeccompError {
    /// No architecture has a system call of this name.
    #[error("`{name}` is not a system call: names are those of syscalls(2), without `sys_`")]
    Unknown {
        /// As the policy wrote it.
        name: String,
    },
    /// Allowing it would open the sandbox.
    #[error("`{name}` cannot be allowed ({reason}): remove it from `allow`")]
    Never {
        /// As the policy wrote it.
        name: String,
        /// The rule's.
        reason: &'static str,
    },
    /// It is allowed with some arguments, and a policy cannot widen them.
    #[error(
        "`{name}` is allowed already, as far as it is harmless ({reason}): remove it from `allow`"
    )]
    Conditional {
        /// As the policy wrote it.
        name: String,
        /// The rule's.
        reason: &'static str,
    },
    /// The interpreter cannot run a single cell without it.
    #[error(
        "`{name}` cannot be denied, the interpreter cannot run without it: remove it from `deny`"
    )]
    Essential {
        /// As the policy wrote it.
        name: String,
    },
}

impl SeccompError {
    /// The system call that the error is about, as the policy wrote it.
    pub fn syscall(&self) -> &str {
        match self {
            Self::Unknown { name }
            | Self::Never { name, .. }
            | Self::Conditional { name, .. }
            | Self::Essential { name } => name,
        }
    }
}
