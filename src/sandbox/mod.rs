//! Provides [`Sandbox`], the library's main interface: it applies one policy, and runs each request in a separate
//! worker.

mod builder;
mod demand;
mod interpreter;
mod key;
mod pause;
mod pool;
mod serve_session;
mod stats;
mod turnover;
mod zygote_manager;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use self::builder::SandboxBuilder;
#[cfg(feature = "internals")]
pub use self::turnover::{Term, Turnover};

pub(crate) use self::interpreter::ChosenInterpreter;
pub(crate) use self::key::SandboxKey;
pub(crate) use self::serve_session::SessionRequest;

use self::pool::{Filler, Parked, Pool};
use self::stats::{Activity, CountedRun, Counts};
use self::zygote_manager::ZygoteManager;
use crate::admission::Admission;
use crate::error::{Error, ErrorKind};
use crate::host::CallerEnvironment;
use crate::outcome::{Outcome, PolicyIdentity};
use crate::plan::{Grants, Plan, Start};
use crate::policy::Stdin;
use crate::protocol::caller::ToolTime;
use crate::supervisor::cgroup::CgroupRoot;
use crate::supervisor::egress::Egress;
use crate::supervisor::error::While;
use crate::supervisor::session_dir::SessionRoot;
use crate::supervisor::{
    AskHost, Image, MadeBy, OutputSink, Refusal, Request, RunContext, Shelf, SnapshotRefusal,
    SupervisorError, Zygote, clock, run, run_in,
};
use sandfork_jail::control::CpuBudgetScope;
use sandfork_jail::sys::write_signals;

/// A sandbox for one policy: its plan, a warm interpreter under that plan, and the parent of its workers' cgroups.
///
/// Each run gets a fresh worker: a forked interpreter in its own jail. When the run ends, the worker is removed with
/// every process and file that it made. The sandbox is `Send` and `Sync`, so any number of threads may run requests at
/// once; a run shares no socket with another.
///
/// Dropping the sandbox ends everything that belongs to it. So does the end of the process, for any reason.
#[derive(Debug)]
pub struct Sandbox {
    inner: Arc<Inner>,
    filler: Filler,
}

/// The state that the sandbox shares with the thread that fills its pool.
#[derive(Debug)]
struct Inner {
    // Dropped first: its workers use the cgroups and directories below.
    pool: Pool,
    snapshots: Shelf,
    egress: Option<Arc<Egress>>,
    cgroups: Option<Arc<CgroupRoot>>,
    sessions: Option<Arc<SessionRoot>>,
    // Dropped after these, because it waits for the zygote's end, which takes longer.
    zygotes: ZygoteManager,
    plan: Plan,
    policy: PolicyIdentity,
    grants: Grants,
    /// Holds a lock on the package environment, so that it is not removed.
    _environment: Option<File>,
    added: Option<AddedStore>,
    /// The builder's settings, without the policy.
    settings: SandboxBuilder,
    runs: AtomicUsize,
    counts: Counts,
}

/// Resources for adding packages to sessions.
#[derive(Debug)]
struct AddedStore {
    /// The caller's environment, which configures the package sources.
    caller: CallerEnvironment,
    /// Holds a lock on the added packages, so that they are not removed.
    _held: Option<File>,
}

impl Sandbox {
    /// Starts building a sandbox.
    pub fn builder() -> SandboxBuilder {
        SandboxBuilder::default()
    }

    /// Returns a builder with this sandbox's settings, but without its policy.
    pub(crate) fn another(&self) -> SandboxBuilder {
        self.inner.settings.clone()
    }

