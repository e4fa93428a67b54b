//! The sandboxes of a supervisor: one for each policy, shared by all sessions under it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::policies::Policies;
use crate::error::Error;
use crate::protocol::caller::Open;
use crate::{CallerEnvironment, Sandbox, SandboxKey};

/// The most sandboxes that are kept warm while no session is under them.
const MOST_UNUSED: usize = 8;

/// Sandboxes by what they were made of.
#[derive(Default)]
pub struct Sandboxes {
    policies: Policies,
    slots: Mutex<HashMap<SandboxKey, Slot>>,
}

struct Slot {
    /// Locked while it is made, so that it is made once and others are made meanwhile.
    sandbox: Arc<Mutex<Option<Arc<Sandbox>>>>,
    used: Instant,
}

impl Sandboxes {
    /// The sandbox for these terms, which is made if there is none.
    pub fn get(&self, open: &Open) -> Result<Arc<Sandbox>, Error> {
        let differences = open.environ.iter();
        let environment = CallerEnvironment::current()
            .changed_by(differences.map(|(name, value)| (name, value.as_ref())));
        let builder = Sandbox::builder()
            .policy(self.policies.get(open)?)
            .environment(environment);
        let slot = self.slot(builder.key()?);
        let mut made = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sandbox) = &*made {
            return Ok(Arc::clone(sandbox));
        }
        let sandbox = Arc::new(builder.build()?);
        *made = Some(Arc::clone(&sandbox));
        Ok(sandbox)
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

/// Drops the sandboxes that were used least lately, of those that nobody uses.
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
            .is_none_or(|sandbox| Arc::strong_count(sandbox) == 1)
    }
}
