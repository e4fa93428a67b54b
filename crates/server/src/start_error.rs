//! Why the server does not start, as its command says it.

use crate::auth::TokenFileError;
use crate::config::ConfigError;
use crate::http::TlsError;
use crate::tenant::TenantError;

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error("a token is drawn by getrandom(2): {0}")]
    Random(#[from] getrandom::Error),
    #[error("a tenant is named by at most 64 letters, digits, `-` and `_`")]
    Name,
    #[error("{address}: {cause}")]
    Listen {
        address: String,
        cause: std::io::Error,
    },
    #[error("the collector of traces: {0}")]
    Traces(#[from] opentelemetry_otlp::ExporterBuildError),
    #[error("{0}")]
    Client(String),
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl StartError {
    /// The caller's mistake, or the host's, as the command `sandfork` has it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Tenant(TenantError::Sandbox(_, cause)) => cause.exit_code(),
            Self::Tenant(_)
            | Self::Config(_)
            | Self::Tokens(_)
            | Self::Tls(_)
            | Self::Traces(_)
            | Self::Name => 2,
            Self::Random(_) | Self::Listen { .. } | Self::Client(_) | Self::System(_) => 125,
        }
    }
}
