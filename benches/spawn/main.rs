//! What a fresh sandbox costs, beside what one would pick instead, measured in turns in one run.
//!
//! `cargo bench --bench spawn` prints one table, ratios first, and writes
//! `target/bench/spawn.json`. Whole processes and whole runs are measured, one at a time, so that
//! no harness for functions fits.

mod contestant;
mod field;
mod options;
mod ratio;
mod report;
mod samples;
mod session;
mod subject;
mod table;

use std::collections::HashMap;
use std::process::ExitCode;

use crate::contestant::Error;
use crate::field::Field;
use crate::options::Options;
use crate::report::Report;
use crate::samples::Samples;
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
    let mut field = Field::assemble(options)?;
    let load_before = report::load_average();
    let measured = measure(&mut field, options.rounds)?;
    let report = Report::new(&field, &measured, options, load_before);
    print!("{}", table::render(&report));
    let path = report.write()?;
    println!("\n{} has all of it", path.display());
    Ok(())
}

/// The first rounds, which warm caches and are thrown away.
const WARM_UP: usize = 3;

/// Everyone has a turn in each round, so that whatever else the machine does falls on all alike.
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
