//! Fuzzes on stable Rust: each target runs the inputs of its corpus and others generated from them, in a
//! separate process.

mod inputs;
mod python;

use std::cell::Cell;
use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use fuzz_targets::TARGETS;
use libtest_mimic::{Arguments, Failed, Trial};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use self::inputs::inputs;
use self::python::Python;

/// The targets to run; all if the variable is not set.
const CHOSEN: &str = "SANDFORK_FUZZ_TARGETS";
/// The time for each target, instead of its number of inputs; 0 runs only the corpora.
const SECONDS: &str = "SANDFORK_FUZZ_SECONDS";
const SEED: &str = "SANDFORK_FUZZ_SEED";
/// The file of a single input to run.
const REPLAY: &str = "SANDFORK_FUZZ_REPLAY";
/// The target, in a process that this program has started.
const ONE: &str = "SANDFORK_FUZZ_ONE";

/// The memory limit: a parser allocates little for at most 64 KiB of input. One that allocates by a declared length,
/// before the bytes have arrived, ends its own process and does not exhaust the machine.
const MAX_MEMORY: u64 = 4 << 30;

/// The CPU time limit of one input in seconds. The slowest valid input takes a tenth of a
/// second. A wall time limit would fail on a busy machine.
const MAX_TIME: u64 = 30;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    env::set_current_dir(root).expect("the checkout is there");
    if let Ok(name) = env::var(ONE) {
        return match fuzz(&name) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let (rust, python) = (TARGETS.iter(), python::TARGETS.iter());
    let rust = rust.map(|it| it.name);
    // The Python targets take the longest, the last of them twice as long as any other, and start first.
    let known: Vec<&str> = python.rev().map(|it| it.name).chain(rust).collect();
    let chosen = env::var(CHOSEN).unwrap_or_else(|_| known.join(" "));
    if let Some(unknown) = chosen.split(' ').find(|name| !known.contains(name)) {
        eprintln!(
            "no target is called {unknown}: there are {}",
            known.join(", ")
        );
        return ExitCode::FAILURE;
    }
    let trial = |name: &str| {
        let name = name.to_owned();
        Trial::test(name.clone(), move || in_a_process(&name))
    };
    let mut trials: Vec<Trial> = chosen.split(' ').map(trial).collect();
    trials.push(Trial::test(
        "planted_fault_is_found",
        planted_fault_is_found,
    ));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn in_a_process(name: &str) -> std::result::Result<(), Failed> {
    let mut one = Command::new(env::current_exe()?);
    let output = one.env(ONE, name).stdin(Stdio::null()).output()?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let (status, file) = (output.status, artifact(name));
    Err(format!("{stderr}{status}: `cargo xtask fuzz --replay {file} {name}` runs it again").into())
}

/// Returns the file that holds the current input, in case it ends the process.
fn artifact(name: &str) -> String {
    format!("target/fuzz/{name}.input")
}

/// Runs one target.
fn fuzz(name: &str) -> Result {
    let (_, hard) = getrlimit(Resource::RLIMIT_AS)?;
    setrlimit(Resource::RLIMIT_AS, MAX_MEMORY, hard)?;
    let target = Target::find(name);
    let (seconds, seed) = (number(SECONDS)?, number(SEED)?.unwrap_or(1));
    if let Ok(file) = env::var(REPLAY) {
        let input = fs::read(file)?;
        limit_time()?;
        let taken = (target.run)(&input);
        println!("it is {}", if taken { "taken" } else { "refused" });
        return Ok(());
    }
    fs::create_dir_all("target/fuzz")?;
    let last = File::create(artifact(name))?;
    let run = |input: &[u8]| {
        let kept = last.set_len(0).and_then(|()| last.write_all_at(input, 0));
        kept.expect("the input is kept");
        limit_time().expect("time can be limited");
        (target.run)(input)
    };
    let corpus = corpus(target.corpus)?;
    let kept = corpus.len();
    let taken = corpus.iter().filter(|input| run(input)).count();
    if taken < 2 || taken == kept {
        return Err(format!("{taken} of {kept} kept inputs are taken; keep more of others").into());
    }
    let begun = Instant::now();
    let is_over = |made| match seconds {
        Some(seconds) => begun.elapsed() >= Duration::from_secs(seconds),
        None => made == target.inputs,
    };
    let inputs = inputs(&corpus, words(target.corpus)?);
    let (made, taken) = match search(&inputs, seed, is_over, run) {
        Ok(tried) => tried,
        Err(TestError::Fail(why, shortest)) => {
            fs::write(artifact(name), shortest)?;
            return Err(format!("{why} (seed {seed})").into());
        }
        Err(TestError::Abort(why)) => return Err(why.to_string().into()),
    };
    fs::remove_file(artifact(name))?;
    let seconds = begun.elapsed().as_secs();
    println!(
        "fuzz {name} ({seconds} s): {kept} kept inputs, {made} made with seed {seed}: {taken} taken"
    );
    Ok(())
}

/// Tries inputs. Returns how many there were and how many were accepted, or the shortest one found that violates a
/// property.
fn search(
    inputs: &impl Strategy<Value = Vec<u8>>,
    seed: u64,
    is_over: impl Fn(u64) -> bool,
    run: impl Fn(&[u8]) -> bool,
) -> std::result::Result<(u64, u64), TestError<Vec<u8>>> {
    let config = Config {
        max_shrink_iters: 10_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let mut key = [1; 16];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::XorShift, &key);
    let mut runner = TestRunner::new_with_rng(config, random);
    let (mut made, taken) = (0, Cell::new(0));
    while !is_over(made) {
        let input = inputs.new_tree(&mut runner).map_err(TestError::Abort)?;
        runner.run_one(input, |input| {
            taken.set(taken.get() + u64::from(run(&input)));
            Ok(())
        })?;
        made += 1;
    }
    Ok((made, taken.get()))
}

/// The search must combine a word of the dictionary with a number at the boundary of arithmetic.
fn planted_fault_is_found() -> std::result::Result<(), Failed> {
    let inputs = inputs(&[b"number 7".to_vec()], vec![b"length=".to_vec()]);
    let planted = b"length=4294967296";
    let is_planted = |input: &[u8]| input.windows(planted.len()).any(|it| it == planted);
    let found = search(
        &inputs,
        1,
        |made| made == 1_000_000,
        |input| {
            assert!(!is_planted(input), "the planted fault");
            true
        },
    );
    match found {
        Err(TestError::Fail(_, shortest)) if is_planted(&shortest) => Ok(()),
        other => Err(format!("it was not found: {other:?}").into()),
    }
}

fn number(variable: &str) -> Result<Option<u64>> {
    let text = env::var(variable).ok();
    Ok(text.map(|text| text.parse()).transpose()?)
}

/// Makes the kernel kill this process if the next input takes too long (setrlimit(2)).
fn limit_time() -> nix::Result<()> {
    let used = getrusage(UsageWho::RUSAGE_SELF)?;
    let used = used.user_time().tv_sec() + used.system_time().tv_sec();
    let (_, hard) = getrlimit(Resource::RLIMIT_CPU)?;
    setrlimit(Resource::RLIMIT_CPU, used.cast_unsigned() + MAX_TIME, hard)
}

type Run = Box<dyn Fn(&[u8]) -> bool>;

/// A target, in Rust or in Python.
struct Target {
    corpus: &'static str,
    inputs: u64,
    run: Run,
}

impl Target {
    fn find(name: &str) -> Self {
        if let Some(target) = TARGETS.iter().find(|it| it.name == name) {
            return Self {
                corpus: target.name,
                inputs: target.inputs,
                run: Box::new(target.run),
            };
        }
        let target = python::TARGETS.iter().find(|it| it.name == name);
        let target = target.unwrap_or_else(|| panic!("no target is called {name}"));
        let python = Python::new(target.name);
        Self {
            corpus: target.corpus,
            inputs: target.inputs,
            run: Box::new(move |input| python.check(input)),
        }
    }
}

/// Returns the inputs of a corpus in the order of their names, which is the same on every machine.
fn corpus(name: &str) -> io::Result<Vec<Vec<u8>>> {
    let files = fs::read_dir(Path::new("fuzz/corpus").join(name))?;
    let mut files = files
        .map(|file| Ok(file?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    files.sort();
    files.iter().map(fs::read).collect()
}

/// Parses a libFuzzer dictionary: `name = "word"`, with non-printable bytes as `\xHH`.
fn words(name: &str) -> Result<Vec<Vec<u8>>> {
    let text = fs::read_to_string(format!("fuzz/dictionaries/{name}.dict"))?;
    let table: toml::Table = text.parse()?;
    let words = table.values().filter_map(toml::Value::as_str);
    // TOML parses `\xHH` as the character U+00HH.
    Ok(words
        .map(|word| word.chars().map(|byte| byte as u8).collect())
        .collect())
}
