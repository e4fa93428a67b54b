//! Fuzzing on stable Rust: the targets of `fuzz/targets` and of `fuzz/python`, two at a time.

use std::collections::VecDeque;
use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Instant, SystemTime};

use crate::tally::Tally;
use crate::test::built;
use crate::{Error, interpreters, test_envs, workspace};

/// The seed that CI uses: a failure in CI repeats here.
const SEED: u64 = 1;

/// Replaces the number of inputs by a time for each target, seconds; 0 runs only the corpora.
const SECONDS: &str = "SANDFORK_FUZZ_SECONDS";

/// The fewest processors that a machine has. More targets at once would only run more slowly.
const AT_ONCE: usize = 2;

/// The options of `cargo xtask fuzz`.
#[derive(Debug, Default)]
struct Options {
    seconds: Option<u64>,
    seed: Option<u64>,
    replay: Option<PathBuf>,
    keep: bool,
    names: Vec<String>,
}

/// One target, as its driver lists it.
#[derive(Clone, Debug)]
struct Target {
    name: String,
    inputs: u64,
    corpus: String,
    driver: Driver,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Driver {
    Rust,
    Python,
}

/// The programs that run targets.
struct Drivers {
    rust: PathBuf,
    python: PathBuf,
    workspace: PathBuf,
}

/// `cargo xtask fuzz [--seconds N] [--seed N|fresh] [--keep] [--replay FILE] [TARGET...]`.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<ExitCode, Error> {
    let options = Options::parse(arguments)?;
    let drivers = Drivers::make()?;
    let targets = options.chosen(drivers.targets()?)?;
    if let Some(file) = &options.replay {
        return drivers.replay(&targets, file);
    }
    let tally = drivers.run_all(targets, &options)?;
    println!("\n{tally}");
    Ok(if tally.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs each target for its number of inputs with the fixed seed: a part of `cargo xtask test`.
pub fn test() -> Result<Tally, Error> {
    println!("\nfuzzing:");
    let seconds = env::var(SECONDS).ok().map(|text| text.parse());
    let options = Options {
        seconds: seconds
            .transpose()
            .map_err(|error| format!("{SECONDS} is no number of seconds: {error}"))?,
        ..Options::default()
    };
    let drivers = Drivers::make()?;
    let targets = drivers.targets()?;
    drivers.run_all(targets, &options)
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let next = arguments.next();
                next.ok_or_else(|| format!("{argument} wants a value"))
            };
            match argument.as_str() {
                "--seconds" => options.seconds = Some(value()?.parse()?),
                "--seed" => options.seed = Some(seed(&value()?)?),
                "--replay" => options.replay = Some(value()?.into()),
                "--keep" => options.keep = true,
                option if option.starts_with('-') => {
                    return Err(format!("`cargo xtask fuzz` has no option {option}").into());
                }
                _ => options.names.push(argument),
            }
        }
        Ok(options)
    }

    fn chosen(&self, targets: Vec<Target>) -> Result<Vec<Target>, Error> {
        let known: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        if let Some(unknown) = self
            .names
            .iter()
            .find(|name| !known.contains(&name.as_str()))
        {
            let known = known.join(", ");
            return Err(format!("no target is called {unknown}: there are {known}").into());
        }
        let wanted = |target: &Target| self.names.is_empty() || self.names.contains(&target.name);
        Ok(targets.into_iter().filter(wanted).collect())
    }
}

