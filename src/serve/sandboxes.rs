//! The sandboxes of a supervisor: one for each policy, shared by all of its sessions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use super::policies::Policies;
use super::program::SessionPrograms;
use crate::environments::provide;
use crate::error::Error;
use crate::host::{CallerEnvironment, Links, module_at};
use crate::plan::check_imports;
use crate::policy::Policy;
use crate::protocol::caller::SandboxChoice;
use crate::sandbox::{Sandbox, SandboxKey};
use crate::supervisor::{Cancel, Refusal};
use crate::waiters::lock;
use sandfork_jail::control::Lifetime;

/// The most unused sandboxes that are kept warm.
const MOST_UNUSED: usize = 8;

/// Sandboxes by the key of what they are made from.
pub struct Sandboxes {
    /// The environment of this process, which does not change.
    environment: CallerEnvironment,
    policies: Policies,
    slots: Mutex<HashMap<SandboxKey, Slot>>,
    /// The programs of their sessions.
    pub programs: SessionPrograms,
    /// Ends what is being installed.
    cancel: Cancel,
}

struct Slot {
    shared: Arc<SharedSandbox>,
    used: Instant,
}

/// A sandbox that its first caller makes.
#[derive(Default)]
struct SharedSandbox {
    /// Held while the sandbox is made, so that it is made once and others can be made meanwhile.
    turn: Mutex<()>,
    made: OnceLock<Arc<Sandbox>>,
}

impl Sandboxes {
    /// Starts without sandboxes. `cancel` ends what is being installed for them.
    pub fn new(cancel: Cancel) -> Self {
        Self {
            environment: CallerEnvironment::current(),
            policies: Policies::default(),
            slots: Mutex::default(),
            programs: SessionPrograms::default(),
            cancel,
        }
    }

    /// Returns the sandbox for these terms, made if there is none, and its policy.
    pub fn get(&self, wanted: &SandboxChoice) -> Result<(Arc<Sandbox>, Arc<Policy>), Refusal> {
        let policy = self.policies.get(wanted)?;
        check_caller(&policy, &wanted.import_paths)?;
        let environment = self.environment_of(wanted);
        provide(&policy, &environment, &self.cancel).map_err(Error::from)?;
        let shared = self.shared(SandboxKey::of(&policy, Lifetime::ManyRuns, &environment)?);
        let _turn = lock(&shared.turn);
        if let Some(sandbox) = shared.made.get() {
            return Ok((Arc::clone(sandbox), policy));
        }
        let builder = Sandbox::builder()
            .policy(Policy::clone(&policy))
            .environment(environment.into_owned());
        let sandbox = Arc::new(builder.build_provided()?);
        let sandbox = shared.made.get_or_init(|| sandbox);
        Ok((Arc::clone(sandbox), policy))
    }

    /// Discards a snapshot, of any policy.
    pub fn discard_snapshot(&self, number: u64) {
        for sandbox in self.made() {
            sandbox.snapshots().discard(number);
        }
    }

    /// Saves a snapshot, of any policy, as a file. Returns the file's length.
    pub fn save_snapshot(&self, number: u64, path: &Path) -> Result<u64, Refusal> {
        require_absolute(path)?;
        let mut made = self.made().into_iter();
        let found = made.find_map(|sandbox| Some((sandbox.snapshots().get(number)?, sandbox)));
        let (image, sandbox) = found.ok_or(Refusal::NoSnapshot(number))?;
        sandbox.save(&image, path)
    }

    /// The sandboxes that there are. Those that are being made have no snapshots yet.
    fn made(&self) -> Vec<Arc<Sandbox>> {
        let slots = lock(&self.slots);
        let made = slots.values().filter_map(|slot| slot.shared.made.get());
        made.cloned().collect()
    }

