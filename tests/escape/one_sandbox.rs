//! The product through its library: all runs in one sandbox, so from one warm interpreter, as the
//! tenants of a server follow each other. This test binary is its own program for it, because the
//! launching user may be another than the harness.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use sandfork::policy::Override;
use sandfork::policy_source::FileSystem;
use sandfork::{Policy, Request, Sandbox};

use crate::world::value_of;

/// The first argument that makes this binary such a program; `sandfork run`'s own follow.
pub const IN_ONE_SANDBOX: &str = "--in-one-sandbox";
/// Stands in a program for what the one before it printed after `VALUE `.
pub const PREVIOUS: &str = "@PREV@";

/// Runs the programs one after another and prints a line of JSON for each.
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
    let sandbox = Sandbox::builder().policy(policy).build()?;
    let mut previous = String::new();
    for program in programs {
        let source = fs::read_to_string(Path::new(&program))?.replace(PREVIOUS, &previous);
        let outcome = sandbox.run(Request::python(source))?;
        println!("{}", serde_json::to_string(&outcome)?);
        previous = value_of(&outcome.stdout());
    }
    Ok(())
}
