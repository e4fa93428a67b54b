//! Compares the cost of a sandbox with the alternatives, measured in turns in one run.
//!
//! `cargo bench --bench spawn` prints one table, ratios first, and writes it as JSON and as a chart
//! to `target/bench`. It measures whole processes and whole runs, one at a time, which benchmark
//! harnesses for functions do not support. `cargo xtask bench` runs all parts with their prerequisites.

mod aims;
#[path = "../common/mod.rs"]
mod common;
mod contestant;
mod copies;
mod crowd;
mod field;
mod ground;
mod peers;
mod processes;
mod programs;
mod report;
mod session;
mod subject;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use sandfork_measure::{Report, Samples};

use crate::contestant::Contestant as _;
use crate::field::Field;
use crate::ground::Ground;
use crate::processes::Process;
use crate::subject::Subject;

/// The command line.
#[derive(Clone, Debug, Parser)]
pub struct Options {
    /// Under half a minute for each part: the medians are meaningful, the tails are not
    #[arg(long)]
    quick: bool,
    /// The interpreter
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// The parts to measure
    #[arg(value_enum, default_value = "spawn")]
    parts: Vec<Part>,
    /// Cargo adds this argument
    #[arg(long, hide = true)]
    bench: bool,
}

/// The parts that can be measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Part {
    /// Fresh sandboxes and sessions, compared with the alternatives.
    Spawn,
    /// Memory of idle sessions, and a cell's time, as the number of live sessions grows.
    Memory,
    /// The same programs inside and outside a sandbox.
    Overhead,
    /// Copies of live sessions.
    Snapshot,
    /// All of these.
    All,
}

impl Options {
    /// Selects the amount for a table with tails, or for one in which only the medians are meaningful.
    pub fn full_or_quick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Returns the base name of the files.
    pub fn name(&self) -> String {
        match self.parts[..] {
            [part] => format!("{part:?}").to_lowercase(),
            _ => "all".to_owned(),
        }
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let ground = Ground::survey(&options)?;
    let mut report = report::head(&ground, &options);
    let mut base = Base(processes::python(&ground.python)?, Samples::default());
    let mut failed = Vec::new();
    for part in [Part::Spawn, Part::Memory, Part::Overhead, Part::Snapshot] {
        if !options.parts.contains(&part) && !options.parts.contains(&Part::All) {
            continue;
        }
        base.sample()?;
        match measure_part(part, &ground, &options, &mut report) {
            Ok(mut left_out) => report.left_out.append(&mut left_out),
            // The results of the other parts are still valid.
            Err(why) => failed.push(format!("the part {part:?}: {why:#}")),
        }
        base.sample()?;
    }
    report.left_out.extend(failed.clone());
    report::add_base(&mut report, base.1.summary());
    print!("{}", report.table());
    for path in report::write(&report, &options)? {
        println!("wrote {}", path.display());
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// The base of all comparisons, `python3 -c pass`, measured before and after each part, during which it
/// may not take turns with the contestants.
struct Base(Process, Samples);

impl Base {
    fn sample(&mut self) -> Result<()> {
        let Self(process, samples) = self;
        (0..15).try_for_each(|_| process.turn(&mut |_, time| samples.push(time)))
    }
}

/// Adds a part to the report. Returns one line for each subject that was left out.
fn measure_part(
    part: Part,
    ground: &Ground,
    options: &Options,
    report: &mut Report,
) -> Result<Vec<String>> {
    eprintln!("measuring the part {part:?}");
    match part {
        Part::Memory => {
            let (crowds, left_out) = crowd::measure(ground, options)?;
            report::add_crowds(report, crowds);
            Ok(left_out)
        }
        Part::Overhead => {
            let (programs, left_out) = programs::measure(ground, options)?;
            report::add_programs(report, programs);
            Ok(left_out)
        }
        Part::Snapshot => {
            let (measured, shares) = copies::measure(ground, options)?;
            report::add_times(report, &measured);
            report.aims.push(aims::of_forks(&shares));
            Ok(Vec::new())
        }
        Part::Spawn | Part::All => {
            let mut field = Field::assemble(ground, options)?;
            let measured = measure(&mut field, options.full_or_quick(300, 40))?;
            report::add_times(report, &measured);
            Ok(field.left_out)
        }
    }
}

/// The first rounds warm caches and are discarded.
const WARM_UP: usize = 3;

/// Measures in rounds, in each of which every contestant takes a turn, so that other load on the machine affects all
/// alike.
fn measure(field: &mut Field, rounds: usize) -> Result<BTreeMap<Subject, Samples>> {
    let mut measured: BTreeMap<Subject, Samples> = BTreeMap::new();
    for round in 0..WARM_UP + rounds {
        for (every, contestant) in &mut field.entries {
            if round.is_multiple_of(*every) {
                contestant.turn(&mut |subject, time| {
                    if round >= WARM_UP {
                        measured.entry(subject).or_default().push(time);
                    }
                })?;
            }
        }
    }
    Ok(measured)
}
