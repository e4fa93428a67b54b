//! The errors with which the command fails.

use crate::tenant::TenantError;

/// The reason why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An argument, or a file that an argument names, is invalid.
    #[error("{0}")]
    Usage(String),
    /// A tenant cannot run code.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// The host lacks something that the server needs, or the client on standard input and output violated the
    /// protocol.
    #[error("{0}")]
    Failed(String),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl StartError {
    /// Returns the exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Tenant(TenantError::Sandbox(_, cause)) => cause.exit_code(),
            Self::Tenant(_) | Self::Usage(_) => 2,
            Self::Failed(_) | Self::System(_) => 125,
        }
    }
}
