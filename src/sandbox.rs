//! The library's face: a sandbox for one policy, in which requests are run, each in a worker of
//! its own.

mod attend;
mod builder;
mod demand;
mod key;
mod pool;
mod warm;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

pub use self::attend::{SessionRequest, word};
pub use self::builder::SandboxBuilder;
pub use self::key::SandboxKey;

use self::pool::{Filler, Parked, Pool};
use self::warm::Warm;
use crate::admission::Admission;
use crate::error::{Cause, Error};
use crate::jail::control::CpuSpan;
use crate::outcome::{Outcome, PolicyIdentity};
use crate::plan::{Plan, Start};
use crate::policy::Stdin;
use crate::supervisor::cgroup::CgroupRoot;
use crate::supervisor::error::While;
use crate::supervisor::session::SessionRoot;
use crate::supervisor::{
    OutputSink, Place, Request, RunLimits, SupervisorError, Zygote, run, run_in,
};

/// A sandbox: a plan, a warm interpreter under it, and the place for its workers' cgroups.
///
/// Each run gets a fresh worker: a forked interpreter in a jail of its own, which is gone, with
/// every process and file that it made, when the run has ended. Runs may be made from any number
/// of threads at once; the sandbox is `Send` and `Sync`, and each run holds only its own sockets.
///
/// Dropping it ends everything that is left of it. So does the end of the process, however that
/// comes about.
#[derive(Debug)]
pub struct Sandbox {
    inner: Arc<Inner>,
    filler: Filler,
}

/// What the sandbox shares with the thread that fills its pool.
#[derive(Debug)]
struct Inner {
    // Dropped first: what is left in the cgroups and directories ends with these.
    pool: Pool,
    warm: Warm,
    cgroups: Option<Arc<CgroupRoot>>,
    sessions: Option<Arc<SessionRoot>>,
    plan: Plan,
    policy: PolicyIdentity,
    admission: Option<Admission>,
    runs: AtomicUsize,
}

impl Sandbox {
    /// Starts to describe a sandbox.
    pub fn builder() -> SandboxBuilder {
        SandboxBuilder::default()
    }

    /// Runs a request in a fresh worker and waits for its end.
    ///
    /// Blocks the calling thread until nothing of the worker is left: about as long as the guest runs,
    /// and no longer than `limits.wall` and what ending it takes. An async caller gives it a thread that
    /// may block; [`Request::cancel`] ends it sooner.
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
    /// Only when the sandbox could not be provided; [`Error::kind`] says which kind of thing was wrong.
    /// Whatever the guest does is an [`Outcome`].
    pub fn run(&self, request: impl Into<Request>) -> Result<Outcome, Error> {
        self.run_streaming(request, &mut ())
    }

    /// The same, handing on the guest's output as it comes. The outcome has it all the same.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_streaming(
        &self,
        request: impl Into<Request>,
        sink: &mut dyn OutputSink,
    ) -> Result<Outcome, Error> {
        let request = request.into();
        if request.has_stdin() && self.inner.plan.supervision.stdin == Stdin::Closed {
            return Err(SupervisorError::StdinRefused.into());
        }
        let admit =
            |admission: &Admission| admission.enter(request.for_client(), request.cancelled_by());
        let _permit = self.inner.admission.as_ref().map(admit).transpose()?;
        match self.attempt(&request, sink) {
            // Nothing has run yet: a zygote that was ended from outside costs time, not the run.
            Err(Error(Cause::Supervisor(SupervisorError::ZygoteGone))) => {}
            other => return other,
        }
        self.attempt(&request, sink)
    }

    fn attempt(&self, request: &Request, sink: &mut dyn OutputSink) -> Result<Outcome, Error> {
        let called = Instant::now();
        // A worker that stands ready has nothing to read.
        let (parked, refill) = if request.has_stdin() {
            (None, None)
        } else {
            self.filler.take(&self.inner, CpuSpan::Life)
        };
        let (zygote, ready) = match parked {
            Some(Parked { standing, zygote }) => (zygote, Some(standing)),
            None => (self.inner.zygote()?, None),
        };
        let place = self.inner.place(&zygote);
        let outcome = if let Some(standing) = ready {
            run_in(&standing, &place, request, sink, called, refill)
        } else {
            // Too few stood ready: that is not to wait for this one's end.
            drop(refill);
            run(&place, request, sink)
        };
        if outcome
            .as_ref()
            .is_err_and(SupervisorError::discredits_zygote)
        {
            self.inner.warm.discard(&zygote);
        }
        Ok(outcome?)
    }

    /// What is done to each worker, as plain data; [`explain`](crate::plan::explain) makes a text of it.
    pub fn plan(&self) -> &Plan {
        &self.inner.plan
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.filler.close(&self.inner);
    }
}

impl Inner {
    fn zygote(&self) -> Result<Arc<Zygote>, SupervisorError> {
        match self.plan.interpreter.start {
            Start::Forked => self.warm.get(&self.plan),
            Start::Cold => self.warm.fresh(&self.plan),
        }
    }

    fn place<'a>(&'a self, zygote: &'a Zygote) -> Place<'a> {
        Place {
            zygote,
            jail: &self.plan.jail,
            cgroups: self.cgroups.as_ref(),
            sessions: self.sessions.as_ref(),
            limits: self.limits(),
            work_size: self.plan.work_size(),
            policy: &self.policy,
            first_core: self.runs.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn limits(&self) -> RunLimits {
        let supervision = &self.plan.supervision;
        RunLimits {
            wall: supervision.wall,
            cpu: supervision.cpu,
            memory: supervision.memory,
            pids: supervision.pids,
            output: supervision.output,
            millicores: supervision.millicores,
            files: self.plan.session_files.quota(),
        }
    }
}

/// The standard input of a guest that has none.
fn nothing_to_read() -> Result<OwnedFd, SupervisorError> {
    let null = File::open("/dev/null").when("open stdin")?;
    Ok(null.into())
}
