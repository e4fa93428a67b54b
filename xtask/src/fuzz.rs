//! Fuzzes on stable Rust: runs `fuzz/targets/tests/fuzz`, which is part of `cargo test`, with other inputs.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Result;
use xshell::cmd;

use crate::shell;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Fuzz each target for this time instead of a number of inputs; 0 runs only the corpora
    #[arg(long)]
    seconds: Option<u64>,
    /// The seed: a number, or `fresh` for a random one
    #[arg(long, value_name = "N|fresh", value_parser = seed)]
    seed: Option<u64>,
    /// Run only this input of the TARGET
    #[arg(long, value_name = "FILE", requires = "targets")]
    replay: Option<PathBuf>,
    /// The targets; by default all
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

fn seed(text: &str) -> Result<u64, std::num::ParseIntError> {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    match text {
        "fresh" => Ok(now().unwrap_or_default().as_secs()),
        _ => text.parse(),
    }
}

pub fn run(options: &Options) -> Result<()> {
    let sh = shell()?;
    let mut test = cmd!(sh, "cargo test --quiet --package fuzz-targets --test fuzz");
    if let Some(seconds) = options.seconds {
        test = test.env("SANDFORK_FUZZ_SECONDS", seconds.to_string());
    }
    if let Some(seed) = options.seed {
        test = test.env("SANDFORK_FUZZ_SEED", seed.to_string());
    }
    if let Some(file) = &options.replay {
        test = test.env("SANDFORK_FUZZ_REPLAY", file.canonicalize()?);
    }
    if !options.targets.is_empty() {
        test = test.env("SANDFORK_FUZZ_TARGETS", options.targets.join(" "));
    }
    Ok(test.run()?)
}
