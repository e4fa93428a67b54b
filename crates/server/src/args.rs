//! The command-line arguments.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use sandfork::Override;

/// Serve sandboxes over HTTP to clients of SandboxFusion, E2B, MCP and Sandfork's own API.
#[derive(Debug, Parser)]
#[command(
    name = "sandfork server",
    bin_name = "sandfork server",
    version,
    args_conflicts_with_subcommands = true
)]
pub struct Arguments {
    #[command(flatten)]
    pub serve: ServeArguments,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Commands other than serving HTTP.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the sandbox as MCP tools on standard input and output
    #[command(override_usage = "sandfork mcp [OPTIONS]")]
    Mcp(Box<SandboxArguments>),
    /// Create a token, and print it with its line for the token file
    Token {
        /// The tenant of the token
        #[arg(default_value = crate::tokens::DEFAULT_TENANT)]
        tenant: String,
    },
}

/// The options of the server. Each overrides the configuration file.
#[derive(clap::Args, Debug, Default)]
pub struct ServeArguments {
    #[command(flatten)]
    pub sandboxes: SandboxArguments,
    /// The address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// The token file; without it, anyone who can connect may run code
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// The options that apply to HTTP and to MCP on standard input and output.
#[derive(clap::Args, Debug, Default)]
pub struct SandboxArguments {
    /// The configuration file: these options and more (docs/server.md)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The policy: a built-in name or a file; a tenant's own takes precedence [default: standard]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Override a policy key, such as `limits.memory=1GiB`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Override>,
    /// Maximum number of concurrent runs [default: the host's capacity, at most its number of processors]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Maximum number of queued runs; more are rejected [default: 256]
    #[arg(long, value_name = "N")]
    pub queue: Option<usize>,
    /// The OTLP endpoint for traces, such as `http://127.0.0.1:4318` [default: `OTEL_EXPORTER_OTLP_ENDPOINT`]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Check the configuration, run one line of Python with each policy, and exit
    #[arg(long)]
    pub check: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcp_command_rejects_address_and_token_file() {
        assert!(Arguments::try_parse_from(["sandfork server", "mcp", "--jobs", "2"]).is_ok());
        for option in [["--listen", "127.0.0.1:0"], ["--token-file", "tokens"]] {
            let served = ["sandfork server"].into_iter().chain(option);
            assert!(Arguments::try_parse_from(served).is_ok());
            let streams = ["sandfork server", "mcp"].into_iter().chain(option);
            assert!(Arguments::try_parse_from(streams).is_err(), "{option:?}");
        }
    }
}
