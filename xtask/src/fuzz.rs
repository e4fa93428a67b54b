//! Fuzzing on stable Rust: `fuzz/targets/tests/fuzz`, which is a part of `cargo test`, with other inputs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use crate::test::cargo;
use crate::{Error, workspace};

/// Tries every reader of hostile bytes, with the inputs that CI tries unless another time or seed is named.
#[derive(Debug, clap::Parser)]
pub struct Options {
    /// A time for each target in place of its number of inputs; 0 runs only the corpora.
    #[arg(long)]
    seconds: Option<u64>,
    /// A number, or `fresh`.
    #[arg(long, value_name = "N|fresh", value_parser = seed)]
    seed: Option<u64>,
    /// Runs only this input of the TARGET.
    #[arg(long, value_name = "FILE", requires = "targets")]
    replay: Option<PathBuf>,
    /// The targets; all of them if none is named.
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

pub fn run(options: &Options) -> Result<ExitCode, Error> {
    let mut test = cargo(&workspace());
    test.args([
        "test",
        "--quiet",
        "--package",
        "fuzz-targets",
        "--test",
        "fuzz",
    ]);
    if let Some(seconds) = options.seconds {
        test.env("SANDFORK_FUZZ_SECONDS", seconds.to_string());
    }
    if let Some(seed) = options.seed {
        test.env("SANDFORK_FUZZ_SEED", seed.to_string());
    }
    if let Some(file) = &options.replay {
        test.env("SANDFORK_FUZZ_REPLAY", file.canonicalize()?);
    }
    if !options.targets.is_empty() {
        test.env("SANDFORK_FUZZ_TARGETS", options.targets.join(" "));
    }
    let status = test.status()?;
    Ok(ExitCode::from(u8::from(!status.success())))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn options_are_read_and_others_refused() {
        let read = |words: &[&str]| Options::try_parse_from([&["fuzz"], words].concat());
        let some = read(&["--seconds", "3", "frames", "--seed", "7"]).expect("they are options");
        assert_eq!((some.seconds, some.seed), (Some(3), Some(7)));
        assert_eq!(some.targets, ["frames"]);
        assert!(read(&["--seed", "fresh"]).expect("a seed").seed > Some(1));
        for wrong in [
            &["--second", "3"][..],
            &["--seconds"],
            &["--seed", "x"],
            &["--replay", "x"],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
