//! Manages the warm zygote of a sandbox, and its successors.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::turnover::{Generation, Renewal, Turnover};
use crate::plan::{LeftToGuest, Plan, PreloadPlan, preload_env};
use crate::supervisor::{
    Abort, Entering, FontCache, Launched, StartCache, SupervisorError, Zygote,
};
use crate::waiters::{Waiters, lock};
use sandfork_jail::control::{Lifetime, PreloadModule, Presence, PythonSetup, RunPath, Unready};

/// Holds the current zygote. A replaced zygote lives until its last run has ended.
#[derive(Debug)]
pub struct ZygoteManager {
    shared: Arc<Shared>,
    /// The thread that makes, or has made, the latest successor.
    maker_thread: Mutex<Option<JoinHandle<()>>>,
}

/// How zygotes serve.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serving {
    /// How many runs each zygote is for.
    pub lifetime: Lifetime,
    /// Which code executes a run in its worker.
    pub run_path: RunPath,
    /// When each zygote is replaced.
    pub turnover: Turnover,
}

#[derive(Debug)]
struct Shared {
    executable: PathBuf,
    serving: Serving,
    start: StartCache,
    state: Mutex<State>,
    /// Notified when an attempt to make a zygote has ended.
    launched: Waiters,
    /// Ends the zygote that is being made.
    abort: Abort,
}

/// The mutable state. Its lock is held only briefly, because every run takes it.
#[derive(Debug)]
struct State {
    current: Option<Generation>,
    /// Whether a thread is making the next zygote.
    is_launching: bool,
}

impl ZygoteManager {
    /// Starts with this zygote.
    pub fn new(zygote: Arc<Zygote>, plan: &Plan, serving: Serving, start: StartCache) -> Self {
        let shared = Shared {
            executable: plan.interpreter.executable.clone(),
            serving,
            start,
            state: Mutex::new(State {
                current: Some(Generation::new(zygote, Instant::now())),
                is_launching: false,
            }),
            launched: Waiters::default(),
            abort: Abort::default(),
        };
        Self {
            shared: Arc::new(shared),
            maker_thread: Mutex::default(),
        }
    }

    /// Returns a zygote for one worker. Makes one only if the current zygote may not serve: a successor is made in a
    /// thread.
    pub fn get(&self, plan: &Plan) -> Result<Arc<Zygote>, SupervisorError> {
        let shared = &self.shared;
        let turnover = &shared.serving.turnover;
        let mut state = lock(&shared.state);
        loop {
            let current = state.current.as_mut();
            let served = current.and_then(|current| {
                let renewal = current.serve(turnover, Instant::now())?;
                Some((Arc::clone(&current.zygote), renewal))
            });
            if let Some((zygote, renewal)) = served {
                if renewal == Renewal::Now && !state.is_launching {
                    let launching = Launching::begin(shared, state);
                    self.make_successor(launching, plan);
                }
                return Ok(zygote);
            }
            state = if state.is_launching {
                let most = Duration::MAX;
                shared
                    .launched
                    .wait_while(state, most, |it| it.is_launching)
            } else {
                Launching::begin(shared, state).renew(plan)?;
                lock(&shared.state)
            };
        }
    }

    /// Starts a thread that replaces the current zygote, which serves meanwhile. If that fails, a later run tries
    /// again.
    fn make_successor(&self, launching: Launching, plan: &Plan) {
        let plan = plan.clone();
        let mut maker_thread = lock(&self.maker_thread);
        let former = maker_thread.take();
        let make = move || {
            // The previous thread may still be waiting for the zygote that it replaced.
            _ = former.map(JoinHandle::join);
            if let Err(error) = launching.renew(&plan) {
                tracing::debug!(%error, "the zygote has no successor yet");
            }
        };
        match thread::Builder::new().name("successor".into()).spawn(make) {
            Ok(started) => *maker_thread = Some(started),
            Err(error) => tracing::debug!(%error, "the zygote has no successor yet"),
        }
    }

    /// Returns a zygote that has forked no worker and will fork only one.
    pub fn fresh(&self, plan: &Plan) -> Result<Arc<Zygote>, SupervisorError> {
        let serving = Serving {
            lifetime: Lifetime::OneRun,
            ..self.shared.serving
        };
        self.shared.launch(plan, serving, None)
    }

    /// Ends the zygote that is being made, and makes every later attempt fail.
    pub fn abort(&self) {
        self.shared.abort.abort();
    }

    /// Ends the zygote, which must have no worker. Dropping the manager waits for that end.
    pub fn close(&self) {
        if let Some(generation) = &lock(&self.shared.state).current {
            generation.zygote.close();
        }
    }

    /// Discards a zygote that has ended or cannot be trusted, so that the next run starts another.
    pub fn discard(&self, ended: &Arc<Zygote>) {
        let is_same = |current: &mut Generation| Arc::ptr_eq(&current.zygote, ended);
        // The caller holds a reference too, so this does not wait for the zygote to end.
        lock(&self.shared.state).current.take_if(is_same);
    }
}

impl Drop for ZygoteManager {
    fn drop(&mut self) {
        self.abort();
        // A thread that panicked has reported the panic itself.
        _ = lock(&self.maker_thread).take().map(JoinHandle::join);
    }
}

impl Shared {
    fn launch(
        &self,
        plan: &Plan,
        serving: Serving,
        abort: Option<Abort>,
    ) -> Result<Arc<Zygote>, SupervisorError> {
        let launched = Launched::start(&self.executable)?;
        // Changes to the environment since the first zygote affect only this zygote's copy of the plan.
        let mut plan = plan.clone();
        PendingZygote::begin(launched, &plan, serving, &self.start, abort)?
            .finish(&mut plan, &self.start)
    }
}

