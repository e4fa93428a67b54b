//! The warm zygote of a sandbox, and its successors.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::plan::{LeftToGuest, Plan, PreloadPlan, preload_env};
use crate::supervisor::{Entering, FontCache, Launched, StartCache, SupervisorError, Zygote};
use sandfork_jail::control::{Lifetime, PreloadModule, Presence, PythonSetup, RunPath, Unready};

/// The workers of one zygote share its hash seed and its address layout, so no zygote serves for
/// long. After this many workers, or this time, the next run starts another.
const MAX_WORKERS: u64 = 10_000;
/// See [`MAX_WORKERS`].
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The zygote in use. A replaced zygote lives until its last run has ended.
#[derive(Debug)]
pub struct ZygoteManager {
    executable: PathBuf,
    serving: Serving,
    start: StartCache,
    current: Mutex<Option<Generation>>,
}

/// How zygotes serve.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serving {
    /// How many runs each is for.
    pub lifetime: Lifetime,
    /// What serves a run in its worker.
    pub run_path: RunPath,
}

#[derive(Debug)]
struct Generation {
    zygote: Arc<Zygote>,
    born: Instant,
    workers: u64,
}

impl Generation {
    fn new(zygote: Arc<Zygote>) -> Self {
        Self {
            zygote,
            born: Instant::now(),
            workers: 0,
        }
    }
}

impl ZygoteManager {
    /// Begins with this zygote.
    pub fn new(zygote: Arc<Zygote>, plan: &Plan, serving: Serving, start: StartCache) -> Self {
        Self {
            executable: plan.interpreter.executable.clone(),
            serving,
            start,
            current: Mutex::new(Some(Generation::new(zygote))),
        }
    }

    /// Returns a zygote for one worker.
    pub fn get(&self, plan: &Plan) -> Result<Arc<Zygote>, SupervisorError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = match current.take() {
            Some(generation)
                if generation.workers < MAX_WORKERS && generation.born.elapsed() < MAX_AGE =>
            {
                current.insert(generation)
            }
            _ => {
                let zygote = self.launch(plan, self.serving)?;
                current.insert(Generation::new(zygote))
            }
        };
        generation.workers += 1;
        Ok(Arc::clone(&generation.zygote))
    }

    /// Returns a zygote that has served no worker and will serve only this one.
    pub fn fresh(&self, plan: &Plan) -> Result<Arc<Zygote>, SupervisorError> {
        let serving = Serving {
            lifetime: Lifetime::OneRun,
            ..self.serving
        };
        self.launch(plan, serving)
    }

    fn launch(&self, plan: &Plan, serving: Serving) -> Result<Arc<Zygote>, SupervisorError> {
        let launched = Launched::start(&self.executable)?;
        // What changed in the environment since then is only this zygote's concern.
        let mut plan = plan.clone();
        Making::begin(launched, &plan, serving, &self.start)?.finish(&mut plan, &self.start)
    }

    /// Has the zygote end, which must have no worker. Dropping this waits for that.
    pub fn close(&self) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(generation) = &*current {
            generation.zygote.close();
        }
    }

    /// Discards a zygote that has ended or cannot be trusted, so that the next run starts another.
    pub fn discard(&self, ended: &Arc<Zygote>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current
            .as_ref()
            .is_some_and(|generation| Arc::ptr_eq(&generation.zygote, ended))
        {
            *current = None;
        }
    }
}

/// A zygote that enters its jail and prepares, which takes longer than anything that the supervisor has to do meanwhile.
/// Dropping it ends it.
#[derive(Debug)]
pub struct Making {
    entering: Entering,
    fonts: Option<FontCache>,
    serving: Serving,
}

impl Making {
    /// Begins to make it from an interpreter that has started.
    pub fn begin(
        launched: Launched,
        plan: &Plan,
        serving: Serving,
        start: &StartCache,
    ) -> Result<Self, SupervisorError> {
        let fonts = font_cache(plan);
        let (jail, setup) = (plan.jail.clone(), setup(plan, serving));
        Ok(Self {
            entering: Entering::begin(launched, jail, setup, start, fonts.as_ref())?,
            fonts,
            serving,
        })
    }

    /// Waits until the zygote serves. Afterwards the plan says which modules are left to the guest. A module that cannot be preloaded spoils the interpreter that tries: its
    /// threads stay, and a package that was imported in part may not be imported again. If the policy can do
    /// without, another interpreter leaves the module to the guest.
    pub fn finish(
        mut self,
        plan: &mut Plan,
        start: &StartCache,
    ) -> Result<Arc<Zygote>, SupervisorError> {
        loop {
            let error = match self.entering.serves(start, self.fonts.as_ref()) {
                Ok(zygote) => {
                    leave_absent(&mut plan.interpreter.preload, zygote.preloaded());
                    return Ok(Arc::new(zygote));
                }
                Err(error) => error,
            };
            leave_to_guest(&mut plan.interpreter.preload, error)?;
            let launched = Launched::start(&plan.interpreter.executable)?;
            self = Self::begin(launched, plan, self.serving, start)?;
        }
    }
}

/// Where the list of fonts is kept that a package makes while it is preloaded.
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

/// Leaves the module of this error to the guest. Fails with the error if that is not possible.
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
    // The guest can import a module that starts threads or shares memory. One that fails would fail
    // there too.
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