    /// Runs a request in a fresh worker and waits for its end.
    ///
    /// Blocks the calling thread until the worker and everything it started are gone: about as long as the guest runs,
    /// and at most `limits.wall` plus the time to kill it. An async caller should use a thread that may block.
    /// [`Request::cancel`] ends the run sooner.
    ///
    /// ```no_run
    /// let sandbox = sandfork::Sandbox::builder().build()?;
    /// let outcome = sandbox.run("print(6 * 7)")?;
    /// assert_eq!(outcome.stdout(), "42\n");
    /// # Ok::<(), sandfork::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Only if the sandbox could not be provided; [`Error::kind`] returns the kind of error. Every end of guest code is
    /// an [`Outcome`].
    pub fn run(&self, request: impl Into<Request>) -> Result<Outcome, Error> {
        self.run_streaming(request, &mut ())
    }

    /// Like [`run`](Self::run), but also passes the guest's output to a sink as it arrives. The
    /// outcome contains it as well.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_streaming(
        &self,
        request: impl Into<Request>,
        sink: &mut dyn OutputSink,
    ) -> Result<Outcome, Error> {
        let counted = CountedRun(&self.inner.counts);
        let result = self.admit_and_run(&request.into(), sink);
        counted.end(&result);
        result
    }

    /// Returns counts of current and past activity.
    ///
    /// `running` counts the active runs and cells, `waiting` the runs that wait for [`Admission`], `sessions` the open
    /// sessions, and `paused` the paused sessions among them. `ended.ok`, `ended.timeout` and so on count the runs and
    /// cells that ended with that [`Status`](crate::Status). `refused.busy` and so on count the requests that did not
    /// run, by [`ErrorKind`]. A count of zero may be missing.
    ///
    /// ```no_run
    /// let sandbox = sandfork::Sandbox::builder().build()?;
    /// sandbox.run("print(1)")?;
    /// assert_eq!(sandbox.stats()["ended.ok"], 1);
    /// assert_eq!(sandbox.stats()["running"], 0);
    /// # Ok::<(), sandfork::Error>(())
    /// ```
    pub fn stats(&self) -> BTreeMap<String, u64> {
        self.inner.counts.by_name()
    }

    fn admit_and_run(
        &self,
        request: &Request,
        sink: &mut dyn OutputSink,
    ) -> Result<Outcome, Error> {
        if request.has_stdin() && self.inner.plan.supervision.stdin == Stdin::Closed {
            return Err(Error::new(
                ErrorKind::Request,
                "the request has a standard input, and the policy does not let the guest read one: set \
                 `stdio.stdin = \"pass\"`, or leave it out",
            ));
        }
        let cancel = request.cancel.as_ref();
        let admit = |admission: &Admission| admission.enter(&request.client, cancel);
        let waiting = self.inner.counts.begin(Activity::Waiting);
        let admission = self.inner.settings.admission.as_ref();
        let _permit = admission.map(admit).transpose()?;
        let _running = self.inner.counts.begin(Activity::Running);
        drop(waiting);
        match self.attempt(request, sink) {
            // No guest code has run yet. If the zygote was killed from outside, retry with a new one.
            Err(SupervisorError::ZygoteGone) => {}
            other => return Ok(other?),
        }
        Ok(self.attempt(request, sink)?)
    }

    fn attempt(
        &self,
        request: &Request,
        sink: &mut dyn OutputSink,
    ) -> Result<Outcome, SupervisorError> {
        let called = clock::now();
        // A parked worker has no standard input.
        let (parked, refill) = if request.has_stdin() {
            (None, None)
        } else {
            self.filler.take(&self.inner, CpuBudgetScope::Life)
        };
        let (zygote, ready) = match parked {
            Some(Parked { verified, zygote }) => (zygote, Some(verified)),
            None => (self.inner.zygote()?, None),
        };
        let context = self.inner.run_context(&zygote);
        let outcome = if let Some(verified) = ready {
            run_in(&verified, &context, request, sink, called, refill)
        } else {
            // The pool was empty: start refilling it now, not when this run ends.
            drop(refill);
            run(&context, request, sink)
        };
        if outcome
            .as_ref()
            .is_err_and(SupervisorError::discredits_zygote)
        {
            self.inner.zygotes.discard(&zygote);
        }
        outcome
    }

    /// Returns the pid of the egress process, if the policy needs one.
    #[cfg(feature = "internals")]
    pub(crate) fn egress_process(&self) -> Option<u32> {
        self.inner.egress.as_ref().map(|egress| egress.pid())
    }

    /// Returns how many pages each fork of the current zygote copies eagerly, or why none. `None` without a zygote.
    #[cfg(feature = "internals")]
    pub(crate) fn copied_at_fork(&self) -> Option<Result<usize, nix::errno::Errno>> {
        self.inner.zygote().ok()?.copied
    }

    /// Returns the shelf that holds the sessions' snapshots.
    pub(crate) fn snapshots(&self) -> &Shelf {
        &self.inner.snapshots
    }

    /// Saves a snapshot as a file, after a trial has shown that another worker could be restored from it. Returns the
    /// file's length.
    pub(crate) fn save(&self, image: &Image, path: &Path) -> Result<u64, Refusal> {
        let zygote = self.inner.zygote()?;
        let saved = Arc::new(image.as_saved(&zygote)?);
        let tried = self.try_restore(&saved, self.terms(ToolTime::default()));
        if !zygote.is_alive() {
            self.inner.zygotes.discard(&zygote);
        }
        tried?;
        let (made_by, limits) = (self.made_by()?, &self.inner.plan.supervision.limits);
        Ok(write_signals::as_errors(|| {
            image.save(made_by, limits, path)
        })?)
    }

    /// Loads the snapshot that a file holds.
    pub(crate) fn saved(&self, path: &Path) -> Result<Arc<Image>, Error> {
        let zygote = self.inner.zygote()?;
        let made_by = self.made_by().map_err(SupervisorError::from)?;
        let limits = &self.inner.plan.supervision.limits;
        let load = || Image::load(path, &made_by, limits, &zygote, &self.inner.snapshots);
        let image = write_signals::as_errors(load);
        Ok(Arc::new(image.map_err(SupervisorError::from)?))
    }

    fn made_by(&self) -> Result<MadeBy, SnapshotRefusal> {
        let interpreter = &self.inner.plan.interpreter;
        let (major, minor, micro) = interpreter.version;
        let executable = interpreter.executable.display();
        let interpreter = format!("`{executable}` ({major}.{minor}.{micro})");
        MadeBy::here(interpreter, self.inner.policy.sha256.clone())
    }

    /// Returns the interpreter and the caller's environment for adding packages to sessions, if the policy allows that.
    pub(crate) fn package_addition(&self) -> Option<(&Path, &CallerEnvironment)> {
        let added = self.inner.added.as_ref()?;
        Some((&self.inner.plan.interpreter.executable, &added.caller))
    }

    /// Returns the plan of each worker.
    pub(crate) fn plan(&self) -> &Plan {
        &self.inner.plan
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Abort first: the pool's thread may be waiting for a zygote that is still starting.
        self.inner.zygotes.abort();
        self.filler.close(&self.inner);
        self.inner.zygotes.close();
    }
}

impl Inner {
    fn zygote(&self) -> Result<Arc<Zygote>, SupervisorError> {
        match self.plan.interpreter.start {
            Start::Forked => self.zygotes.get(&self.plan),
            Start::Cold => self.zygotes.fresh(&self.plan),
        }
    }

    fn run_context<'a>(&'a self, zygote: &'a Arc<Zygote>) -> RunContext<'a> {
        RunContext {
            zygote,
            jail: &self.plan.jail,
            cgroups: self.cgroups.as_ref(),
            sessions: self.sessions.as_ref(),
            egress: self.egress.as_ref(),
            limits: self.plan.supervision.limits,
            policy: &self.policy,
            first_core: self.runs.fetch_add(1, Ordering::Relaxed),
            grants: &self.grants,
            ask_host: AskHost::No,
            snapshots: &self.snapshots,
            session: 0,
        }
    }
}

/// Opens an empty standard input.
fn nothing_to_read() -> Result<OwnedFd, SupervisorError> {
    let null = File::open("/dev/null").when("open stdin")?;
    Ok(null.into())
}
