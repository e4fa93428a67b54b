//! The registry of sandboxes and snapshots of E2B's clients.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use sandfork::session::Session;
use tokio::sync::Mutex as Turns;

use super::commands::Command;
use super::context::Context;
use super::snapshots::Saved;
use super::watch::Watching;
use crate::failure::Failure;
use crate::locked;
use crate::sessions::{drop_blocking, new_id};
use crate::tenant::Tenant;

/// A map of strings: metadata or environment variables.
pub type StringMap = BTreeMap<String, String>;

/// The maximum number of bytes of metadata and environment variables, which stay in memory.
const MAX_TEXT: usize = 64 << 10;

/// The sandboxes and snapshots of all tenants, by id.
#[derive(Debug, Default)]
pub struct Registry {
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    /// The snapshots.
    pub snapshots: Mutex<BTreeMap<String, Arc<Saved>>>,
    made: AtomicU64,
}

/// The settings of a new sandbox.
#[derive(Clone, Debug)]
pub struct Settings {
    pub template: String,
    pub metadata: StringMap,
    pub environment: StringMap,
    pub lifetime: Duration,
    pub at_end: AtEnd,
}

/// The action at the end of a sandbox's lifetime.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AtEnd {
    #[default]
    Kill,
    Pause,
}

/// A sandbox: a set of sessions with a common lifetime.
#[derive(Debug)]
pub struct Sandbox {
    pub id: String,
    /// Increases with the time of creation.
    pub number: u64,
    /// Required for every data-plane request.
    pub token: String,
    pub tenant: Arc<Tenant>,
    pub template: String,
    pub metadata: StringMap,
    pub environment: StringMap,
    pub started: SystemTime,
    begun: Instant,
    end: Mutex<Instant>,
    /// The action at the end of its lifetime.
    pub at_end: AtEnd,
    /// How often pausing has failed for lack of disk space since the last success.
    pause_failures: AtomicU32,
    state: Mutex<State>,
    /// Serializes pausing and resuming.
    pub changes: Turns<()>,
    /// The programs that its clients have started.
    pub commands: Mutex<Vec<Arc<Command>>>,
    /// The directories that its clients watch, by watcher id.
    pub watchers: Mutex<BTreeMap<String, Arc<Watching>>>,
}

/// The state of a sandbox.
#[derive(Debug)]
pub enum State {
    /// The contexts; the first one owns the files.
    Running(Vec<Context>),
    /// The contexts while the sandbox is being paused or resumed. They accept no requests.
    Changing(Vec<Context>),
    /// The contexts, each with the paused session that was taken from it.
    Paused(Vec<(Context, Session)>),
    /// The final state.
    Ended,
}

impl Settings {
    /// Checks that the settings fit into memory.
    pub fn check(&self) -> Result<(), Failure> {
        let bytes = |texts: &StringMap| {
            texts
                .iter()
                .map(|(name, text)| name.len() + text.len())
                .sum()
        };
        let (metadata, environment): (usize, usize) =
            (bytes(&self.metadata), bytes(&self.environment));
        if metadata + environment > MAX_TEXT {
            return Err(Failure::Request(format!(
                "metadata and envVars: more than {MAX_TEXT} bytes together"
            )));
        }
        Ok(())
    }
}

impl Registry {
    /// Registers a sandbox. Its first context owns its files.
    pub fn add(
        &self,
        tenant: &Arc<Tenant>,
        settings: Settings,
        contexts: Vec<Context>,
    ) -> Result<Arc<Sandbox>, Failure> {
        let now = Instant::now();
        let sandbox = Arc::new(Sandbox {
            id: new_id()?,
            number: self.next_number(),
            token: new_id()? + &new_id()?,
            tenant: Arc::clone(tenant),
            template: settings.template,
            metadata: settings.metadata,
            environment: settings.environment,
            started: SystemTime::now(),
            begun: now,
            end: Mutex::new(now + settings.lifetime),
            at_end: settings.at_end,
            pause_failures: AtomicU32::new(0),
            state: Mutex::new(State::Running(contexts)),
            changes: Turns::default(),
            commands: Mutex::default(),
            watchers: Mutex::default(),
        });
        locked(&self.sandboxes).insert(sandbox.id.clone(), Arc::clone(&sandbox));
        Ok(sandbox)
    }

