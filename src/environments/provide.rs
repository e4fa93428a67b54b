//! Installs the packages of a policy before a sandbox is built.

use std::path::Path;

use super::create::{Creation, Layer, create, make_store};
use super::error::EnvironmentError;
use super::jail::Builds;
use super::requirements::Wanted;
use crate::error::Error;
use crate::host::{CallerEnvironment, EnvironmentStore};
use crate::policy::{AddedPackages, MissingPackages, Policy, Requirement};
use crate::sandbox::{ChosenInterpreter, Sandbox, SandboxBuilder};
use crate::supervisor::Cancel;

/// Creates the environment for a policy's `python.packages`, if it is missing and the policy allows creating it at
/// first use. `cancel` cancels it.
///
/// # Errors
/// If the environment cannot be created.
pub fn provide(
    policy: &Policy,
    environment: &CallerEnvironment,
    cancel: &Cancel,
) -> Result<(), EnvironmentError> {
    if !is_missing(policy, environment) {
        return Ok(());
    }
    let python = &policy.python;
    let packages: Vec<Requirement> = python.packages.iter().map(|it| it.value.clone()).collect();
    let creation = Creation {
        name: None,
        wanted: Wanted::packages(&packages),
        packages,
        interpreter: python.interpreter.value.clone(),
        index: None,
        allowed: Vec::new(),
        builds: Builds::Refused,
        layer: Layer::Whole,
    };
    create(&creation, environment, cancel, &mut |_| ()).map(drop)
}

impl SandboxBuilder {
    /// Starts the interpreter, has it enter its jail and preload: some tens of milliseconds, plus the time that
    /// preloading takes. Installs missing packages of the policy first, if it sets `environments.create`.
    ///
    /// # Errors
    ///
    /// If the host cannot enforce the policy ([`ErrorKind::Host`](crate::ErrorKind::Host)), or if the interpreter
    /// cannot be used ([`ErrorKind::Interpreter`](crate::ErrorKind::Interpreter)). The message is one sentence with the
    /// cause and the remedy. Nothing is left behind.
    pub fn build(self) -> Result<Sandbox, Error> {
        if let Some(policy) = self.given_policy().filter(|policy| installs(policy)) {
            let cancel = Cancel::new().map_err(EnvironmentError::io(Path::new("eventfd")))?;
            provide(policy, &self.caller_environment(), &cancel)?;
        }
        self.build_provided()
    }

    /// Builds a sandbox whose packages have been [provided](provide).
    pub(crate) fn build_provided(self) -> Result<Sandbox, Error> {
        let adds = |policy: &Policy| policy.python.added_packages == AddedPackages::Shown;
        if self.given_policy().is_some_and(adds) {
            let store = EnvironmentStore::of(&self.caller_environment())?;
            make_store(&store.added())?;
        }
        self.build_without_installing()
    }
}

/// Returns whether a policy has packages that are installed at first use.
fn installs(policy: &Policy) -> bool {
    let python = &policy.python;
    python.missing_packages == MissingPackages::Installed && !python.packages.is_empty()
}

/// Returns whether a policy has packages that are installed at first use and are still missing.
pub fn is_missing(policy: &Policy, environment: &CallerEnvironment) -> bool {
    installs(policy) && ChosenInterpreter::of(policy, environment).is_err()
}
