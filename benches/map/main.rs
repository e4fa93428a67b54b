//! HumanEval's 164 programs, repeated: each in a fresh sandbox, through `sandfork map`, the
//! package's `map` and the library's `Batch`, compared with one plain `python3` process each and
//! with HumanEval's own executor.
//!
//! `cargo xtask bench map` prints rates and latencies, and whether all verdicts are equal. The
//! contestants take turns, so that other load on the machine affects all of them alike. Every
//! second round has wrong solutions in place of the right ones, so that both verdicts occur.

mod contestants;
mod options;
mod programs;

use std::process::ExitCode;
use std::time::Duration;

use crate::contestants::{Contestant, field};
use crate::options::Options;
use crate::programs::{Program, programs};

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    match bench(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("the benchmark ended: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What one contestant measured on the programs of one round.
pub struct Round {
    /// Whether each program passed, in their order.
    pub passed: Vec<bool>,
    /// How long each program took, if known.
    pub times: Vec<Duration>,
    /// How long all of them took.
    pub total: Duration,
}

/// A contestant with its results so far.
struct Entry {
    contestant: Box<dyn Contestant>,
    passed: Vec<Vec<bool>>,
    times: Vec<Duration>,
    total: Duration,
}

/// Runs the benchmark. Returns whether all verdicts were equal.
fn bench(options: &Options) -> Result<bool, Error> {
    let [right, wrong] = programs(&options.python)?;
    let mut entries: Vec<Entry> = field(options)?
        .into_iter()
        .map(|contestant| Entry {
            contestant,
            passed: Vec::new(),
            times: Vec::new(),
            total: Duration::ZERO,
        })
        .collect();
    for entry in &mut entries {
        // Warms the caches; the result is discarded.
        entry.contestant.round(&right[..8])?;
    }
    for number in 0..options.rounds {
        let programs: &[Program] = if number % 2 == 0 { &right } else { &wrong };
        for entry in &mut entries {
            let round = entry.contestant.round(programs)?;
            entry.passed.push(round.passed);
            entry.times.extend(round.times);
            entry.total += round.total;
        }
        eprint!("\rround {} of {}", number + 1, options.rounds);
    }
    eprintln!();
    print_table(&mut entries, options);
    Ok(print_verdicts(&entries, &right))
}

fn print_table(entries: &mut [Entry], options: &Options) {
    let rate = |entry: &Entry| {
        let tasks = entry.passed.iter().map(Vec::len).sum::<usize>();
        #[allow(clippy::cast_precision_loss)] // thousands
        let tasks = tasks as f64;
        tasks / entry.total.as_secs_f64()
    };
    let plain = entries.iter().find(|entry| entry.contestant.is_base());
    let plain = plain.map_or(f64::NAN, rate);
    println!("{} at once, {} rounds\n", options.jobs, options.rounds);
    println!("{:44}  tasks/s  ratio  p50 ms  p99 ms", "");
    for entry in entries {
        let rate = rate(entry);
        entry.times.sort_unstable();
        let [p50, p99] = [50, 99].map(|percent| quantile(&entry.times, percent));
        println!(
            "{:44}  {rate:7.1}  {:5.2}  {p50:>6}  {p99:>6}",
            entry.contestant.name(),
            rate / plain,
        );
    }
}

/// The quantile by nearest rank, milliseconds.
fn quantile(sorted: &[Duration], percent: usize) -> String {
    let rank = (sorted.len() * percent).div_ceil(100);
    match sorted.get(rank.saturating_sub(1)) {
        Some(time) => format!("{:.2}", time.as_secs_f64() * 1e3),
        None => "-".to_owned(),
    }
}

fn print_verdicts(entries: &[Entry], programs: &[Program]) -> bool {
    let Some((first, others)) = entries.split_first() else {
        return true;
    };
    let mut differences = 0;
    for other in others {
        for (round, (ours, theirs)) in first.passed.iter().zip(&other.passed).enumerate() {
            for (number, (our, their)) in ours.iter().zip(theirs).enumerate() {
                if our != their {
                    differences += 1;
                    println!(
                        "round {round}, {}: {} says {our}, {} says {their}",
                        programs[number].id,
                        first.contestant.name(),
                        other.contestant.name()
                    );
                }
            }
        }
    }
    let all: usize = first.passed.iter().map(Vec::len).sum();
    let passed = first
        .passed
        .iter()
        .flatten()
        .filter(|passed| **passed)
        .count();
    println!("\n{all} verdicts of each, {passed} of them passed; {differences} differ");
    differences == 0
}