    /// Returns an increasing number for a new sandbox or snapshot.
    pub fn next_number(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a live sandbox of any tenant.
    pub fn get(&self, id: &str) -> Option<Arc<Sandbox>> {
        let all = locked(&self.sandboxes);
        all.get(id).filter(|sandbox| !sandbox.is_expired()).cloned()
    }

    /// Returns all live sandboxes.
    pub fn all(&self) -> Vec<Arc<Sandbox>> {
        let all = locked(&self.sandboxes);
        all.values()
            .filter(|sandbox| !sandbox.is_expired())
            .cloned()
            .collect()
    }

    /// Returns a sandbox of this tenant. The error does not reveal whether another tenant has a sandbox with this id.
    pub fn find(&self, tenant: &Tenant, id: &str) -> Result<Arc<Sandbox>, Failure> {
        let found = self
            .get(id)
            .filter(|sandbox| sandbox.tenant.name == tenant.name);
        found.ok_or_else(no_sandbox)
    }

    /// Ends a sandbox and everything that runs in it, even while a request to it is still reading its body.
    pub async fn end(&self, sandbox: Arc<Sandbox>) {
        locked(&self.sandboxes).remove(&sandbox.id);
        let state = mem::replace(&mut *locked(&sandbox.state), State::Ended);
        let (contexts, paused) = match state {
            State::Running(contexts) | State::Changing(contexts) => (contexts, Vec::new()),
            State::Paused(paused) => paused.into_iter().unzip(),
            State::Ended => return,
        };
        // A separate task completes even if the client that ends the sandbox disconnects.
        let ending = tokio::spawn(async move {
            drop_blocking(paused).await;
            for context in contexts {
                context.open.close().await;
            }
            drop_blocking(sandbox).await;
        });
        _ = ending.await;
    }

    /// Returns the sandboxes whose lifetime is over.
    pub fn due(&self) -> Vec<Arc<Sandbox>> {
        let all = locked(&self.sandboxes);
        all.values()
            .filter(|sandbox| sandbox.is_due())
            .cloned()
            .collect()
    }
}

impl Sandbox {
    /// Returns whether the sandbox is running and its lifetime is over. A paused sandbox is never due.
    pub fn is_due(&self) -> bool {
        self.is_running() && *locked(&self.end) <= Instant::now()
    }

    /// Returns whether the lifetime is over and the sandbox will be ended rather than paused.
    fn is_expired(&self) -> bool {
        self.at_end == AtEnd::Kill && self.is_due()
    }

    /// Returns whether the sandbox accepts requests.
    pub fn is_running(&self) -> bool {
        matches!(&*locked(&self.state), State::Running(_))
    }

    /// Returns the state as clients name it.
    pub fn state_name(&self) -> &'static str {
        if self.is_running() {
            "running"
        } else {
            "paused"
        }
    }

    /// Sets the state, unless the sandbox has ended.
    pub fn set(&self, state: State) {
        let mut now = locked(&self.state);
        let old = if matches!(*now, State::Ended) {
            state
        } else {
            mem::replace(&mut *now, state)
        };
        // Release the lock before dropping the old state, which may take a while.
        drop(now);
        drop(old);
    }

    /// Takes the paused contexts, or returns `None` if the sandbox is not paused.
    pub fn begin_resume(&self) -> Result<Option<Vec<(Context, Session)>>, Failure> {
        let mut state = locked(&self.state);
        let paused = match &mut *state {
            State::Paused(paused) => mem::take(paused),
            State::Running(_) | State::Changing(_) => return Ok(None),
            State::Ended => return Err(no_sandbox()),
        };
        let contexts = paused.iter().map(|(context, _)| context.clone());
        *state = State::Changing(contexts.collect());
        Ok(Some(paused))
    }

