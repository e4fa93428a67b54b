//! Why the server does not start, as its command says it.

use crate::tenant::TenantError;

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An argument is invalid, or a file that an argument names.
    #[error("{0}")]
    Usage(String),
    /// A tenant cannot run code.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// The host does not provide what the server needs, or its client ended it.
    #[error("{0}")]
    Failed(String),
    /// A call of the kernel failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl StartError {
    /// The exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Tenant(TenantError::Sandbox(_, cause)) => cause.exit_code(),
            Self::Tenant(_) | Self::Usage(_) => 2,
            Self::Failed(_) | Self::System(_) => 125,
        }
    }
}