/// Guards the making of the next zygote: only one thread makes it at a time.
struct Launching(Arc<Shared>);

impl Launching {
    fn begin(shared: &Arc<Shared>, mut state: MutexGuard<'_, State>) -> Self {
        state.is_launching = true;
        Self(Arc::clone(shared))
    }

    /// Makes and installs the zygote. On failure the current zygote stays.
    fn renew(self, plan: &Plan) -> Result<(), SupervisorError> {
        let Self(shared) = &self;
        let zygote = shared.launch(plan, shared.serving, Some(shared.abort.clone()))?;
        let next = Generation::new(zygote, Instant::now());
        let former = lock(&shared.state).current.replace(next);
        // Wake the runs that wait for a zygote.
        drop(self);
        // Waits for the former zygote to exit, if its last run has ended.
        drop(former);
        Ok(())
    }
}

impl Drop for Launching {
    fn drop(&mut self) {
        let Self(shared) = self;
        shared.abort.release();
        lock(&shared.state).is_launching = false;
        shared.launched.notify_all();
    }
}

/// A zygote that is entering its jail and preloading, which takes longer than the supervisor's other work meanwhile.
/// Dropping it ends the zygote.
#[derive(Debug)]
pub struct PendingZygote {
    entering: Entering,
    serving: Serving,
    /// Lets another thread end the zygote.
    abort: Option<Abort>,
}

impl PendingZygote {
    /// Begins to make a zygote from a started interpreter.
    pub fn begin(
        launched: Launched,
        plan: &Plan,
        serving: Serving,
        start: &StartCache,
        abort: Option<Abort>,
    ) -> Result<Self, SupervisorError> {
        if let Some(abort) = &abort {
            abort.watch(&launched)?;
        }
        let (jail, setup) = (plan.jail.clone(), setup(plan, serving));
        Ok(Self {
            entering: Entering::begin(launched, jail, setup, start, font_cache(plan))?,
            serving,
            abort,
        })
    }

    /// Waits until the zygote serves, and records in the plan which modules are left to the guest.
    ///
    /// A module that cannot be preloaded spoils the interpreter that tried: its threads stay, and a partly imported
    /// package may not be importable again. If the policy does not require the module, another interpreter is started,
    /// which leaves the module to the guest.
    pub fn finish(
        mut self,
        plan: &mut Plan,
        start: &StartCache,
    ) -> Result<Arc<Zygote>, SupervisorError> {
        loop {
            let error = match self.entering.serves(start) {
                Ok(zygote) => {
                    leave_absent(&mut plan.interpreter.preload, &zygote.preloaded);
                    return Ok(Arc::new(zygote));
                }
                Err(error) => error,
            };
            leave_to_guest(&mut plan.interpreter.preload, error)?;
            let launched = Launched::start(&plan.interpreter.executable)?;
            self = Self::begin(launched, plan, self.serving, start, self.abort)?;
        }
    }
}

/// Returns where to keep the font list that a preloaded package builds.
fn font_cache(plan: &Plan) -> Option<FontCache> {
    let interpreter = &plan.interpreter;
    if interpreter.preload.is_empty() {
        return None;
    }
    let cache = FontCache::of([
        OsStr::new(&plan.policy.sha256),
        interpreter.executable.as_os_str(),
        interpreter.environment.as_os_str(),
    ]);
    cache
        .inspect_err(|error| tracing::debug!(%error, "no list of fonts is kept"))
        .ok()
}

/// Leaves the module that this error names to the guest. Returns the error if that is not possible.
fn leave_to_guest(
    preload: &mut [PreloadPlan],
    error: SupervisorError,
) -> Result<(), SupervisorError> {
    let SupervisorError::Unready(unready) = &error else {
        return Err(error);
    };
    let (module, why) = match unready {
        Unready::Threads { module } => (module, LeftToGuest::Threads),
        Unready::SharedMemory { module } => (module, LeftToGuest::SharedMemory),
        Unready::Preload { module, error } => {
            let error = error.clone();
            (module, LeftToGuest::Fails { error })
        }
        Unready::Startup { .. } => return Err(error),
    };
    // A guest can import a module that starts threads or shares memory. A module that fails to import would fail in the
    // guest too.
    let even_if_required = !matches!(why, LeftToGuest::Fails { .. });
    let mut tried = preload
        .iter_mut()
        .filter(|plan| plan.left_to_guest.is_none());
    match tried.find(|plan| plan.module == *module && (even_if_required || !plan.required)) {
        Some(plan) => plan.left_to_guest = Some(why),
        None => return Err(error),
    }
    Ok(())
}

fn leave_absent(preload: &mut [PreloadPlan], loaded: &[String]) {
    let tried = preload
        .iter_mut()
        .filter(|plan| plan.left_to_guest.is_none());
    for plan in tried.filter(|plan| !loaded.contains(&plan.module)) {
        plan.left_to_guest = Some(LeftToGuest::Absent);
    }
}

fn setup(plan: &Plan, serving: Serving) -> PythonSetup {
    let interpreter = &plan.interpreter;
    let preload = |module: &PreloadPlan| PreloadModule {
        name: module.module.clone(),
        presence: if module.required {
            Presence::Required
        } else {
            Presence::WhereInstalled
        },
    };
    PythonSetup {
        lifetime: serving.lifetime,
        run_path: serving.run_path,
        path: interpreter
            .path
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        project: interpreter
            .project
            .as_ref()
            .map(|path| path.display().to_string()),
        preload: interpreter
            .preload
            .iter()
            .filter(|plan| plan.left_to_guest.is_none())
            .map(preload)
            .collect(),
        imports: interpreter.imports.clone(),
        preload_env: preload_env(plan.level)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    }
}