    /// Stops accepting requests, and returns the contexts.
    pub fn begin_pause(&self) -> Result<Vec<Context>, Failure> {
        let mut state = locked(&self.state);
        let contexts = match &mut *state {
            State::Running(contexts) => mem::take(contexts),
            State::Changing(_) | State::Paused(_) => {
                return Err(Failure::Exists("the sandbox is already paused".to_owned()));
            }
            State::Ended => return Err(no_sandbox()),
        };
        *state = State::Changing(contexts.clone());
        Ok(contexts)
    }

    /// Returns the end of the lifetime.
    pub fn end(&self) -> SystemTime {
        self.started + locked(&self.end).duration_since(self.begun)
    }

    /// Sets the remaining lifetime.
    pub fn set_lifetime(&self, lifetime: Duration) {
        *locked(&self.end) = Instant::now() + lifetime;
    }

    /// Extends the remaining lifetime, unless it is longer already.
    pub fn extend(&self, lifetime: Duration) {
        let mut end = locked(&self.end);
        *end = (*end).max(Instant::now() + lifetime);
    }

    /// Extends the lifetime until the next attempt to pause, with exponential backoff: the sandbox itself may be what
    /// fills the disk.
    pub fn pause_later(&self) {
        let failures = self.pause_failures.fetch_add(1, Ordering::Relaxed);
        self.extend(pause_backoff(failures));
    }

    /// Records a successful pause.
    pub fn reset_pause_backoff(&self) {
        self.pause_failures.store(0, Ordering::Relaxed);
    }

    fn with_contexts<T>(
        &self,
        act: impl FnOnce(&mut Vec<Context>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match &mut *locked(&self.state) {
            State::Running(contexts) => act(contexts),
            State::Changing(_) | State::Paused(_) => Err(Failure::Request(
                "the sandbox is paused: connect to it first".to_owned(),
            )),
            State::Ended => Err(no_sandbox()),
        }
    }

    /// Returns the contexts, the first one first.
    pub fn contexts(&self) -> Result<Vec<Context>, Failure> {
        self.with_contexts(|contexts| Ok(contexts.clone()))
    }

    /// Returns a context by its id, or the first context.
    pub fn context(&self, id: Option<&str>) -> Result<Context, Failure> {
        self.with_contexts(|contexts| {
            let mut contexts = contexts.iter();
            let found = contexts.find(|context| id.is_none_or(|id| context.id == id));
            found.cloned().ok_or_else(no_context)
        })
    }

    /// Adds a context.
    pub fn add(&self, context: Context) -> Result<(), Failure> {
        self.with_contexts(|contexts| {
            contexts.push(context);
            Ok(())
        })
    }

    /// Removes a context. The first context cannot be removed, because it owns the sandbox's files.
    pub fn take(&self, id: &str) -> Result<Context, Failure> {
        self.with_contexts(
            |contexts| match contexts.iter().position(|context| context.id == id) {
                None => Err(no_context()),
                Some(0) => Err(Failure::Request(
                    "the first context of a sandbox cannot be removed: it owns the sandbox's files"
                        .to_owned(),
                )),
                Some(index) => Ok(contexts.remove(index)),
            },
        )
    }
}

/// Returns the delay before the next attempt to pause, after this number of earlier failures.
fn pause_backoff(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_secs(10);
    FIRST * 2_u32.pow(failures.min(6))
}

fn no_sandbox() -> Failure {
    Failure::NotFound("there is no such sandbox".to_owned())
}

fn no_context() -> Failure {
    Failure::NotFound("there is no such context".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_backoff_grows_up_to_a_bound() {
        let seconds = [0, 1, 2, 6, 7, u32::MAX].map(|failures| pause_backoff(failures).as_secs());
        assert_eq!(seconds, [10, 20, 40, 640, 640, 640]);
    }
}
