//! Adds packages to a running session.

use std::path::Path;
use std::time::Duration;

use super::create::{Creation, Layer, create};
use super::error::EnvironmentError;
use super::explain::plain;
use super::jail::{Builds, literal};
use super::requirements::Wanted;
use crate::error::Error;
use crate::outcome::ExceptionInfo;
use crate::outcome::value::Value;
use crate::policy::Requirement;
use crate::session::{Cell, Session};
use crate::supervisor::Cancel;

/// The program that the session runs.
const ADD: &str = include_str!("guest/add.py");

/// The time limit of that program.
const ADD_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of attempts to resolve the packages. Each attempt adds constraints for further installed
/// packages.
const MAX_ATTEMPTS: usize = 8;

/// The maximum number of packages from a guest's list that are considered.
const MAX_BESIDE: usize = 64;

/// Returns the code of a cell that adds an environment to its session. The cell's value is whether the session can see
/// the environment, or which packages the session already has in another version: the packages must then be resolved
/// again with those versions.
pub fn cell_that_adds(path: &Path) -> String {
    // Runs outside the guest's globals and its import list.
    format!(
        "(lambda scope: exec({}, scope) or scope['added'])({{'path': {}}})",
        literal(&ADD),
        literal(&path)
    )
}

impl Session {
    /// Adds packages, such as `pandas==2.2.*`, to those that the session can import. Packages that the session's
    /// environment lacks are installed first, as by `sandfork env create`. Packages that it has keep their versions.
    /// After [`restart`](Self::restart) the packages must be installed again, which finds them in the store.
    ///
    /// # Errors
    ///
    /// If the policy does not set `environments.add = true`, or if the packages cannot be installed, in which case
    /// nothing is added. Otherwise as [`run`](Self::run).
    pub fn install(&mut self, packages: &[&str]) -> Result<(), Error> {
        let cancel = Cancel::new().map_err(EnvironmentError::io(Path::new("eventfd")))?;
        self.install_cancellable(packages, &cancel)
    }

    /// Like [`install`](Self::install), but another thread can cancel it with this handle. Nothing is added then. An
    /// [`Interrupter`](crate::session::Interrupter) reaches only the final cell, which adds the packages.
    ///
    /// # Errors
    ///
    /// As [`install`](Self::install), and if it was cancelled.
    pub fn install_cancellable(&mut self, packages: &[&str], cancel: &Cancel) -> Result<(), Error> {
        let refused = "no packages can be added to this session: open it with `environments.add = true` in its policy";
        let (interpreter, environment) = self
            .sandbox()
            .package_addition()
            .ok_or_else(|| EnvironmentError::Request(refused.to_owned()))?;
        let environment = environment.clone();
        let packages: Result<Vec<Requirement>, String> =
            packages.iter().map(|package| package.parse()).collect();
        let packages = packages.map_err(EnvironmentError::Request)?;
        let mut creation = Creation {
            name: None,
            wanted: Wanted::packages(&packages),
            packages,
            interpreter: interpreter.display().to_string(),
            index: None,
            allowed: Vec::new(),
            builds: Builds::Refused,
            layer: Layer::Added,
        };
        for _ in 0..MAX_ATTEMPTS {
            let made = create(&creation, &environment, cancel, &mut |_| ());
            let made = made.map_err(EnvironmentError::of_session)?;
            let adds = Cell::new(cell_that_adds(&made.path)).wall(ADD_TIMEOUT);
            let report = self.run(adds.cancel(cancel))?;
            let outcome = report.outcome();
            match outcome.value() {
                Some(Value::Bool(true)) => return Ok(()),
                Some(Value::List(there)) => {
                    let there = there.iter().take(MAX_BESIDE).map(text);
                    let there = creation.wanted.beside(there);
                    there.map_err(EnvironmentError::Request)?;
                }
                _ if cancel.is_used() => return Err(EnvironmentError::Interrupted.into()),
                _ => {
                    let cause = outcome.error().map(message);
                    let cause = cause.unwrap_or_else(|| outcome.status().to_string());
                    return Err(unusable(&cause));
                }
            }
        }
        Err(unusable("its packages change while others are added"))
    }
}

impl Wanted {
    /// Constrains the versions of packages that are already installed, such as `numpy==2.0`.
    ///
    /// # Errors
    /// The reason why one of them is not a package.
    pub fn beside<'a>(&mut self, there: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for package in there {
            let package: Requirement = package.parse()?;
            self.constraints.push(package.to_string());
        }
        Ok(())
    }
}

/// Returns the error for a session whose guest does not add the installed packages.
fn unusable(cause: &str) -> Error {
    EnvironmentError::Request(format!("the session cannot use the packages: {cause}")).into()
}

/// Returns an exception's message, or its name if the message is empty.
fn message(error: &ExceptionInfo) -> String {
    let message = plain(&error.message);
    if message.is_empty() {
        plain(&error.name)
    } else {
        message
    }
}

/// Returns the text of a guest's value; empty if the value is not a text.
fn text(value: &Value) -> &str {
    match value {
        Value::Str(text) => text,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exception_without_a_message_is_named() {
        let error = |message: &str| ExceptionInfo::new("KeyboardInterrupt", message, "");
        assert_eq!(message(&error("")), "KeyboardInterrupt");
        assert_eq!(message(&error("no room")), "no room");
    }
}
