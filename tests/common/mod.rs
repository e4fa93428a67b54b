//! Helpers for tests that run guests: whether this host can, and where cargo puts the examples.

use std::path::PathBuf;

use libtest_mimic::{Completion, Failed, Trial};
use nix::unistd::geteuid;
use sandfork::internals::host;
use sandfork::internals::plan::{needs, plan};
use sandfork::internals::policy::PolicySettings as _;
use sandfork::{FileSystem, Level, Override, Policy};

/// Makes a test that needs sandboxes of this level. Only the host probe can have it skipped. In CI, it is
/// skipped only if the user who runs it cannot change what the host lacks.
pub fn trial(
    name: impl Into<String>,
    level: Level,
    test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    trial_unless(name, level, || None, test)
}

/// Makes a test that also needs something else; `obstacle` says why it is missing.
pub fn trial_unless(
    name: impl Into<String>,
    level: Level,
    other: impl FnOnce() -> Option<String> + Send + 'static,
    test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match obstacle(level).or_else(other) {
        None => test().map(|()| Completion::Completed),
        Some(reason) if geteuid().is_root() && skips_are_forbidden() => {
            Err(format!("may not be skipped here: {reason}").into())
        }
        Some(reason) => Ok(Completion::ignored_with(reason)),
    })
}

/// Returns why this host cannot run guests at a level, if so.
fn obstacle(level: Level) -> Option<String> {
    let require: Override = format!("assurance.require={level}").parse().unwrap();
    let policy = Policy::load("standard", &[require], &FileSystem).unwrap();
    match host::probe(&policy.python().interpreter.value, &needs(&policy)) {
        Ok(host) => plan(&policy, &host).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns whether the environment forbids skips that a set-up could avoid, as in CI.
pub fn skips_are_forbidden() -> bool {
    std::env::var_os("SANDFORK_FORBID_SKIPS").is_some_and(|value| !value.is_empty())
}

/// Returns the directory in which cargo puts the examples, next to that of the test programs.
pub fn examples() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples")
}
