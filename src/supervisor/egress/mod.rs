//! Runs the egress process of a sandbox: starts it with the sandbox, restarts it if it dies, and passes it each
//! worker's sockets.
//!
//! The process serves one sandbox, so that no process that holds the credentials of one policy serves guests of
//! another.

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
    /// The files that configure the host's name resolution. `None` if the policy names a resolver.
    files: Option<HostFiles>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    process: Process,
    resolution: Resolution,
    /// The certificate authority of the first process, which later processes continue to use.
    authority: Option<Authority>,
    restarts: Restarts,
}

/// Builds the error for a process that did not become ready: what failed, and the remedy. Without a remedy it refers to
/// `sandfork doctor`.
fn not_ready(what: &str, remedy: Option<&str>) -> SupervisorError {
    let remedy = remedy.unwrap_or("run `sandfork doctor` to see what this host allows");
    SupervisorError::new(
        ErrorKind::Host,
        format!("the process that connects guests to hosts could not {what}; {remedy}"),
    )
}

impl Egress {
    /// Starts the process, without waiting until it is ready.
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

    /// Returns the PEM certificate of the authority that guests of this sandbox trust. Waits until the process is
    /// ready.
    ///
    /// # Errors
    /// If the process does not become ready.
    pub fn certificate(&self) -> Result<String, SupervisorError> {
        let mut state = lock(&self.state);
        if state.authority.is_none() {
            state.authority = Some(state.process.await_ready()?);
        }
        let authority = state.authority.as_ref();
        Ok(authority.map_or_else(String::new, |it| it.certificate.clone()))
    }

    /// The maximum number of sockets that the process can have in a worker's network namespace.
    pub(crate) fn most_sockets(&self) -> u64 {
        self.sockets.len() as u64 + u64::from(self.start.connections)
    }

    /// The pid of the process.
    #[cfg(feature = "internals")]
    pub(crate) fn pid(&self) -> u32 {
        lock(&self.state).process.child.pid()
    }

    /// Passes a worker's sockets to the process, and returns the link. Restarts the process if it has exited.
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
        tracing::warn!(reason = %state.process.ended(), "restarting the egress process");
        let start = Start {
            authority: state.authority.clone(),
            resolution: state.resolution.clone(),
            ..self.start.clone()
        };
        let mut process = Process::start(&start)?;
        // This takes milliseconds. An unconfined process must not replace the previous one, because it would receive
        // the sockets.
        process.await_ready()?;
        state.process = process;
        Ok(())
    }

    fn send(&self, state: &mut State, sockets: &[OwnedFd]) -> Result<OwnedFd, SupervisorError> {
        if let Some(files) = &self.files
            && let Some(resolution) = files.read_if_changed()
        {
            // Stored before it is sent, for the next process in case this one has exited.
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
