//! `sandfork policy`: lists, shows and checks policies.

use std::fmt::Write;

use crate::ErrorKind;
use crate::outcome::exit_code;
use crate::plan::PreloadPlan;
use crate::policy::{self, Override, Policy, PolicyError};
use crate::policy_source::FileSystem;

use super::args::{PolicyChoice, PolicyCommand};
use super::failure::{Failure, say};
use super::plan::try_preloads;
use super::terminal::harmless_line;
use super::{print, print_json};

/// The policy that the arguments choose.
pub fn chosen(choice: &PolicyChoice) -> Result<Policy, PolicyError> {
    let overrides: Vec<Override> = choice
        .overrides
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    Policy::load(&choice.policy, &overrides, &FileSystem)
}

/// Executes a `sandfork policy` command.
pub fn policy(command: PolicyCommand) -> Result<u8, Failure> {
    match command {
        PolicyCommand::List => print(list()),
        PolicyCommand::Show { policy } => print(load(&policy)?.to_toml()),
        PolicyCommand::Check { policies } => check(&policies),
        PolicyCommand::Schema => print_json(&policy::schema()),
    }
}

fn load(name: &str) -> Result<Policy, PolicyError> {
    Policy::load(name, &[], &FileSystem)
}

fn list() -> String {
    let width = policy::builtin_names().map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for policy in policy::builtin_names().filter_map(Policy::builtin) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:width$}  {}", policy.name(), policy.description());
    }
    text
}

/// Checks every policy, so that one call shows all mistakes.
fn check(policies: &[String]) -> Result<u8, Failure> {
    let mut code = exit_code::OK;
    for name in policies {
        match load(name) {
            Ok(policy) => code = code.max(check_here(&harmless_line(name), &policy)?),
            Err(error) => code = code.max(Failure::from(error).say()),
        }
    }
    Ok(code)
}

/// Reports on a valid policy, whose preloads it tries. A host that cannot keep the policy does not
/// make it wrong: it may be meant for another.
fn check_here(name: &str, policy: &Policy) -> Result<u8, Failure> {
    let notes = match try_preloads(policy) {
        Ok(modules) => modules.iter().filter_map(PreloadPlan::note).collect(),
        Err(error) if error.kind() == ErrorKind::Host => {
            vec![format!("its preloads could not be tried here: {error}")]
        }
        Err(error) => {
            say(&format!("{name}: {error}"));
            return Ok(error.exit_code());
        }
    };
    let mut text = format!("{name}: ok, sha256 {}\n", policy.sha256());
    for note in notes {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}: {}", harmless_line(&note));
    }
    print(text)
}
