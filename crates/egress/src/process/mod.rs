//! The event loop of the egress process: a single thread that serves all workers of one sandbox.

mod authority;
mod budget;
mod confine;
mod connection;
mod dial;
mod head;
mod http;
mod ledger;
mod metered;
mod names_server;
mod network;
mod proxy;
mod questions;
mod relay;
mod resolve;
mod socket;
mod tls;

use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use sandfork_jail::control::{MAX_MESSAGE, recv_message, send_message};
use sandfork_jail::sys::descriptors::{close_inherited, relocate_stdio};
use tokio::task::JoinSet;

use self::network::Network;
use self::socket::Packets;
use self::tls::Tls;
use crate::control::{FromEgress, NotReady, Resolution, Start, ToEgress};

/// The timeout of each step: the first bytes of a connection, a handshake, a request head, or a resolver and a proxy
/// together.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);

/// The state that all connections of the process share.
#[derive(Debug)]
struct Shared {
    /// The start message, without the fields that have been consumed.
    start: Start,
    resolution: Mutex<Resolution>,
    tls: Tls,
}

/// Locks a mutex and ignores poisoning: a task that panics leaves no partial update.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a supervisor, whose control socket is standard input, until the supervisor closes it.
///
/// # Errors
/// Returns the step that failed, as part of a sentence. The supervisor has received it if the configuration or the
/// confinement failed, and otherwise sees the control socket close.
pub fn run() -> Result<(), String> {
    // Sets the name that `ps` shows, which is otherwise the number of a descriptor.
    _ = nix::sys::prctl::set_name(c"sandfork-egress");
    let control = relocate_stdio(0).map_err(|errno| format!("take the socket: {errno}"))?;
    // A program that embeds the supervisor may have left descriptors open for its own children.
    close_inherited(control.as_fd()).map_err(|errno| format!("close descriptors: {errno}"))?;
    let prepared = prepare(&control);
    let (shared, ready) = match prepared {
        Ok(prepared) => prepared,
        Err(failed) => {
            let what = failed.what.clone();
            // Fails if the supervisor is gone.
            _ = send_message(control.as_fd(), &FromEgress::Failed(failed), &[]);
            return Err(what);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("start the event loop: {error}"))?;
    send_message(control.as_fd(), &ready, &[]).map_err(|errno| format!("report: {errno}"))?;
    let served = runtime.block_on(serve(control, &shared));
    served.map_err(|error| format!("read from the supervisor: {error}"))
}

/// Reads the configuration and confines the process. The descriptors of the event loop are created afterwards, under
/// the seccomp filter.
fn prepare(control: &OwnedFd) -> Result<(Arc<Shared>, FromEgress), NotReady> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let received = recv_message(control.as_fd(), &mut buffer);
    let start = match received.map_err(|errno| format!("read the rules: {errno}"))? {
        Some((ToEgress::Start(start), _)) => Ok(*start),
        Some(_) => Err("another message came first"),
        None => Err("the supervisor is gone"),
    };
    let mut start = start.map_err(|why| format!("read the rules: {why}"))?;
    // The trusted certificates may be readable only by the supervisor's user, so read them before changing the user.
    let (tls, authority) = Tls::new(start.trust.as_deref(), start.authority.take())?;
    confine::confine(start.identity, start.landlock_abi, &start.filter)?;
    let shared = Shared {
        resolution: Mutex::new(mem::take(&mut start.resolution)),
        start,
        tls,
    };
    Ok((Arc::new(shared), FromEgress::Ready(authority)))
}

/// Serves each worker that the supervisor passes, until the control socket is closed.
async fn serve(control: OwnedFd, shared: &Arc<Shared>) -> std::io::Result<()> {
    let control = Packets::new(control)?;
    let mut buffer = vec![0; MAX_MESSAGE];
    let mut networks = JoinSet::new();
    loop {
        let received = tokio::select! {
            received = control.receive(&mut buffer) => received,
            Some(_) = networks.join_next() => continue,
        };
        match received {
            // The descriptors have been closed, so the supervisor sees a closed link.
            Err(Errno::EMSGSIZE | Errno::EMFILE | Errno::ENFILE) => {}
            Err(errno) => return Err(errno.into()),
            Ok(None) => return Ok(()),
            Ok(Some((ToEgress::Serve { sockets }, fds))) => {
                if let Some(served) = Network::serve(shared, &sockets, fds) {
                    networks.spawn(served);
                }
            }
            Ok(Some((ToEgress::Resolve(resolution), _))) => {
                *locked(&shared.resolution) = resolution;
            }
            Ok(Some((ToEgress::Start(_), _))) => return Err(Errno::EPROTO.into()),
        }
    }
}