    fn environment_of(&self, wanted: &SandboxChoice) -> Cow<'_, CallerEnvironment> {
        if wanted.environ.is_empty() {
            return Cow::Borrowed(&self.environment);
        }
        let differences = wanted.environ.iter();
        let differences = differences.map(|(name, value)| (name, value.as_ref()));
        Cow::Owned(self.environment.clone().changed_by(differences))
    }

    fn shared(&self, key: SandboxKey) -> Arc<SharedSandbox> {
        let mut slots = lock(&self.slots);
        let slot = slots.entry(key).or_insert_with(|| Slot {
            shared: Arc::default(),
            used: Instant::now(),
        });
        slot.used = Instant::now();
        let wanted = Arc::clone(&slot.shared);
        let forgotten = forget_unused(&mut slots);
        // Each waits until its zygote has ended, which other callers need not.
        drop(slots);
        drop(forgotten);
        wanted
    }
}

/// Refuses a policy that lets guests exchange what its caller imports. The sandbox is no part of it: callers with other
/// modules share it.
fn check_caller(policy: &Policy, import_paths: &[PathBuf]) -> Result<(), Refusal> {
    for path in import_paths {
        require_absolute(path)?;
    }
    let mut links = Links::default();
    Ok(check_imports(
        policy,
        import_paths,
        |path| links.route(path),
        module_at,
    )?)
}

/// A caller's directory is not this process's.
pub fn require_absolute(path: &Path) -> Result<(), Refusal> {
    if path.is_absolute() {
        return Ok(());
    }
    let how = format!("`{}` is no absolute path", path.display());
    Err(Refusal::Protocol(how))
}

/// Removes the least recently used of the unused sandboxes, and returns them.
fn forget_unused(slots: &mut HashMap<SandboxKey, Slot>) -> Vec<Slot> {
    let mut unused: Vec<(Instant, SandboxKey)> = slots
        .iter()
        .filter(|(_, slot)| slot.is_unused())
        .map(|(key, slot)| (slot.used, *key))
        .collect();
    unused.sort_by_key(|(used, _)| *used);
    let surplus = unused.len().saturating_sub(MOST_UNUSED);
    let surplus = unused.into_iter().take(surplus);
    surplus.filter_map(|(_, key)| slots.remove(&key)).collect()
}

impl Slot {
    fn is_unused(&self) -> bool {
        let is_unused = |sandbox: &Arc<Sandbox>| {
            Arc::strong_count(sandbox) == 1 && sandbox.snapshots().is_empty()
        };
        // A caller that makes it has it too.
        Arc::strong_count(&self.shared) == 1 && self.shared.made.get().is_none_or(is_unused)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::policy::BuiltInsOnly;

    #[test]
    fn a_sandbox_that_is_being_made_holds_up_no_caller_of_another() {
        let sandboxes = Sandboxes::new(Cancel::new().unwrap());
        let environment = CallerEnvironment::current();
        let policy = Policy::default();
        let key = SandboxKey::of(&policy, Lifetime::ManyRuns, &environment).unwrap();
        let shared = sandboxes.shared(key);
        let _turn = shared.turn.lock().unwrap();
        assert!(sandboxes.made().is_empty());
        assert!(Arc::ptr_eq(&shared, &sandboxes.shared(key)));
    }

    #[test]
    fn what_a_caller_imports_is_looked_at_for_each_session() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("there", real.join("link")).unwrap();
        std::fs::create_dir(real.join("there")).unwrap();
        let set = format!("filesystem.write={}", real.join("there").display());
        let policy = Policy::load("standard", &[set.parse().unwrap()], &BuiltInsOnly).unwrap();
        let said = |path: PathBuf| check_caller(&policy, &[path]).map_err(|it| it.to_string());
        assert_eq!(said(real.clone()), Ok(()));
        for path in ["there", "link", "link/not/yet"] {
            let refused = said(real.join(path)).unwrap_err();
            assert!(
                refused.contains("from which the caller imports"),
                "{refused}"
            );
        }
        let refused = said("there".into()).unwrap_err();
        assert_eq!(refused, "`there` is no absolute path");
    }
}
