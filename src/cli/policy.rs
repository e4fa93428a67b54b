//! `sandfork policy`: what policies there are and what they say.

use std::fmt::Write;

use sandfork::exit_code;
use sandfork::policy::{self, Override, Policy, PolicyError};
use sandfork::policy_source::FileSystem;

use super::args::{PolicyChoice, PolicyCommand};
use super::failure::Failure;
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

/// Does what `sandfork policy` is asked for.
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
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:width$}  {}", policy.name(), policy.description());
    }
    text
}

/// Checks every one, so that all mistakes are seen in one go.
fn check(policies: &[String]) -> Result<u8, Failure> {
    let mut code = exit_code::OK;
    for name in policies {
        match load(name) {
            Ok(policy) => print(format!("{name}: ok, sha256 {}\n", policy.sha256()))?,
            Err(error) => {
                code = exit_code::USAGE;
                Failure::from(error).say()
            }
        };
    }
    Ok(code)
}
