//! The sandboxes of a supervisor: one for each policy, shared by all of its sessions.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::policies::Policies;
use super::program::SessionPrograms;
use crate::environments::provide;
use crate::error::Error;
use crate::host::CallerEnvironment;
use crate::policy::Policy;
use crate::protocol::caller::{Open, OpenBatch, PolicyChoice};
use crate::sandbox::{Sandbox, SandboxKey};
use crate::supervisor::Refusal;
use sandfork_jail::control::Lifetime;

/// The most unused sandboxes that are kept warm.
const MOST_UNUSED: usize = 8;

/// Sandboxes by the key of what they are made from.
pub struct Sandboxes {
    /// The environment of this process, which does not change.
    environment: CallerEnvironment,
    policies: Policies,
    slots: Mutex<HashMap<SandboxKey, Slot>>,
    programs: SessionPrograms,
}

struct Slot {
    /// Locked while the sandbox is made, so that it is made once and others can be made meanwhile.
    sandbox: Arc<Mutex<Option<Arc<Sandbox>>>>,
    used: Instant,
}

/// What a caller specifies about its sandbox.
pub struct Wanted<'a> {
    /// The policy, by name or as text.
    pub policy: &'a PolicyChoice,
    /// Overrides of the policy's keys.
    pub set: &'a [String],
    environ: &'a BTreeMap<String, Option<String>>,
}

impl<'a> From<&'a Open> for Wanted<'a> {
    fn from(open: &'a Open) -> Self {
        Self {
            policy: &open.policy,
            set: &open.set,
            environ: &open.environ,
        }
    }
}

impl<'a> From<&'a OpenBatch> for Wanted<'a> {
    fn from(open: &'a OpenBatch) -> Self {
        Self {
            policy: &open.policy,
            set: &open.set,
            environ: &open.environ,
        }
    }
}

impl Sandboxes {
    /// Starts without sandboxes.
    pub fn new() -> Self {
        Self {
            environment: CallerEnvironment::current(),
            policies: Policies::default(),
            slots: Mutex::default(),
            programs: SessionPrograms::default(),
        }
    }

    /// The programs of their sessions.
    pub fn programs(&self) -> &SessionPrograms {
        &self.programs
    }

    /// Returns the sandbox for these terms, made if there is none, and its policy.
    pub fn get(&self, wanted: &Wanted) -> Result<(Arc<Sandbox>, Arc<Policy>), Error> {
        let policy = self.policies.get(wanted)?;
        let environment = self.environment_of(wanted);
        provide(&policy, &environment)?;
        let slot = self.slot(SandboxKey::of(&policy, Lifetime::ManyRuns, &environment)?);
        let mut made = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sandbox) = &*made {
            return Ok((Arc::clone(sandbox), policy));
        }
        let builder = Sandbox::builder()
            .policy(Policy::clone(&policy))
            .environment(environment.into_owned());
        let sandbox = Arc::new(builder.build()?);
        *made = Some(Arc::clone(&sandbox));
        Ok((sandbox, policy))
    }

    /// Discards a snapshot, of any policy.
    pub fn discard_snapshot(&self, number: u64) {
        for sandbox in self.made() {
            sandbox.discard_snapshot(number);
        }
    }

    /// Saves a snapshot, of any policy, as a file. Returns the file's length.
    pub fn save_snapshot(&self, number: u64, path: &Path) -> Result<u64, Refusal> {
        require_absolute(path)?;
        let mut made = self.made().into_iter();
        let found = made.find_map(|sandbox| Some((sandbox.snapshot(number)?, sandbox)));
        let (image, sandbox) = found.ok_or(Refusal::NoSnapshot(number))?;
        sandbox.save(&image, path)
    }

    /// The sandboxes that there are.
    fn made(&self) -> Vec<Arc<Sandbox>> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slots: Vec<_> = slots
            .values()
            .map(|slot| Arc::clone(&slot.sandbox))
            .collect();
        let made = slots
            .iter()
            .filter_map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).clone());
        made.collect()
    }

    fn environment_of(&self, wanted: &Wanted) -> Cow<'_, CallerEnvironment> {
        if wanted.environ.is_empty() {
            return Cow::Borrowed(&self.environment);
        }
        let differences = wanted.environ.iter();
        let differences = differences.map(|(name, value)| (name, value.as_ref()));
        Cow::Owned(self.environment.clone().changed_by(differences))
    }

    fn slot(&self, key: SandboxKey) -> Arc<Mutex<Option<Arc<Sandbox>>>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(key).or_insert_with(|| Slot {
            sandbox: Arc::default(),
            used: Instant::now(),
        });
        slot.used = Instant::now();
        let wanted = Arc::clone(&slot.sandbox);
        forget_unused(&mut slots);
        wanted
    }
}

/// A caller's directory is not this process's.
pub fn require_absolute(path: &Path) -> Result<(), Refusal> {
    if path.is_absolute() {
        return Ok(());
    }
    let how = format!("`{}` is no absolute path", path.display());
    Err(Refusal::Protocol(how))
}

/// Drops the least recently used of the unused sandboxes.
fn forget_unused(slots: &mut HashMap<SandboxKey, Slot>) {
    let mut unused: Vec<(Instant, SandboxKey)> = slots
        .iter()
        .filter(|(_, slot)| Arc::strong_count(&slot.sandbox) == 1 && slot.is_unused())
        .map(|(key, slot)| (slot.used, *key))
        .collect();
    unused.sort_by_key(|(used, _)| *used);
    let surplus = unused.len().saturating_sub(MOST_UNUSED);
    for (_, key) in unused.into_iter().take(surplus) {
        slots.remove(&key);
    }
}

impl Slot {
    fn is_unused(&self) -> bool {
        let made = self.sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        made.as_ref()
            .is_none_or(|sandbox| Arc::strong_count(sandbox) == 1 && !sandbox.has_snapshots())
    }
}