/// Parses a number, or `fresh`.
fn seed(text: &str) -> Result<u64, Error> {
    if text != "fresh" {
        return Ok(text.parse()?);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(u64::try_from(now.as_micros())?)
}

impl Drivers {
    fn make() -> Result<Self, Error> {
        let workspace = workspace();
        let rust = built(
            &workspace,
            &["build", "--package", "fuzz-targets"],
            |message| message["target"]["name"] == "fuzz-targets",
        )?;
        let python = python(&workspace)?;
        Ok(Self {
            rust,
            python,
            workspace,
        })
    }

    fn command(&self, driver: Driver) -> Command {
        let mut command = match driver {
            Driver::Rust => Command::new(&self.rust),
            Driver::Python => {
                let mut python = Command::new(&self.python);
                python.arg("fuzz/python").arg(&self.rust);
                python
            }
        };
        command.current_dir(&self.workspace).stdin(Stdio::null());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn targets(&self) -> Result<Vec<Target>, Error> {
        let mut of_rust = Command::new(&self.rust);
        of_rust.arg("list");
        let mut of_python = Command::new(&self.python);
        of_python.args(["fuzz/python", "list"]);
        of_python.env("PYTHONDONTWRITEBYTECODE", "1");
        let mut targets = Vec::new();
        for (driver, mut list) in [(Driver::Rust, of_rust), (Driver::Python, of_python)] {
            let output = list.current_dir(&self.workspace).output()?;
            if !output.status.success() {
                let told = String::from_utf8_lossy(&output.stderr);
                return Err(format!("the targets could not be listed: {told}").into());
            }
            for line in String::from_utf8(output.stdout)?.lines() {
                targets.push(Target::parse(line, driver)?);
            }
        }
        Ok(targets)
    }

    /// Runs all targets. Returns how many passed.
    fn run_all(&self, targets: Vec<Target>, options: &Options) -> Result<Tally, Error> {
        let seed = options.seed.unwrap_or(SEED);
        let waiting = Mutex::new(VecDeque::from(targets));
        let tally = Mutex::new(Tally::default());
        let next = || waiting.lock().ok()?.pop_front();
        let work = || -> Result<(), String> {
            while let Some(target) = next() {
                let started = Instant::now();
                let output = self.one(&target, seed, options);
                let output = output.map_err(|error| format!("{}: {error}", target.name))?;
                let held = output.status.success();
                let seconds = started.elapsed().as_secs();
                let told = String::from_utf8_lossy(&output.stdout);
                // One write for each line, because two targets print at the same time.
                let mut line = format!("fuzz {} ({seconds} s): {}", target.name, told.trim_end());
                if !held {
                    let why = String::from_utf8_lossy(&output.stderr);
                    let (status, name) = (output.status, &target.name);
                    line = format!(
                        "{line}FAILED ({status}, seed {seed}); what it was at is in \
                         target/fuzz/{name}-{seed:016x}\n{why}"
                    );
                }
                writeln!(std::io::stdout().lock(), "{line}").map_err(|error| error.to_string())?;
                tally.lock().map_err(|error| error.to_string())?.count(held);
            }
            Ok(())
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().map_err(|_| "a thread panicked".to_owned())?)
        })?;
        Ok(tally.into_inner()?)
    }

    fn one(&self, target: &Target, seed: u64, options: &Options) -> Result<Output, Error> {
        let made = self.workspace.join("target/fuzz");
        let mut command = self.command(target.driver);
        command.args(["run", &target.name]).arg(target.corpus());
        command.arg(&made).arg(seed.to_string());
        match options.seconds {
            Some(seconds) => command.args(["seconds", &seconds.to_string()]),
            None => command.args(["inputs", &target.inputs.to_string()]),
        };
        if options.keep && target.driver == Driver::Rust {
            let kept = made.join("kept").join(&target.name);
            std::fs::create_dir_all(&kept)?;
            command.arg(kept);
        }
        Ok(command.output()?)
    }

    fn replay(&self, targets: &[Target], file: &Path) -> Result<ExitCode, Error> {
        let [target] = targets else {
            return Err("--replay wants one target: the one whose input it is".into());
        };
        let file = file.canonicalize()?;
        let mut command = self.command(target.driver);
        let status = command.args(["replay", &target.name]).arg(file).status()?;
        Ok(ExitCode::from(u8::from(!status.success())))
    }
}

impl Target {
    /// `name inputs corpus about`, with tabs between them.
    fn parse(line: &str, driver: Driver) -> Result<Self, Error> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, inputs, corpus, _] = fields[..] else {
            return Err(format!("{line:?} is no target").into());
        };
        Ok(Self {
            name: name.to_owned(),
            inputs: inputs.parse()?,
            corpus: corpus.to_owned(),
            driver,
        })
    }

    fn corpus(&self) -> PathBuf {
        Path::new("fuzz/corpus").join(&self.corpus)
    }
}

/// An interpreter with numpy and pandas if the tests have made one, or any interpreter.
fn python(workspace: &Path) -> Result<PathBuf, Error> {
    let found = interpreters::find().supported;
    let newest = found.iter().max_by_key(|interpreter| interpreter.version);
    let newest = newest.ok_or("no CPython 3.9 or later was found: install one")?;
    let root = test_envs::place(&workspace.join("target/test-envs"), "test-envs")?;
    let venv = root.join(format!("cpython-{}/bin/python", newest.version_text()));
    if venv.exists() {
        return Ok(venv);
    }
    Ok(newest.executable.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Result<Options, Error> {
        Options::parse(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn options_are_read_and_others_refused() {
        let read = options(&["--seconds", "3", "frames", "--seed", "7"]);
        let read = read.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((read.seconds, read.seed), (Some(3), Some(7)));
        assert_eq!(read.names, ["frames"]);
        for wrong in [&["--second", "3"][..], &["--seconds"], &["--seed", "x"]] {
            assert!(options(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_unknown_target_is_named() {
        let read = options(&["frame"]).unwrap_or_else(|error| panic!("{error}"));
        let known = Target::parse("frames\t5\tframes\twhat", Driver::Rust);
        let known = known.unwrap_or_else(|error| panic!("{error}"));
        let refused = read.chosen(vec![known]).expect_err("it is unknown");
        assert!(refused.to_string().contains("frame: there are frames"));
    }
}
