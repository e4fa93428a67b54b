//! The sandboxes and snapshots of E2B's clients.

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
use crate::sessions::{closed, new_id};
use crate::tenant::Tenant;

/// Texts by name: metadata, or an environment.
pub type Texts = BTreeMap<String, String>;

/// Bytes of metadata and of an environment: they stay in memory.
const MOST_TEXT: usize = 64 << 10;

/// The sandboxes and the snapshots of all tenants, by id.
#[derive(Debug, Default)]
pub struct Registry {
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    /// The snapshots.
    pub snapshots: Mutex<BTreeMap<String, Arc<Saved>>>,
    made: AtomicU64,
}

/// What a sandbox is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    pub template: String,
    pub metadata: Texts,
    pub environment: Texts,
    pub lifetime: Duration,
    pub at_end: AtEnd,
}

/// What becomes of a sandbox when its time is over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AtEnd {
    #[default]
    Kill,
    Pause,
}

/// A sandbox: sessions that end together.
#[derive(Debug)]
pub struct Sandbox {
    pub id: String,
    /// Those that were made later have a greater one.
    pub number: u64,
    /// Without it, no request reaches the sandbox.
    pub token: String,
    pub tenant: Arc<Tenant>,
    pub template: String,
    pub metadata: Texts,
    pub environment: Texts,
    pub started: SystemTime,
    begun: Instant,
    end: Mutex<Instant>,
    /// What becomes of it when its time is over.
    pub at_end: AtEnd,
    /// How often it found no room for its state, since it was paused last.
    refused: AtomicU32,
    state: Mutex<State>,
    /// Held while it is paused or resumed.
    pub changes: Turns<()>,
    /// The programs that its clients have started.
    pub commands: Mutex<Vec<Arc<Command>>>,
    /// The directories whose events its clients ask for, by the ids of their watchers.
    pub watchers: Mutex<BTreeMap<String, Arc<Watching>>>,
}

/// What a sandbox consists of.
#[derive(Debug)]
pub enum State {
    /// Its contexts, the first first.
    Running(Vec<Context>),
    /// Its contexts until it is paused or resumed. They take no requests.
    Changing(Vec<Context>),
    /// Its contexts, each with the session that was taken from it.
    Paused(Vec<(Context, Session)>),
    /// Nothing. It stays so.
    Ended,
}

impl Settings {
    /// Checks that they may be kept.
    pub fn check(&self) -> Result<(), Failure> {
        let bytes = |texts: &Texts| {
            texts
                .iter()
                .map(|(name, text)| name.len() + text.len())
                .sum()
        };
        let (metadata, environment): (usize, usize) =
            (bytes(&self.metadata), bytes(&self.environment));
        if metadata + environment > MOST_TEXT {
            return Err(Failure::Request(format!(
                "metadata and envVars have more than {MOST_TEXT} bytes"
            )));
        }
        Ok(())
    }
}

impl Registry {
    /// Makes a sandbox of sessions. The first is its own, with its files.
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
            refused: AtomicU32::new(0),
            state: Mutex::new(State::Running(contexts)),
            changes: Turns::default(),
            commands: Mutex::default(),
            watchers: Mutex::default(),
        });
        locked(&self.sandboxes).insert(sandbox.id.clone(), Arc::clone(&sandbox));
        Ok(sandbox)
    }

    /// A number for a sandbox or a snapshot, greater than all before it.
    pub fn next_number(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    /// A sandbox that lives, of any tenant.
    pub fn get(&self, id: &str) -> Option<Arc<Sandbox>> {
        let all = locked(&self.sandboxes);
        all.get(id).filter(|sandbox| !sandbox.is_over()).cloned()
    }

    /// All that live.
    pub fn all(&self) -> Vec<Arc<Sandbox>> {
        let all = locked(&self.sandboxes);
        all.values()
            .filter(|sandbox| !sandbox.is_over())
            .cloned()
            .collect()
    }

    /// A sandbox of this tenant. That another tenant has one of this id is not said.
    pub fn find(&self, tenant: &Tenant, id: &str) -> Result<Arc<Sandbox>, Failure> {
        let found = self
            .get(id)
            .filter(|sandbox| sandbox.tenant.name == tenant.name);
        found.ok_or_else(no_sandbox)
    }

    /// Ends a sandbox, and what it runs, also while a request to it still reads its body.
    pub async fn end(&self, sandbox: Arc<Sandbox>) {
        locked(&self.sandboxes).remove(&sandbox.id);
        let state = mem::replace(&mut *locked(&sandbox.state), State::Ended);
        let (contexts, paused) = match state {
            State::Running(contexts) | State::Changing(contexts) => (contexts, Vec::new()),
            State::Paused(paused) => paused.into_iter().unzip(),
            State::Ended => return,
        };
        // A task of its own goes on if the client that ends the sandbox leaves.
        let ending = tokio::spawn(async move {
            closed(paused).await;
            for context in contexts {
                context.open.close().await;
            }
            closed(sandbox).await;
        });
        _ = ending.await;
    }

    /// Those whose time is over.
    pub fn due(&self) -> Vec<Arc<Sandbox>> {
        let all = locked(&self.sandboxes);
        all.values()
            .filter(|sandbox| sandbox.is_due())
            .cloned()
            .collect()
    }
}

