//! The arguments of `sandfork env`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::policy::EnvironmentName;

/// The commands of `sandfork env`.
#[derive(Debug, Subcommand)]
pub enum EnvCommand {
    /// Install packages in a new environment: in a sandbox, from wheels, with pip's configuration
    Create(EnvCreateArguments),
    /// List the environments
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show what an environment has
    Show {
        /// Its name
        name: EnvironmentName,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the lock of an environment, as `pylock.toml`
    Export {
        /// Its name
        name: EnvironmentName,
        /// Write it to this file instead of stdout
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Remove environments that no sandbox uses
    Remove {
        /// Their names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<EnvironmentName>,
    },
    /// Remove unnamed environments, and what ended commands left
    Prune {
        /// Remove the environments of the packages of policies too
        #[arg(long)]
        packages: bool,
    },
}

/// `sandfork env create`.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools)] // one for each flag
#[command(
    override_usage = "sandfork env create [OPTIONS] <NAME> [PACKAGE...]\n       sandfork env create [OPTIONS] --packages <PACKAGE...>"
)]
pub struct EnvCreateArguments {
    /// The name of the environment, and packages such as `pandas==2.2.*`
    #[arg(required = true, value_names = ["NAME", "PACKAGE"], num_args = 1..)]
    pub packages: Vec<String>,
    /// Install what this requirements file lists
    #[arg(long = "requirements", short = 'r', value_name = "FILE")]
    pub requirements: Vec<PathBuf>,
    /// Install what this lock lists, a `pylock.toml`, and nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "requirements")]
    pub lock: Option<PathBuf>,
    /// The interpreter: a name, a path, or a virtual environment [default: python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,
    /// The index, in place of the one that pip is configured with
    #[arg(long, value_name = "URL")]
    pub index_url: Option<String>,
    /// A host that the index sends to for its files, or one on a private network that only a requirements file names
    #[arg(long = "allow-host", value_name = "HOST")]
    pub allow_hosts: Vec<String>,
    /// Build source distributions where there is no wheel: in a sandbox, but their code has the index to reach
    #[arg(long)]
    pub allow_build: bool,
    /// Make the environment of policies whose `python.packages` are these, which has no other name
    #[arg(long = "packages", conflicts_with_all = ["requirements", "lock"])]
    pub of_policies: bool,
    /// Install only what the environment of `--python` lacks, for running sessions of policies with `environments.add`
    #[arg(long, requires_all = ["of_policies", "python"], conflicts_with = "allow_build")]
    pub add: bool,
    /// A package that was added to the session before, such as `numpy==2.0`, which keeps its version
    #[arg(long, value_name = "PACKAGE", requires = "add", hide = true)]
    pub beside: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Draw no progress bar, even on a terminal
    #[arg(long)]
    pub quiet: bool,
}
