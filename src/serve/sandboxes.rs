//! The sandboxes of a supervisor: one for each policy, shared by all sessions under it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::error::Error;
use crate::policy::{Override, Policy, PolicySource};
use crate::policy_source::FileSystem;
use crate::protocol::caller::{Open, OpenBatch, PolicyChoice};
use crate::{CallerEnvironment, Sandbox, SandboxKey};

/// The most sandboxes that are kept warm while no session is under them.
const MOST_UNUSED: usize = 8;

/// Sandboxes by what they were made of.
#[derive(Default)]
pub struct Sandboxes(Mutex<HashMap<SandboxKey, Slot>>);

struct Slot {
    /// Locked while it is made, so that it is made once and others are made meanwhile.
    sandbox: Arc<Mutex<Option<Arc<Sandbox>>>>,
    used: Instant,
}

/// What a caller says of the sandbox that it wants.
pub struct Wanted<'a> {
    policy: &'a PolicyChoice,
    set: &'a [String],
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

impl Wanted<'_> {
    /// The policy that it chooses.
    pub fn policy(&self) -> Result<Policy, Error> {
        let overrides: Result<Vec<Override>, _> = self.set.iter().map(|set| set.parse()).collect();
        let overrides = overrides?;
        let policy = match self.policy {
            PolicyChoice::Name { name, directory } => {
                let source = Beneath {
                    directory: directory.clone(),
                    text: None,
                };
                Policy::load(name, &overrides, &source)?
            }
            PolicyChoice::Text {
                toml,
                directory,
                label,
            } => {
                let label = label.as_deref().unwrap_or("policy");
                let path = directory.join(format!("{label}.toml"));
                let name = path.display().to_string();
                let source = Beneath {
                    directory: Some(directory.clone()),
                    text: Some((path, toml.clone())),
                };
                Policy::load(&name, &overrides, &source)?
            }
        };
        Ok(policy)
    }

    fn environment(&self) -> CallerEnvironment {
        let differences = self.environ.iter();
        CallerEnvironment::current()
            .changed_by(differences.map(|(name, value)| (name, value.as_ref())))
    }
}

impl Sandboxes {
    /// The sandbox for these terms, under the policy that they choose; it is made if there is none.
    pub fn get(&self, wanted: &Wanted, policy: Policy) -> Result<Arc<Sandbox>, Error> {
        let builder = Sandbox::builder()
            .policy(policy)
            .environment(wanted.environment());
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
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

/// The caller's view of policy files: relative to his directory, and with one that is only a text.
struct Beneath {
    directory: Option<PathBuf>,
    text: Option<(PathBuf, String)>,
}

impl PolicySource for Beneath {
    fn read(&self, path: &Path) -> io::Result<String> {
        if let Some((_, text)) = self.text.as_ref().filter(|(it, _)| it == path) {
            return Ok(text.clone());
        }
        FileSystem.read(&self.current_dir()?.join(path))
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        match &self.directory {
            Some(directory) => Ok(directory.clone()),
            None => FileSystem.current_dir(),
        }
    }
}
