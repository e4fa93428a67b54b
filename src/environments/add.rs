//! Adds packages to a running session.

use std::path::Path;
use std::time::Duration;

use super::create::{Creation, Layer, create};
use super::error::EnvironmentError;
use super::explain::plain;
use super::jail::{Builds, literal};
use super::requirements::Wanted;
use crate::error::Error;
use crate::policy::Requirement;
use crate::session::{Cell, Session};
use crate::supervisor::Cancel;

/// The program that a session runs.
const ADD: &str = include_str!("guest/add.py");

/// The longest that it may take.
const LONGEST: Duration = Duration::from_secs(30);

/// The cell that adds an environment to those of its session. Its value is whether the session can see it.
pub fn cell_that_adds(path: &Path) -> String {
    // Not in the guest's globals, and not by its list of imports.
    format!(
        "(lambda scope: exec({}, scope) or scope['is_shown'])({{'path': {}}})",
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
        let (interpreter, environment) = self
            .sandbox()
            .to_add_packages()
            .ok_or(EnvironmentError::NotAdded)?;
        let packages: Result<Vec<Requirement>, String> =
            packages.iter().map(|package| package.parse()).collect();
        let packages = packages.map_err(EnvironmentError::NotAPackage)?;
        let creation = Creation {
            name: None,
            wanted: Wanted::packages(&packages),
            packages,
            interpreter: interpreter.display().to_string(),
            index: None,
            allowed: Vec::new(),
            builds: Builds::Refused,
            layer: Layer::Added,
        };
        let cancel = Cancel::new().map_err(EnvironmentError::io(Path::new("eventfd")))?;
        let made = create(&creation, environment, &cancel, &mut |_| ())?;
        let report = self.run(Cell::new(cell_that_adds(&made.path)).wall(LONGEST))?;
        let outcome = report.outcome();
        if outcome.value() == Some(&true.into()) {
            return Ok(());
        }
        let error = outcome.error().map(|error| plain(&error.message));
        let cause = error.unwrap_or_else(|| outcome.status().to_string());
        Err(EnvironmentError::Unusable(cause).into())
    }
}
