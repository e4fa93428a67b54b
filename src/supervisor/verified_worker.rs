//! A worker that was verified from outside, together with the resources made for it.

use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use super::cgroup::{CgroupRoot, WorkerCgroup};
use super::egress::WorkerNetwork;
use super::error::{SupervisorError, While};
use super::programs::StarterSocket;
use super::run::RunContext;
use super::session_dir::{SessionDirectory, SessionRoot};
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
    // Dropped first: only when no process of the worker is left can the cgroup and the directory be removed and the uid
    // be reused.
    /// The worker.
    pub worker: Worker,
    /// The worker's cgroup, if the plan has that layer.
    pub cgroup: Option<WorkerCgroup>,
    /// The worker's directory, if the plan has no mounts.
    pub session: Option<SessionDirectory>,
    /// The uid reserved for the worker, if the plan assigns one.
    _uid: Option<WorkerUid>,
    /// The sockets of the worker's network namespace, if it has a loopback interface.
    pub sockets: Option<Sockets>,
    /// The worker's connection to the egress process, which ends when dropped. A loop takes it, and may put it back for
    /// the next loop.
    pub network: Mutex<Option<WorkerNetwork>>,
    /// The socket over which the worker receives the links of its starters, once a session has one. It passes from loop
    /// to loop too.
    pub starter_socket: Mutex<Option<StarterSocket>>,
    /// The layers that hold, as the kernel reports them.
    pub enforced: Enforced,
}

impl VerifiedWorker {
    /// Spawns a worker with this standard input, and verifies it against the plan.
    ///
    /// # Errors
    ///
    /// When the worker could not be made, or a layer does not hold ([`SupervisorError::NotEnforced`]). No part of the
    /// worker is left then.
    pub fn new(
        context: &RunContext,
        stdin: OwnedFd,
        cpu: CpuBudgetScope,
    ) -> Result<Self, SupervisorError> {
        let cgroup = context.cgroups.map(CgroupRoot::worker).transpose()?;
        let session = context.sessions.map(SessionRoot::directory).transpose()?;
        let uid = match context.jail.worker_uids() {
            Some(range) => Some(WorkerUid::take(range).ok_or_else(|| {
                let none = "no uid is left for another worker: end some sessions, or run some in another process";
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
                Some(sockets.when("open the worker's socket statistics")?)
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
            starter_socket: Mutex::default(),
            enforced,
        })
    }

    /// Makes the worker do work in advance for which the first cell would otherwise wait.
    ///
    /// # Errors
    ///
    /// When the worker has ended meanwhile.
    pub fn rehearse(&self, serves: WorkerMode) -> Result<(), SupervisorError> {
        let mut message = Vec::new();
        Request::Rehearse { serves }.encode_into(&[], &mut message)?;
        // These are the first bytes in the socket, so there is room for them.
        let sent = send_some(self.worker.ends.data.as_fd(), &message, &[]);
        sent.map(drop).when("write to the worker")
    }
}
