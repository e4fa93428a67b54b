//! A fuzzing engine for stable Rust: a corpus, mutations, and the reader's behaviour in place of
//! coverage. It finds new paths more slowly than libFuzzer, but it is deterministic: a seed and a
//! number of inputs decide everything.

mod corpus;
mod mutate;
mod pool;
mod random;
mod token;
mod watch;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use corpus::{Kept, read};

use crate::{Behaviour, Target};
use mutate::Mutator;
use pool::Pool;
use random::Random;
use watch::Watch;

/// When to stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Until {
    /// After this many inputs, not counting those of the corpus.
    Inputs(u64),
    /// After this much wall-clock time.
    Elapsed(Duration),
}

/// One run of the engine.
#[derive(Clone, Debug)]
pub struct Session<'a> {
    /// The target to run.
    pub target: &'a Target,
    /// The seed that decides the inputs.
    pub seed: u64,
    /// When it stops.
    pub until: Until,
    /// The directory of the initial inputs, which are first run unchanged.
    pub corpus: &'a Path,
    /// The directory for an input that breaks a property.
    pub artifacts: &'a Path,
    /// The directory for inputs with new behaviour, if they are to be written.
    pub keep: Option<&'a Path>,
}

/// The result of a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tried {
    /// Inputs of the corpus.
    pub kept: u64,
    /// Inputs made by mutation.
    pub made: u64,
    /// Accepted inputs.
    pub taken: u64,
    /// Distinct behaviours.
    pub ways: usize,
}

/// Why a session ended before its time.
#[derive(Debug)]
pub enum Failure {
    /// A property does not hold for the input in this file.
    Broken(PathBuf),
    /// A directory could not be read or written.
    Io(PathBuf, io::Error),
}

impl Session<'_> {
    /// Runs the corpus, then mutations of it.
    ///
    /// # Errors
    ///
    /// The first input that breaks a property, which is written to a file.
    pub fn run(&self) -> Result<Tried, Failure> {
        let started = Instant::now();
        let mut runner = Runner::new(self)?;
        let seeds = read(self.corpus).map_err(|error| Failure::Io(self.corpus.into(), error))?;
        let mut tried = Tried::default();
        let mut pool = Pool::default();
        for seed in seeds {
            let behaviour = runner.try_one(&seed.bytes)?;
            tried.kept += 1;
            tried.taken += u64::from(behaviour.is_taken());
            pool.add(behaviour, seed.bytes);
        }
        let mut mutator = Mutator {
            random: Random::new(self.seed),
            words: self.target.words,
        };
        while match self.until {
            Until::Inputs(inputs) => tried.made < inputs,
            Until::Elapsed(time) => started.elapsed() < time,
        } {
            let one = pool.pick(&mut mutator.random);
            let other = pool.pick(&mut mutator.random);
            let input = mutator.mutate(one, other);
            let known = runner.ways.len();
            let behaviour = runner.try_one(&input)?;
            tried.made += 1;
            tried.taken += u64::from(behaviour.is_taken());
            if runner.ways.len() > known {
                self.keep(&input, known)?;
                pool.add(behaviour, input);
            }
        }
        tried.ways = runner.ways.len();
        runner.finish()?;
        Ok(tried)
    }

    fn keep(&self, input: &[u8], number: usize) -> Result<(), Failure> {
        let Some(directory) = self.keep else {
            return Ok(());
        };
        let path = directory.join(format!("{:016x}-{number}", self.seed));
        fs::write(&path, input).map_err(|error| Failure::Io(path, error))
    }
}

/// Runs one target, and records its behaviours.
struct Runner<'a> {
    target: &'a Target,
    ways: HashSet<Behaviour>,
    /// Holds the current input, in case it ends the process.
    last: File,
    path: PathBuf,
    watch: Watch,
}

impl<'a> Runner<'a> {
    fn new(session: &Session<'a>) -> Result<Self, Failure> {
        let directory = session.artifacts;
        let path = directory.join(format!("{}-{:016x}", session.target.name, session.seed));
        let made = fs::create_dir_all(directory).and_then(|()| File::create(&path));
        let last = made.map_err(|error| Failure::Io(path.clone(), error))?;
        let stuck = path.clone();
        let watch = Watch::start(move || {
            eprintln!(
                "{}: an input takes longer than half a minute",
                stuck.display()
            );
            std::process::abort();
        });
        Ok(Self {
            target: session.target,
            ways: HashSet::new(),
            last,
            path,
            watch,
        })
    }

    /// Runs one input and records its behaviour.
    fn try_one(&mut self, input: &[u8]) -> Result<Behaviour, Failure> {
        self.watch.next();
        let written = self.last.set_len(input.len() as u64);
        let written = written.and_then(|()| self.last.write_all_at(input, 0));
        written.map_err(|error| Failure::Io(self.path.clone(), error))?;
        let answered = catch_unwind(AssertUnwindSafe(|| (self.target.run)(input)));
        let behaviour = answered.map_err(|_| Failure::Broken(self.path.clone()))?;
        self.ways.insert(behaviour);
        Ok(behaviour)
    }

    /// Removes the file: one that remains marks its input as a failure, and the last input did not
    /// fail.
    fn finish(self) -> Result<(), Failure> {
        fs::remove_file(&self.path).map_err(|error| Failure::Io(self.path, error))
    }
}
