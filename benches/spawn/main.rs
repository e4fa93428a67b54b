//! The cost of a sandbox compared with the alternatives, measured in turns in one run.
//!
//! `cargo bench --bench spawn` prints one table, ratios first, and writes it as JSON and as a chart
//! to `target/bench`. It measures whole processes and whole runs, one at a time, for which
//! harnesses for functions do not fit. `cargo xtask bench` runs all parts with their prerequisites.

mod aims;
mod base;
mod contestant;
mod crowd;
mod field;
mod ground;
mod options;
mod peers;
mod probe;
mod processes;
mod programs;
mod report;
mod session;
mod subject;

use std::collections::HashMap;
use std::process::ExitCode;

use sandfork_measure::{Report, Samples};

use crate::base::Base;
use crate::contestant::Error;
use crate::field::Field;
use crate::ground::Ground;
use crate::options::{Options, Part};
use crate::subject::Subject;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    match bench(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("the benchmark ended: {why}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<(), Error> {
    let ground = Ground::survey(options)?;
    let mut report = report::head(&ground, options);
    let mut base = Base::new(&ground)?;
    let mut failed = Vec::new();
    for &part in &options.parts {
        base.sample()?;
        match measure_part(part, &ground, options, &mut report) {
            Ok(mut left_out) => report.left_out.append(&mut left_out),
            // The results of the other parts are still valid.
            Err(why) => failed.push(format!("the part {}: {why}", part.name())),
        }
        base.sample()?;
    }
    report.left_out.extend(failed.clone());
    report::add_base(&mut report, &base);
    print!("{}", report.table());
    for path in report::write(&report, options)? {
        println!("wrote {}", path.display());
    }
    match failed.into_iter().next() {
        Some(why) => Err(why.into()),
        None => Ok(()),
    }
}

/// Adds a part to the report. Returns one line for each thing that was left out.
fn measure_part(
    part: Part,
    ground: &Ground,
    options: &Options,
    report: &mut Report,
) -> Result<Vec<String>, Error> {
    match part {
        Part::Spawn => {
            let rounds = options.rounds();
            eprintln!("measuring fresh sandboxes and sessions, {rounds} rounds");
            let mut field = Field::assemble(ground, options)?;
            let measured = measure(&mut field, rounds)?;
            report::add_times(report, &measured);
            Ok(field.left_out)
        }
        Part::Memory => {
            eprintln!("measuring many live sessions");
            let (crowds, left_out) = crowd::measure(ground, options.extent)?;
            report::add_crowds(report, crowds);
            Ok(left_out)
        }
        Part::Overhead => {
            eprintln!("measuring programs inside and outside");
            let (programs, left_out) = programs::measure(ground, options.extent)?;
            report::add_programs(report, programs);
            Ok(left_out)
        }
    }
}

/// The first rounds warm caches and are discarded.
const WARM_UP: usize = 3;

/// Every contestant takes a turn in each round, so that other load on the machine affects all
/// alike.
fn measure(field: &mut Field, rounds: usize) -> Result<HashMap<Subject, Samples>, Error> {
    let mut measured: HashMap<Subject, Samples> = HashMap::new();
    for round in 0..WARM_UP + rounds {
        for entry in field
            .entries
            .iter_mut()
            .filter(|entry| round % entry.every == 0)
        {
            let mut record = |subject: Subject, time| {
                if round >= WARM_UP {
                    measured.entry(subject).or_default().push(time);
                }
            };
            entry.contestant.turn(&mut record)?;
        }
    }
    Ok(measured)
}
