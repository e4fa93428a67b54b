//! Runs one target in one process; `cargo xtask fuzz` starts one for each target.

use std::env;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use fuzz_targets::engine::{Failure, Session, Until};
use fuzz_targets::{TARGETS, Target, answers};
use nix::sys::resource::{Resource, setrlimit};

const USAGE: &str = "\
usage: fuzz-targets list
       fuzz-targets run TARGET CORPUS ARTIFACTS SEED inputs|seconds NUMBER [KEEP]
       fuzz-targets replay TARGET FILE...
       fuzz-targets answer";

/// The memory limit of a process that reads at most 64 KiB. A reader that allocates by an announced
/// length before the bytes have arrived then ends its process, not the machine.
const MOST_MEMORY: u64 = 4 << 30;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["list"] => {
            list();
            Ok(ExitCode::SUCCESS)
        }
        ["run", target, corpus, artifacts, seed, unit, number] => {
            run(target, [corpus, artifacts], None, [seed, unit, number])
        }
        ["run", target, corpus, artifacts, seed, unit, number, keep] => run(
            target,
            [corpus, artifacts],
            Some(keep),
            [seed, unit, number],
        ),
        ["replay", target, ref files @ ..] => replay(target, files),
        ["answer"] => answers::serve(BufReader::new(io::stdin()), io::stdout())
            .map(|()| ExitCode::SUCCESS)
            .map_err(Into::into),
        _ => Err(USAGE.into()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("fuzz-targets: {error}");
        ExitCode::FAILURE
    })
}

fn list() {
    for target in TARGETS {
        // The third column is the corpus's directory, because Python's targets share corpora with
        // these.
        let Target {
            name,
            inputs,
            about,
            ..
        } = target;
        println!("{name}\t{inputs}\t{name}\t{about}");
    }
}

fn find(name: &str) -> Result<&'static Target, Error> {
    let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    Target::find(name)
        .ok_or_else(|| format!("no target is called {name}: there are {}", known.join(", ")).into())
}

fn run(
    target: &str,
    [corpus, artifacts]: [&str; 2],
    keep: Option<&str>,
    [seed, unit, number]: [&str; 3],
) -> Result<ExitCode, Error> {
    let target = find(target)?;
    setrlimit(Resource::RLIMIT_AS, MOST_MEMORY, MOST_MEMORY)?;
    let until = match unit {
        "inputs" => Until::Inputs(number.parse()?),
        "seconds" => Until::Elapsed(Duration::from_secs(number.parse()?)),
        _ => return Err(USAGE.into()),
    };
    let session = Session {
        target,
        seed: seed.parse()?,
        until,
        corpus: Path::new(corpus),
        artifacts: Path::new(artifacts),
        keep: keep.map(Path::new),
    };
    match session.run() {
        Ok(tried) => {
            println!(
                "{} kept inputs, {} made with seed {seed}: {} taken, {} ways to answer",
                tried.kept, tried.made, tried.taken, tried.ways
            );
            Ok(ExitCode::SUCCESS)
        }
        // The panic has already printed its own message.
        Err(Failure::Broken(path)) => Err(broken(target.name, &path).into()),
        Err(Failure::Io(path, error)) => Err(format!("{}: {error}", path.display()).into()),
    }
}

fn broken(target: &str, path: &Path) -> String {
    let path = path.display();
    format!("{target} breaks on {path}: `cargo xtask fuzz --replay {path} {target}` does it again")
}

fn replay(target: &str, files: &[&str]) -> Result<ExitCode, Error> {
    let target = find(target)?;
    for file in files.iter().map(PathBuf::from) {
        let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let behaviour = (target.run)(&bytes);
        println!("{}: {behaviour:?}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}
