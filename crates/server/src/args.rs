//! The command line.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use sandfork::Override;

/// Serves sandboxes over HTTP, to clients of SandboxFusion, of E2B and of Sandfork's own API.
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

/// What is done instead of serving.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the sandbox as tools of a model (MCP), over the standard streams
    #[command(override_usage = "sandfork mcp [OPTIONS]")]
    Mcp(Box<SandboxArguments>),
    /// Print a new token, and the line of the token file that stands for it
    Token {
        /// The tenant that the token is for
        #[arg(default_value = crate::tokens::DEFAULT_TENANT)]
        tenant: String,
    },
}

/// The options of the server. Each replaces what the configuration says.
#[derive(clap::Args, Debug, Default)]
pub struct ServeArguments {
    #[command(flatten)]
    pub sandboxes: SandboxArguments,
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// A file with a token in each line; without it everyone who reaches the port may run code
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Those that do not depend on how clients reach the server.
#[derive(clap::Args, Debug, Default)]
pub struct SandboxArguments {
    /// A file with the same settings and more (docs/server.md)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The policy of all runs: a built-in name or a file [default: standard]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// A key of the policy, such as `limits.memory=1GiB`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Override>,
    /// How many runs are active at once [default: what the host can hold, at most its processors]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// How many more wait; others are refused [default: 256]
    #[arg(long, value_name = "N")]
    pub queue: Option<usize>,
    /// A collector for traces, such as `http://127.0.0.1:4318` [default: `OTEL_EXPORTER_OTLP_ENDPOINT`]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Check the configuration, run one line of Python in a sandbox of each policy, and exit
    #[arg(long)]
    pub check: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_streams_have_no_address_and_no_token() {
        assert!(Arguments::try_parse_from(["sandfork server", "mcp", "--jobs", "2"]).is_ok());
        for option in [["--listen", "127.0.0.1:0"], ["--token-file", "tokens"]] {
            let served = ["sandfork server"].into_iter().chain(option);
            assert!(Arguments::try_parse_from(served).is_ok());
            let streams = ["sandfork server", "mcp"].into_iter().chain(option);
            assert!(Arguments::try_parse_from(streams).is_err(), "{option:?}");
        }
    }
}
