//! Runs programs through the library: all runs share one sandbox and so one warm interpreter, like
//! consecutive tenants of a server. The harness starts this test binary again for it, because the
//! launching user may differ from the user of the harness.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use sandfork::session::{Cell, Program, ProgramEnd, ProgramReport};
use sandfork::{FileSystem, Outcome, Override, Policy, Request, Sandbox};

use crate::world::value_of;

/// The first argument that selects this mode. The arguments of `sandfork run` follow.
pub const IN_ONE_SANDBOX: &str = "--in-one-sandbox";
/// Runs the programs in one sandbox. All but the second are cells of one session, which stays alive meanwhile.
pub const AS_TWO_TENANTS: &str = "--as-two-tenants";
/// Runs the programs in copies of a session that has loaded modules and data.
pub const IN_A_COPY: &str = "--in-a-copy";
/// Runs the programs as programs of a session, beside its cells.
pub const AS_A_PROGRAM: &str = "--as-a-program";
/// Placeholder in a program for the text that the previous program printed after `VALUE `.
pub const PREVIOUS: &str = "@PREV@";

/// Returns whether the first argument selects one of these modes.
pub fn is_selected(argument: &OsString) -> bool {
    [IN_ONE_SANDBOX, AS_TWO_TENANTS, IN_A_COPY, AS_A_PROGRAM]
        .iter()
        .any(|how| argument == how)
}

/// Runs the programs one after another and prints one JSON line for each.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<(), Box<dyn std::error::Error>> {
    let how = arguments.next().unwrap_or_default();
    let mut policy = String::new();
    let mut overrides = Vec::new();
    let mut programs = Vec::new();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().and_then(|value| value.into_string().ok());
        match argument.to_str() {
            Some("run" | "--json") => {}
            Some("--policy") => policy = value().ok_or("--policy without a name")?,
            Some("--set") => {
                let set = value().ok_or("--set without an assignment")?;
                overrides.push(set.parse::<Override>()?);
            }
            _ => programs.push(argument),
        }
    }
    let policy = Policy::load(&policy, &overrides, &FileSystem)?;
    let sandbox = Arc::new(Sandbox::builder().policy(policy).build()?);
    if how == IN_A_COPY || how == AS_A_PROGRAM {
        let run = if how == IN_A_COPY {
            in_a_copy
        } else {
            as_a_program
        };
        for program in &programs {
            run(&sandbox, fs::read_to_string(Path::new(program))?)?;
        }
        return Ok(());
    }
    let two_tenants = how == AS_TWO_TENANTS;
    let mut first = two_tenants.then(|| sandbox.session()).transpose()?;
    let mut previous = String::new();
    for (number, program) in programs.iter().enumerate() {
        let source = fs::read_to_string(Path::new(&program))?.replace(PREVIOUS, &previous);
        previous = match &mut first {
            Some(session) if number != 1 => {
                print_outcome(session.run(Cell::new(source))?.outcome())?
            }
            _ => print_outcome(&sandbox.run(Request::python(source))?)?,
        };
    }
    Ok(())
}

/// Runs a program in a fork of a session, and again in that session after a rollback and a pause.
fn in_a_copy(sandbox: &Arc<Sandbox>, source: String) -> Result<(), Box<dyn std::error::Error>> {
    let mut session = sandbox.session()?;
    session.run("import json, socket; loaded = list(range(10_000)); open('made', 'w').close()")?;
    let snapshot = session.snapshot()?;
    let mut forked = snapshot.fork()?;
    print_outcome(forked.run(Cell::new(source.clone()))?.outcome())?;
    drop(forked);
    session.rollback(&snapshot)?;
    match session.pause() {
        // Without a disk for its state, the session continues after the rollback without a pause.
        Err(error) if error.to_string().contains("on a disk in none of") => {}
        paused => paused?,
    }
    print_outcome(session.run(Cell::new(source))?.outcome())?;
    Ok(())
}

/// Runs a program as a program of a session, with the interpreter of its cells. Prints an outcome in the format of a
/// cell's.
fn as_a_program(sandbox: &Arc<Sandbox>, source: String) -> Result<(), Box<dyn std::error::Error>> {
    let mut session = sandbox.session()?;
    let report = session.run("import sys; print(sys.executable, end='')")?;
    let interpreter = report.outcome().stdout().into_owned();
    let program = Program::new([interpreter, "-c".to_owned(), source]);
    let ProgramReport {
        end,
        stdout,
        stderr,
    } = session.programs().start(program)?.wait();
    let status = match end {
        ProgramEnd::Exited(0) => "ok",
        ProgramEnd::Exited(_) => "exit",
        ProgramEnd::Signal(_) => "signal",
        ProgramEnd::Timeout => "timeout",
        ProgramEnd::OutputLimit => "output-limit",
        other => return Err(format!("{other:?}").into()),
    };
    let mut outcome = serde_json::to_value(report.outcome())?;
    outcome["status"] = status.into();
    outcome["stdout"] = String::from_utf8_lossy(&stdout).into();
    outcome["stderr"] = String::from_utf8_lossy(&stderr).into();
    println!("{outcome}");
    Ok(())
}

/// Prints an outcome and returns the `VALUE` that the program left for the next one.
fn print_outcome(outcome: &Outcome) -> serde_json::Result<String> {
    println!("{}", serde_json::to_string(outcome)?);
    Ok(value_of(&outcome.stdout()))
}
