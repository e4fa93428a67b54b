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
    Mcp(Box<ServeArguments>),
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
    /// A file with the same settings and more (docs/server.md)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// The policy of all runs: a built-in name or a file [default: standard]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// A key of the policy, such as `limits.memory=1GiB`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Override>,
    /// A file with a token in each line; without it everyone who reaches the port may run code
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
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
