//! A worker that stands in its jail and was looked at from outside, with what was made for it.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::cgroup::{CgroupRoot, Counts, WorkerCgroup};
use super::error::{SupervisorError, While};
use super::run::{Files, Place, Watch};
use super::session::{SessionDirectory, SessionRoot};
use super::spawn::Worker;
use super::verify::verify;
use crate::jail::control::CpuSpan;
use crate::outcome::Enforced;
use crate::protocol::Request;
use crate::protocol::message::Serves;

/// A worker in which no guest code has run yet. Dropping it ends it, and removes what was made for it.
#[derive(Debug)]
pub(crate) struct Standing {
    // Dropped first: the cgroup and the directory can be removed once nothing is left in them.
    /// The worker.
    pub worker: Worker,
    /// Where the plan has that layer.
    pub cgroup: Option<WorkerCgroup>,
    /// Where the plan has no mounts.
    pub session: Option<SessionDirectory>,
    /// What holds it, as the kernel says.
    pub enforced: Enforced,
    /// When its jail stood.
    pub jailed: Instant,
}

impl Standing {
    /// Has a worker forked, with this standard input, and compares it with the plan.
    ///
    /// # Errors
    ///
    /// When it could not be made, or a layer does not hold ([`SupervisorError::NotEnforced`]): nothing
    /// of it is left then.
    pub fn new(place: &Place, stdin: OwnedFd, cpu: CpuSpan) -> Result<Self, SupervisorError> {
        let cgroup = place.cgroups.map(CgroupRoot::worker).transpose()?;
        let session = place.sessions.map(SessionRoot::directory).transpose()?;
        let worker = Worker::spawn(
            place.zygote,
            stdin,
            cgroup.as_ref(),
            session.as_ref(),
            place.first_core,
            cpu,
        )?;
        let jailed = Instant::now();
        let enforced = verify(
            &worker.proc,
            place.jail,
            place.zygote.others(),
            cgroup.as_ref(),
            session.as_ref(),
            cpu,
        )?;
        Ok(Self {
            worker,
            cgroup,
            session,
            enforced,
            jailed,
        })
    }

    /// Has it do, while nobody waits for it, what the first cell would otherwise have to wait for.
    ///
    /// # Errors
    ///
    /// When it has ended meanwhile.
    pub fn rehearse(&self, serves: Serves) -> Result<(), SupervisorError> {
        let mut message = Vec::new();
        Request::Rehearse { serves }.encode_into(&[], &mut message)?;
        // The first bytes that the socket gets: there is room for them.
        let sent = nix::unistd::write(&self.worker.data, &message);
        sent.map(drop).when("write to the worker")
    }

    /// Starts to watch it.
    pub fn watch<'a>(&'a self, place: &Place<'a>) -> Watch<'a> {
        let (cgroup, session) = (self.cgroup.as_ref(), self.session.as_ref());
        let proc = place.zygote.proc();
        Watch::new(&self.worker, proc, cgroup, session, place.limits)
    }

    /// Whether its cgroup is gone, by what was read from it just now: the kernel always tells the
    /// processor time of one that is there, where it counts it at all.
    pub fn lost_cgroup(&self, counts: &Counts) -> bool {
        let counts_cpu = self.cgroup.as_ref().is_some_and(WorkerCgroup::counts_cpu);
        counts_cpu && counts.cpu_us.is_none()
    }

    /// Measures its files.
    pub fn files(&self, place: &Place) -> Files {
        match (&self.session, place.limits.files) {
            (Some(session), Some(quota)) => Files::of_session(session, quota),
            _ => Files::measure(&self.worker.directories),
        }
    }
}
