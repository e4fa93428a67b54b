//! Implements `sandfork policy`: lists, shows, checks and compares policies.

use std::fmt::Write;

use crate::ErrorKind;
use crate::outcome::exit_code;
use crate::plan::{PreloadPlan, check_syscalls};
use crate::policy::{self, Difference, Override, Policy, PolicyError};
use crate::policy_source::FileSystem;

use super::args::{PolicyChoice, PolicyCommand};
use super::failure::Failure;
use super::plan::{interpreter_refused_here, plan_here, refused_here, try_preloads};
use super::terminal::harmless_line;
use super::{print, print_json};

/// Loads the policy that the arguments choose.
pub fn chosen(choice: &PolicyChoice) -> Result<Policy, PolicyError> {
    let overrides: Vec<Override> = choice
        .overrides
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    Policy::load(&choice.policy, &overrides, &FileSystem)
}

/// Runs a `sandfork policy` command.
pub fn policy(command: PolicyCommand) -> Result<u8, Failure> {
    match command {
        PolicyCommand::List => print(list()),
        PolicyCommand::Show { policy } => print(load(&policy)?.to_toml()),
        PolicyCommand::Check { any_host, policies } => {
            let host = if any_host { Host::Any } else { Host::This };
            check(&policies, host)
        }
        PolicyCommand::Diff { before, after } => diff(&before, &after),
        PolicyCommand::Schema => print_json(&policy::schema()),
    }
}

fn load(name: &str) -> Result<Policy, PolicyError> {
    Policy::load(name, &[], &FileSystem)
}

/// Prints each difference, and which policy allows more. The exit code is that of diff(1).
fn diff(before: &str, after: &str) -> Result<u8, Failure> {
    let differences = load(before)?.differences(&load(after)?);
    let keys = differences.iter().map(|difference| difference.key.len());
    let width = keys.max().unwrap_or(0);
    let mut text = String::new();
    for Difference {
        key,
        change,
        effect,
    } in &differences
    {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{effect:8}  {key:width$}  {}", harmless_line(change));
    }
    print(text)?;
    Ok(if differences.is_empty() {
        exit_code::OK
    } else {
        exit_code::DIFFERENT
    })
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

/// The hosts for which a policy is checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Host {
    /// Any host: reports only mistakes that hold everywhere.
    Any,
    /// This host: also reports what this host would refuse.
    This,
}

/// Checks all policies, so that one call shows all mistakes. The exit code is that of the first mistake.
fn check(policies: &[String], host: Host) -> Result<u8, Failure> {
    let mut code = exit_code::OK;
    for name in policies {
        match accept(name, host) {
            Ok(accepted) => {
                print(accepted)?;
            }
            Err(mistakes) => {
                for mistake in mistakes {
                    let its = mistake.say();
                    if code == exit_code::OK {
                        code = its;
                    }
                }
            }
        }
    }
    Ok(code)
}

/// Returns the message for a policy under which a run could start, or everything that is wrong with it.
fn accept(name: &str, host: Host) -> Result<String, Vec<Failure>> {
    fn failures<E: Into<Failure>>(errors: Vec<E>) -> Vec<Failure> {
        errors.into_iter().map(E::into).collect()
    }
    let refused = |policy: &Policy| match host {
        Host::Any => failures(check_syscalls(policy)),
        Host::This => {
            let mut all = failures(refused_here(policy));
            all.extend(interpreter_refused_here(policy).map(|error| {
                let place = place_of_interpreter(policy, name, error.kind());
                Failure::Located { place, error }
            }));
            all
        }
    };
    let policy = Policy::check(None, name, &[], &FileSystem).map_err(|wrong| {
        let mut all = failures(wrong.errors);
        all.extend(wrong.rest.iter().flat_map(|policy| refused(policy)));
        all
    })?;
    let wrong = refused(&policy);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let preloads = match host {
        Host::Any => Vec::new(),
        Host::This => {
            plan_here(&policy).map_err(|error| failures(vec![error]))?;
            try_preloads(&policy).map_err(|error| {
                let place = format!("{name}: ");
                vec![Failure::Located { place, error }]
            })?
        }
    };
    let name = harmless_line(name);
    let mut text = format!("{name}: ok, sha256 {}\n", policy.sha256());
    for note in preloads.iter().filter_map(PreloadPlan::note) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}: {}", harmless_line(&note));
    }
    Ok(text)
}

/// Returns the location of the setting that chooses the interpreter, as a message prefix. An interpreter that no file
/// names comes from a built-in policy; then the prefix is the name of the checked policy.
fn place_of_interpreter(policy: &Policy, name: &str, kind: ErrorKind) -> String {
    let python = &policy.python;
    let interpreter = ("python.interpreter", &python.interpreter.origin);
    let packages = python.packages.first().map(|it| &it.origin);
    let packages = packages.map(|origin| ("python.packages", origin));
    let (key, origin) = match (&python.environment, kind) {
        (Some(environment), _) => ("python.environment", &environment.origin),
        (None, ErrorKind::Interpreter) => interpreter,
        (None, _) => packages.unwrap_or(interpreter),
    };
    if origin.file.starts_with("built-in ") {
        format!("{name}: ")
    } else {
        format!("{}{key}: ", origin.lead())
    }
}
