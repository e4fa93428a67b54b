//! Installs what a policy needs before a sandbox is made.

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

/// Makes the environment that a policy's `python.packages` need, if they are to be installed at the first use and are
/// not yet. `cancel` ends it.
///
/// # Errors
/// If it cannot be made.
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
    /// Starts the interpreter, enters its jail and preloads: some tens of milliseconds, and the
    /// time that the preloaded packages take. Packages of the policy that are not installed yet are
    /// installed first, if its `environments.create` says so.
    ///
    /// # Errors
    ///
    /// When the host cannot enforce the policy ([`ErrorKind::Host`](crate::ErrorKind::Host)), or
    /// the interpreter cannot be used ([`ErrorKind::Interpreter`](crate::ErrorKind::Interpreter)).
    /// The message is one sentence with the cause and the remedy. Nothing is left behind.
    pub fn build(self) -> Result<Sandbox, Error> {
        if let Some(policy) = self.given_policy().filter(|policy| installs(policy)) {
            let cancel = Cancel::new().map_err(EnvironmentError::io(Path::new("eventfd")))?;
            provide(policy, &self.caller_environment(), &cancel)?;
        }
        self.build_provided()
    }

    /// Builds a sandbox whose packages were [provided](provide).
    pub(crate) fn build_provided(self) -> Result<Sandbox, Error> {
        let adds = |policy: &Policy| policy.python.added_packages == AddedPackages::Shown;
        if self.given_policy().is_some_and(adds) {
            let store = EnvironmentStore::of(&self.caller_environment())?;
            make_store(&store.added())?;
        }
        self.build_without_installing()
    }
}

/// Whether a policy has packages that are to be installed at the first use.
fn installs(policy: &Policy) -> bool {
    let python = &policy.python;
    python.missing_packages == MissingPackages::Installed && !python.packages.is_empty()
}

/// Whether a policy has packages that are to be installed at the first use, and are not yet.
pub fn is_missing(policy: &Policy, environment: &CallerEnvironment) -> bool {
    installs(policy) && ChosenInterpreter::of(policy, environment).is_err()
}
