//! The warm zygote of a sandbox, and its successors.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::plan::{PRELOAD_ONLY, Plan};
use crate::supervisor::{Launched, SupervisorError, Zygote};
use sandfork_jail::control::{Lifetime, PreloadModule, Presence, PythonSetup};

/// The workers of one zygote share its hash seed and its address layout, so no zygote serves for
/// long. After this many workers, or this time, the next run starts another.
const MAX_WORKERS: u64 = 10_000;
/// See [`MAX_WORKERS`].
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The zygote in use. A replaced zygote lives until its last run has ended.
#[derive(Debug)]
pub struct ZygoteManager {
    executable: PathBuf,
    lifetime: Lifetime,
    current: Mutex<Option<Generation>>,
}

#[derive(Debug)]
struct Generation {
    zygote: Arc<Zygote>,
    born: Instant,
    workers: u64,
}

impl ZygoteManager {
    /// Makes the first zygote from an interpreter that has started.
    pub fn start(
        launched: Launched,
        plan: &Plan,
        lifetime: Lifetime,
    ) -> Result<Self, SupervisorError> {
        let zygote = Arc::new(Zygote::enter(
            launched,
            plan.jail.clone(),
            setup(plan, lifetime),
        )?);
        let first = Generation {
            zygote,
            born: Instant::now(),
            workers: 0,
        };
        let executable = plan.interpreter.executable.clone();
        Ok(Self {
            executable,
            lifetime,
            current: Mutex::new(Some(first)),
        })
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
                let zygote = self.launch(plan, self.lifetime)?;
                current.insert(Generation {
                    zygote,
                    born: Instant::now(),
                    workers: 0,
                })
            }
        };
        generation.workers += 1;
        Ok(Arc::clone(&generation.zygote))
    }

    /// Returns a zygote that has served no worker and will serve only this one.
    pub fn fresh(&self, plan: &Plan) -> Result<Arc<Zygote>, SupervisorError> {
        self.launch(plan, Lifetime::OneRun)
    }

    fn launch(&self, plan: &Plan, lifetime: Lifetime) -> Result<Arc<Zygote>, SupervisorError> {
        let launched = Launched::start(&self.executable)?;
        Ok(Arc::new(Zygote::enter(
            launched,
            plan.jail.clone(),
            setup(plan, lifetime),
        )?))
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

fn setup(plan: &Plan, lifetime: Lifetime) -> PythonSetup {
    let interpreter = &plan.interpreter;
    let preload = |module: &crate::plan::PreloadPlan| PreloadModule {
        name: module.module.clone(),
        presence: if module.required {
            Presence::Required
        } else {
            Presence::WhereInstalled
        },
    };
    PythonSetup {
        lifetime,
        path: interpreter
            .path
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        project: interpreter
            .project
            .as_ref()
            .map(|path| path.display().to_string()),
        preload: interpreter.preload.iter().map(preload).collect(),
        imports: interpreter.imports.clone(),
        single_threaded: PRELOAD_ONLY.map(str::to_owned).to_vec(),
    }
}