impl Sandbox {
    /// Whether its time is over. That of a paused one stands.
    pub fn is_due(&self) -> bool {
        self.is_running() && *locked(&self.end) <= Instant::now()
    }

    /// Whether it ends, as its time is over.
    fn is_over(&self) -> bool {
        self.at_end == AtEnd::Kill && self.is_due()
    }

    /// Whether it takes requests.
    pub fn is_running(&self) -> bool {
        matches!(&*locked(&self.state), State::Running(_))
    }

    /// The name that clients have for its state.
    pub fn state_name(&self) -> &'static str {
        if self.is_running() {
            "running"
        } else {
            "paused"
        }
    }

    /// Gives it another state, unless it has ended.
    pub fn set(&self, state: State) {
        let mut now = locked(&self.state);
        let old = if matches!(*now, State::Ended) {
            state
        } else {
            mem::replace(&mut *now, state)
        };
        // What that holds may take a while to end.
        drop(now);
        drop(old);
    }

    /// Takes what it is if it is paused.
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

    /// Closes it to new requests. Returns its contexts.
    pub fn begin_pause(&self) -> Result<Vec<Context>, Failure> {
        let mut state = locked(&self.state);
        let contexts = match &mut *state {
            State::Running(contexts) => mem::take(contexts),
            State::Changing(_) | State::Paused(_) => {
                return Err(Failure::Exists("the sandbox is paused already".to_owned()));
            }
            State::Ended => return Err(no_sandbox()),
        };
        *state = State::Changing(contexts.clone());
        Ok(contexts)
    }

    /// When it ends.
    pub fn end(&self) -> SystemTime {
        self.started + locked(&self.end).duration_since(self.begun)
    }

    /// Sets its end to this time from now.
    pub fn set_lifetime(&self, lifetime: Duration) {
        *locked(&self.end) = Instant::now() + lifetime;
    }

    /// Moves its end to this time from now, unless it is later already.
    pub fn extend(&self, lifetime: Duration) {
        let mut end = locked(&self.end);
        *end = (*end).max(Instant::now() + lifetime);
    }

    /// Has it go on until it is tried again to pause it, each time for longer: what it has itself may be what takes the room.
    pub fn pause_later(&self) {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed);
        self.extend(until_next_pause(refused));
    }

    /// Notes that its state has found room.
    pub fn has_found_room(&self) {
        self.refused.store(0, Ordering::Relaxed);
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

    /// Its contexts, the first first.
    pub fn contexts(&self) -> Result<Vec<Context>, Failure> {
        self.with_contexts(|contexts| Ok(contexts.clone()))
    }

    /// A context by its id, or the first.
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

    /// Takes a context away. The first stays: the sandbox's files are its.
    pub fn take(&self, id: &str) -> Result<Context, Failure> {
        self.with_contexts(|contexts| {
            match contexts.iter().position(|context| context.id == id) {
                None => Err(no_context()),
                Some(0) => Err(Failure::Request(
                    "the first context of a sandbox cannot be removed: it has the files of the sandbox"
                        .to_owned(),
                )),
                Some(place) => Ok(contexts.remove(place)),
            }
        })
    }
}

/// How long a sandbox goes on that has found no room for its state after so many other times.
fn until_next_pause(refused: u32) -> Duration {
    const FIRST: Duration = Duration::from_secs(10);
    FIRST * 2_u32.pow(refused.min(6))
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
    fn a_pause_without_room_is_tried_less_and_less_often() {
        let seconds = [0, 1, 2, 6, 7, u32::MAX].map(|refused| until_next_pause(refused).as_secs());
        assert_eq!(seconds, [10, 20, 40, 640, 640, 640]);
    }
}
