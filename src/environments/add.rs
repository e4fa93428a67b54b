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

/// The program that a session runs.
const ADD: &str = include_str!("guest/add.py");

/// The longest that it may take.
const LONGEST: Duration = Duration::from_secs(30);

/// The most times that packages are resolved. Each time has another package beside which they are to be.
const MOST_TIMES: usize = 8;

/// The most packages of a guest's list that are looked at.
const MOST_BESIDE: usize = 64;

/// The cell that adds an environment to those of its session. Its value is whether the session can see it, or which
/// packages of the session it has in another version: then they have to be resolved beside those.
pub fn cell_that_adds(path: &Path) -> String {
    // Not in the guest's globals, and not by its list of imports.
    format!(
        "(lambda scope: exec({}, scope) or scope['added'])({{'path': {}}})",
        literal(&ADD),
        literal(&path)
    )
}

impl Session {
    /// Adds packages, such as `pandas==2.2.*`, to those that the session can import. What its environment lacks for them
    /// is installed first, as `sandfork env create` does. Packages that it has keep their version. After
    /// [`restart`](Self::restart) the packages are there once they are installed again, which finds them.
    ///
    /// # Errors
    ///
    /// When the policy has no `environments.add = true`, or the packages cannot be installed: then nothing is added. And
    /// as [`run`](Self::run).
    pub fn install(&mut self, packages: &[&str]) -> Result<(), Error> {
        let cancel = Cancel::new().map_err(EnvironmentError::io(Path::new("eventfd")))?;
        self.install_cancellable(packages, &cancel)
    }

    /// The same, which another thread can end by this handle. Nothing is added then. An
    /// [`Interrupter`](crate::session::Interrupter) reaches only the cell that adds the packages at the end.
    ///
    /// # Errors
    ///
    /// As [`install`](Self::install), and when it was ended.
    pub fn install_cancellable(&mut self, packages: &[&str], cancel: &Cancel) -> Result<(), Error> {
        let refused = "no packages can be added to this session: open it with `environments.add = true` in its policy";
        let (interpreter, environment) = self
            .sandbox()
            .to_add_packages()
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
        for _ in 0..MOST_TIMES {
            let made = create(&creation, &environment, cancel, &mut |_| ());
            let made = made.map_err(EnvironmentError::of_session)?;
            let adds = Cell::new(cell_that_adds(&made.path)).wall(LONGEST);
            let report = self.run(adds.cancel(cancel))?;
            let outcome = report.outcome();
            match outcome.value() {
                Some(Value::Bool(true)) => return Ok(()),
                Some(Value::List(there)) => {
                    let there = there.iter().take(MOST_BESIDE).map(text);
                    let there = creation.wanted.beside(there);
                    there.map_err(EnvironmentError::Request)?;
                }
                _ if cancel.is_used() => return Err(EnvironmentError::Interrupted.into()),
                _ => {
                    let cause = outcome.error().map(words);
                    let cause = cause.unwrap_or_else(|| outcome.status().to_string());
                    return Err(unusable(&cause));
                }
            }
        }
        Err(unusable("its packages change while others are added"))
    }
}

impl Wanted {
    /// Keeps the versions of packages that are there, such as `numpy==2.0`.
    ///
    /// # Errors
    /// Why one is no package.
    pub fn beside<'a>(&mut self, there: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for package in there {
            let package: Requirement = package.parse()?;
            self.constraints.push(package.to_string());
        }
        Ok(())
    }
}

/// A session's guest does not add what was installed.
fn unusable(cause: &str) -> Error {
    EnvironmentError::Request(format!("the session cannot use the packages: {cause}")).into()
}

/// What an exception says, or its name if it says nothing.
fn words(error: &ExceptionInfo) -> String {
    let message = plain(&error.message);
    if message.is_empty() {
        plain(&error.name)
    } else {
        message
    }
}

/// The text of a value of the guest, which is empty for another one.
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
    fn an_exception_without_a_message_is_named() {
        let error = |message: &str| ExceptionInfo::new("KeyboardInterrupt", message, "");
        assert_eq!(words(&error("")), "KeyboardInterrupt");
        assert_eq!(words(&error("no room")), "no room");
    }
}
