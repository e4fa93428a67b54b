//! Defines the arguments of `sandfork env`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::policy::EnvironmentName;

/// The commands of `sandfork env`.
#[derive(Debug, Subcommand)]
pub enum EnvCommand {
    /// Create an environment: install packages from wheels, in a sandbox, with pip's configuration
    Create(EnvCreateArguments),
    /// List the environments
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show the packages and the requirements of an environment
    Show {
        /// The environment's name
        name: EnvironmentName,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the lock of an environment, as `pylock.toml`
    Export {
        /// The environment's name
        name: EnvironmentName,
        /// Write the lock to this file instead of stdout
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Remove environments that no sandbox uses
    Remove {
        /// The environments' names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<EnvironmentName>,
    },
    /// Remove environments without a name, and the remains of aborted commands
    Prune {
        /// Also remove the environments made for `python.packages` of policies
        #[arg(long)]
        packages: bool,
    },
}

/// `sandfork env create`.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools)] // one per flag
#[command(
    override_usage = "sandfork env create [OPTIONS] <NAME> [PACKAGE...]\n       sandfork env create [OPTIONS] --packages <PACKAGE...>"
)]
pub struct EnvCreateArguments {
    /// The name of the environment, and packages such as `pandas==2.2.*`
    #[arg(required = true, value_names = ["NAME", "PACKAGE"], num_args = 1..)]
    pub packages: Vec<String>,
    /// Install the packages of this requirements file
    #[arg(long = "requirements", short = 'r', value_name = "FILE")]
    pub requirements: Vec<PathBuf>,
    /// Install exactly the packages of this lock, a `pylock.toml`
    #[arg(long, value_name = "FILE", conflicts_with = "requirements")]
    pub lock: Option<PathBuf>,
    /// The interpreter: a name, a path, or a virtual environment [default: python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,
    /// The package index, instead of the one in pip's configuration
    #[arg(long, value_name = "URL")]
    pub index_url: Option<String>,
    /// A host from which the index serves its files, or a host on a private network that only a requirements file names
    #[arg(long = "allow-host", value_name = "HOST")]
    pub allow_hosts: Vec<String>,
    /// Build source distributions that have no wheel: in a sandbox, but their build code can reach the index
    #[arg(long)]
    pub allow_build: bool,
    /// Create the environment for policies whose `python.packages` lists these packages; it takes no NAME
    #[arg(long = "packages", conflicts_with_all = ["requirements", "lock"])]
    pub of_policies: bool,
    /// Install only what the environment of `--python` lacks, for running sessions of policies with `environments.add`
    #[arg(long, requires_all = ["of_policies", "python"], conflicts_with = "allow_build")]
    pub add: bool,
    /// A package that was already added to the session and keeps its version, such as `numpy==2.0`
    #[arg(long, value_name = "PACKAGE", requires = "add", hide = true)]
    pub beside: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Draw no progress bar, even on a terminal
    #[arg(long)]
    pub quiet: bool,
}
