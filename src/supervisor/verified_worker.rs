//! A worker that was checked from outside in its jail, with its resources.

use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use super::cgroup::{CgroupRoot, WorkerCgroup};
use super::egress::WorkerNetwork;
use super::error::{SupervisorError, While};
use super::programs::Summons;
use super::run::RunContext;
use super::session::{SessionDirectory, SessionRoot};
use super::sockets::Sockets;
use super::spawn::{ForWorker, Worker};
use super::verify::verify;
use super::worker_uid::WorkerUid;
use crate::error::ErrorKind;
use crate::outcome::Enforced;
use crate::protocol::Request;
use crate::protocol::message::WorkerMode;
use sandfork_jail::control::CpuBudgetScope;
use sandfork_jail::program::{HostIds, Network};
use sandfork_jail::sys::descriptors::send_some;

/// A worker in which no guest code has run yet. Dropping it ends it and releases its resources.
#[derive(Debug)]
pub(crate) struct VerifiedWorker {
    // Dropped first: the cgroup and the directory can be removed, and the uid be another's, once nothing
    // is left of it.
    /// The worker.
    pub worker: Worker,
    /// The worker's cgroup, if the plan has that layer.
    pub cgroup: Option<WorkerCgroup>,
    /// The worker's directory, if the plan has no mounts.
    pub session: Option<SessionDirectory>,
    /// The worker's own uid, if the plan gives it one.
    _uid: Option<WorkerUid>,
    /// The sockets of the worker's network namespace, if it has a loopback interface.
    pub sockets: Option<Sockets>,
    /// Its way to the hosts of the policy, which ends when that is dropped. A loop takes it, and may leave it to the next.
    pub network: Mutex<Option<WorkerNetwork>>,
    /// The way to start programs in it, once a session has one, which goes from loop to loop too.
    pub summons: Mutex<Option<Summons>>,
    /// The layers that hold, as the kernel reports them.
    pub enforced: Enforced,
}

impl VerifiedWorker {
    /// Requests a worker with this standard input, and compares it with the plan.
    ///
    /// # Errors
    ///
    /// When it could not be made, or a layer does not hold ([`SupervisorError::NotEnforced`]).
    /// Nothing of it is left then.
    pub fn new(
        context: &RunContext,
        stdin: OwnedFd,
        cpu: CpuBudgetScope,
    ) -> Result<Self, SupervisorError> {
        let cgroup = context.cgroups.map(CgroupRoot::worker).transpose()?;
        let session = context.sessions.map(SessionRoot::directory).transpose()?;
        let uid = match context.jail.worker_uids() {
            Some(range) => Some(WorkerUid::take(range).ok_or_else(|| {
                let none = "no uid is left for another worker: end sessions, or have another process run some";
                SupervisorError::new(ErrorKind::System, none)
            })?),
            None => None,
        };
        let number = uid.as_ref().map(|uid| uid.0);
        let mut worker = Worker::spawn(
            context.zygote,
            stdin,
            cgroup.as_ref(),
            session.as_ref(),
            ForWorker {
                first_core: context.first_core,
                cpu,
                uid: number,
                ids: context.jail.identity.drop_to.map(|ids| HostIds {
                    uid: number.unwrap_or(ids.uid),
                    ..ids
                }),
                directories: context.jail.worker.writable_directories().count(),
                sockets: context.jail.worker.sockets.len(),
            },
        )?;
        let enforced = verify(
            &worker,
            context.jail,
            &context.zygote.others,
            cgroup.as_ref(),
            session.as_ref(),
            cpu,
        )?;
        let sockets = match context.jail.network() {
            Network::None => None,
            Network::Loopback => {
                let served = context.egress.map_or(0, |egress| egress.most_sockets());
                let sockets = Sockets::of(&worker.proc, served);
                Some(sockets.when("open the worker's count of sockets")?)
            }
        };
        let network = match context.egress {
            None => None,
            Some(egress) => Some(WorkerNetwork::new(egress, mem::take(&mut worker.sockets))?),
        };
        Ok(Self {
            worker,
            cgroup,
            session,
            _uid: uid,
            sockets,
            network: Mutex::new(network),
            summons: Mutex::default(),
            enforced,
        })
    }

    /// Makes the worker do, ahead of time, work that the first cell would otherwise wait for.
    ///
    /// # Errors
    ///
    /// When it has ended meanwhile.
    pub fn rehearse(&self, serves: WorkerMode) -> Result<(), SupervisorError> {
        let mut message = Vec::new();
        Request::Rehearse { serves }.encode_into(&[], &mut message)?;
        // These are the first bytes for the socket, so that there is room for them.
        let sent = send_some(self.worker.ends.data.as_fd(), &message, &[]);
        sent.map(drop).when("write to the worker")
    }
}
