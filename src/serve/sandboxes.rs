//! Keeps a supervisor's sandboxes: one per policy, shared by all of its sessions.

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

/// The maximum number of unused sandboxes that are kept warm.
const MAX_UNUSED: usize = 8;

/// Sandboxes by the key of their inputs.
pub struct Sandboxes {
    /// The environment of this process, which does not change.
    environment: CallerEnvironment,
    policies: Policies,
    slots: Mutex<HashMap<SandboxKey, Slot>>,
    /// The programs of the sandboxes' sessions.
    pub programs: SessionPrograms,
    /// Cancels running installations of packages.
    cancel: Cancel,
}

struct Slot {
    shared: Arc<SharedSandbox>,
    used: Instant,
}

/// A sandbox that its first caller builds.
#[derive(Default)]
struct SharedSandbox {
    /// Held while the sandbox is built, so that it is built once, and other sandboxes can be built meanwhile.
    building: Mutex<()>,
    made: OnceLock<Arc<Sandbox>>,
}

impl Sandboxes {
    /// Starts without sandboxes. `cancel` cancels the package installations for them.
    pub fn new(cancel: Cancel) -> Self {
        Self {
            environment: CallerEnvironment::current(),
            policies: Policies::default(),
            slots: Mutex::default(),
            programs: SessionPrograms::default(),
            cancel,
        }
    }

    /// Returns the sandbox for these terms, building it if necessary, and its policy.
    pub fn get(&self, wanted: &SandboxChoice) -> Result<(Arc<Sandbox>, Arc<Policy>), Refusal> {
        let policy = self.policies.get(wanted)?;
        check_caller(&policy, &wanted.import_paths)?;
        let environment = self.environment_of(wanted);
        provide(&policy, &environment, &self.cancel).map_err(Error::from)?;
        let shared = self.shared(SandboxKey::of(&policy, Lifetime::ManyRuns, &environment)?);
        let _building = lock(&shared.building);
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

    /// Discards a snapshot of whichever sandbox has it.
    pub fn discard_snapshot(&self, number: u64) {
        for sandbox in self.made() {
            sandbox.snapshots().discard(number);
        }
    }

    /// Saves a snapshot of whichever sandbox has it as a file. Returns the file's length.
    pub fn save_snapshot(&self, number: u64, path: &Path) -> Result<u64, Refusal> {
        require_absolute(path)?;
        let mut made = self.made().into_iter();
        let found = made.find_map(|sandbox| Some((sandbox.snapshots().get(number)?, sandbox)));
        let (image, sandbox) = found.ok_or(Refusal::NoSnapshot(number))?;
        sandbox.save(&image, path)
    }

    /// Returns the finished sandboxes. Unfinished sandboxes have no snapshots.
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
        let removed = remove_surplus(&mut slots);
        // Dropping a sandbox waits for its zygote, so release the lock first.
        drop(slots);
        drop(removed);
        wanted
    }
}

/// Rejects a policy that lets guests replace modules that the caller imports. Checked per session, because callers with
/// different modules share one sandbox.
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

/// Requires an absolute path: the caller's current directory is not this process's.
pub fn require_absolute(path: &Path) -> Result<(), Refusal> {
    if path.is_absolute() {
        return Ok(());
    }
    let how = format!("`{}` is not an absolute path", path.display());
    Err(Refusal::Protocol(how))
}

/// Removes the least recently used of the surplus unused sandboxes, and returns them.
fn remove_surplus(slots: &mut HashMap<SandboxKey, Slot>) -> Vec<Slot> {
    let mut unused: Vec<(Instant, SandboxKey)> = slots
        .iter()
        .filter(|(_, slot)| slot.is_unused())
        .map(|(key, slot)| (slot.used, *key))
        .collect();
    unused.sort_by_key(|(used, _)| *used);
    let surplus = unused.len().saturating_sub(MAX_UNUSED);
    let surplus = unused.into_iter().take(surplus);
    surplus.filter_map(|(_, key)| slots.remove(&key)).collect()
}

impl Slot {
    fn is_unused(&self) -> bool {
        let is_unused = |sandbox: &Arc<Sandbox>| {
            Arc::strong_count(sandbox) == 1 && sandbox.snapshots().is_empty()
        };
        // The caller that builds the sandbox holds a reference too.
        Arc::strong_count(&self.shared) == 1 && self.shared.made.get().is_none_or(is_unused)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::policy::BuiltInsOnly;

    #[test]
    fn building_a_sandbox_does_not_block_other_callers() {
        let sandboxes = Sandboxes::new(Cancel::new().unwrap());
        let environment = CallerEnvironment::current();
        let policy = Policy::default();
        let key = SandboxKey::of(&policy, Lifetime::ManyRuns, &environment).unwrap();
        let shared = sandboxes.shared(key);
        let _building = shared.building.lock().unwrap();
        assert!(sandboxes.made().is_empty());
        assert!(Arc::ptr_eq(&shared, &sandboxes.shared(key)));
    }

    #[test]
    fn caller_imports_are_checked_for_each_session() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("there", real.join("link")).unwrap();
        std::fs::create_dir(real.join("there")).unwrap();
        let set = format!("filesystem.write={}", real.join("there").display());
        let policy = Policy::load("standard", &[set.parse().unwrap()], &BuiltInsOnly).unwrap();
        let check = |path: PathBuf| check_caller(&policy, &[path]).map_err(|it| it.to_string());
        assert_eq!(check(real.clone()), Ok(()));
        for path in ["there", "link", "link/not/yet"] {
            let refused = check(real.join(path)).unwrap_err();
            assert!(
                refused.contains("from which the caller imports"),
                "{refused}"
            );
        }
        let refused = check("there".into()).unwrap_err();
        assert_eq!(refused, "`there` is not an absolute path");
    }
}
