//! The egress process of a sandbox: started with the sandbox, started again if it dies, and given each worker's
//! sockets.
//!
//! The process serves one sandbox, so that no credential of one policy is in a process that serves guests of another.

mod confinement;
mod process;
mod resolution;
mod restarts;
mod secrets;
mod worker_network;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use sandfork_egress::control::{Authority, Resolution, ServiceSocket, Start, ToEgress};

pub(crate) use self::worker_network::{Spent, WorkerNetwork};

use self::process::{Process, connection};
use self::resolution::HostFiles;
use self::restarts::Restarts;
use super::clock;
use super::error::{SupervisorError, While};
use crate::error::ErrorKind;
use crate::host::CallerEnvironment;
use crate::plan::EgressPlan;
use crate::waiters::lock;

/// The egress process of a sandbox.
#[derive(Debug)]
pub struct Egress {
    start: Start,
    sockets: Vec<ServiceSocket>,
    /// The files that say how the host resolves names, unless the policy names a resolver.
    files: Option<HostFiles>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    process: Process,
    resolution: Resolution,
    /// The authority of the first process, which all later ones continue.
    authority: Option<Authority>,
    restarts: Restarts,
}

/// The error of a process that could not get ready: what failed, and what to do about it, if the host does not allow
/// too little.
fn not_ready(what: &str, remedy: Option<&str>) -> SupervisorError {
    let remedy = remedy.unwrap_or("run `sandfork doctor` to see what this host allows");
    SupervisorError::new(
        ErrorKind::Host,
        format!("the process that connects guests to hosts could not {what}; {remedy}"),
    )
}

impl Egress {
    /// Starts the process. It gets ready while the caller does something else.
    ///
    /// # Errors
    /// If a secret cannot be read, or the process cannot be started.
    pub fn launch(
        plan: &EgressPlan,
        environment: &CallerEnvironment,
    ) -> Result<Self, SupervisorError> {
        let files = plan.resolver.is_none().then(HostFiles::default);
        let resolution = match (&plan.resolver, &files) {
            (Some(resolver), _) => Resolution {
                servers: vec![resolver.0],
                hosts: Vec::new(),
            },
            (None, files) => files.as_ref().map(HostFiles::read).unwrap_or_default(),
        };
        let start = Start {
            rules: secrets::filled_rules(&plan.allow, environment)?,
            connections: u32::try_from(plan.connections).unwrap_or(u32::MAX),
            bytes: plan.bytes,
            proxy: secrets::filled_proxy(plan.proxy.as_ref(), environment)?,
            asks: plan.asks,
            resolution: resolution.clone(),
            trust: plan.trust.clone(),
            authority: None,
            identity: plan.identity,
            filter: plan.filter.clone(),
            landlock_abi: plan.landlock_abi,
        };
        let process = Process::start(&start)?;
        Ok(Self {
            start,
            sockets: plan.sockets.clone(),
            files,
            state: Mutex::new(State {
                process,
                resolution,
                authority: None,
                restarts: Restarts::default(),
            }),
        })
    }

    /// The certificate of the authority that guests of this sandbox trust (PEM). Waits until the process is ready.
    ///
    /// # Errors
    /// If it does not get ready.
    pub fn certificate(&self) -> Result<String, SupervisorError> {
        let mut state = lock(&self.state);
        if state.authority.is_none() {
            state.authority = Some(state.process.await_ready()?);
        }
        let authority = state.authority.as_ref();
        Ok(authority.map_or_else(String::new, |it| it.certificate.clone()))
    }

    /// The most sockets in a worker's network that are this process's.
    pub(crate) fn most_sockets(&self) -> u64 {
        self.sockets.len() as u64 + u64::from(self.start.connections)
    }

    /// The number of the process.
    #[cfg(feature = "internals")]
    pub(crate) fn pid(&self) -> u32 {
        lock(&self.state).process.child.pid()
    }

    /// Gives the process a worker's sockets to serve, and returns the link. Starts the process again if it has ended.
    fn serve(&self, sockets: &[OwnedFd]) -> Result<OwnedFd, SupervisorError> {
        let mut state = lock(&self.state);
        if !state.process.child.is_alive() {
            self.restart(&mut state)?;
        }
        match self.send(&mut state, sockets) {
            Err(SupervisorError::EgressGone) => {
                self.restart(&mut state)?;
                self.send(&mut state, sockets)
            }
            other => other,
        }
    }

    fn restart(&self, state: &mut State) -> Result<(), SupervisorError> {
        if !state.restarts.take_one(clock::now()) {
            return Err(state.process.ended());
        }
        tracing::warn!(reason = %state.process.ended(), "the egress process is started again");
        let start = Start {
            authority: state.authority.clone(),
            resolution: state.resolution.clone(),
            ..self.start.clone()
        };
        let mut process = Process::start(&start)?;
        // It takes milliseconds. A process that is not confined never takes the place of the one before, whose sockets
        // it would get.
        process.await_ready()?;
        state.process = process;
        Ok(())
    }

    fn send(&self, state: &mut State, sockets: &[OwnedFd]) -> Result<OwnedFd, SupervisorError> {
        if let Some(files) = &self.files
            && let Some(resolution) = files.read_if_changed()
        {
            // First, for the next process if this one has died.
            state.resolution = resolution.clone();
            let sent = state.process.send(&ToEgress::Resolve(resolution), &[]);
            sent.inspect_err(|_| files.forget())?;
        }
        let (link, theirs) = connection().when("make the link of a network")?;
        let sockets = sockets.iter().map(AsFd::as_fd);
        let descriptors: Vec<BorrowedFd> = std::iter::once(theirs.as_fd()).chain(sockets).collect();
        let serve = ToEgress::Serve {
            sockets: self.sockets.clone(),
        };
        state.process.send(&serve, &descriptors)?;
        Ok(link)
    }
}
