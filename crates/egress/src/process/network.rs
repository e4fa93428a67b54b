//! The network of one worker: its sockets, limits and ledger.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::budget::{Bytes, RateLimit};
use super::head::Guest;
use super::http::Endpoint;
use super::ledger::Ledger;
use super::questions::Questions;
use super::socket::{Packets, nonblocking};
use super::{Shared, connection, locked, names_server, proxy};
use crate::control::{FromNetwork, Service, ServiceSocket, ToNetwork};
use crate::host::Host;
use crate::names::{Names, SERVICE, is_made_up};
use crate::refusal::{Refusal, Verdict};
use crate::rules::Access;

/// The rate limit of HTTP requests, as burst and per second. A guest that exceeds it waits, which leaves the process to
/// other guests.
const REQUESTS_PER_SECOND: u32 = 1000;

/// The rate limit of HTTP/2 bytes outside request bodies, per second. The burst is four times as large.
const OVERHEAD_PER_SECOND: u32 = 1 << 20;

/// The rate limit of new connections per second, after a burst of the maximum number of concurrent connections. A
/// higher rate would exhaust the host's ports for one destination address.
const CONNECTIONS_PER_SECOND: u32 = 50;

/// The rate limit of DNS queries, as burst and per second.
const QUERIES_PER_SECOND: u32 = 500;

/// The pause after an error of accept(2), which is mostly a lack of descriptors that only time resolves. A guest with
/// too many connections also waits this long for each refusal.
const PAUSE: Duration = Duration::from_millis(20);

/// The state that the connections of one worker share.
#[derive(Debug)]
pub struct Network {
    pub shared: Arc<Shared>,
    pub ledger: Arc<Ledger>,
    pub bytes: Bytes,
    pub names: Mutex<Names>,
    link: Packets,
    questions: Questions,
    connections: Arc<Semaphore>,
    /// The rate limit of the guest's connections.
    accepts: RateLimit,
    /// The rate limit of connections to hosts: each request on a proxy connection may need another one.
    pub dials: RateLimit,
    pub requests: RateLimit,
    /// The rate limit of HTTP/2 bytes outside request bodies.
    pub overhead: RateLimit,
}

impl Network {
    /// Serves a worker until the supervisor closes its link. `descriptors` holds the link and then the sockets.
    /// Dropping the returned future ends all connections of the worker. Returns `None` if the descriptors do not match
    /// or cannot be used, which closes the link and thereby notifies the supervisor.
    pub fn serve(
        shared: &Arc<Shared>,
        sockets: &[ServiceSocket],
        descriptors: Vec<OwnedFd>,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let mut descriptors = descriptors.into_iter();
        let link = Packets::new(descriptors.next()?).ok()?;
        if descriptors.len() != sockets.len() {
            return None;
        }
        let start = &shared.start;
        let connections = usize::try_from(start.connections).unwrap_or(usize::MAX);
        let connection_rate = || RateLimit::new(start.connections.max(1), CONNECTIONS_PER_SECOND);
        let network = Arc::new(Self {
            shared: Arc::clone(shared),
            ledger: Arc::default(),
            bytes: Bytes::new(start.bytes),
            names: Mutex::new(Names::of(&start.rules)),
            link,
            questions: Questions::default(),
            connections: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
            accepts: connection_rate(),
            dials: connection_rate(),
            requests: RateLimit::new(REQUESTS_PER_SECOND, REQUESTS_PER_SECOND),
            overhead: RateLimit::new(4 * OVERHEAD_PER_SECOND, OVERHEAD_PER_SECOND),
        });
        let mut tasks = JoinSet::new();
        for (socket, descriptor) in sockets.iter().zip(descriptors) {
            let (network, descriptor) = (Arc::clone(&network), nonblocking(descriptor).ok()?);
            match socket.serves {
                Service::Names => {
                    let socket = UdpSocket::from_std(descriptor.into()).ok()?;
                    let limit = RateLimit::new(QUERIES_PER_SECOND, QUERIES_PER_SECOND);
                    tasks.spawn(names_server::serve(network, socket, limit));
                }
                Service::Connections => {
                    let listener = TcpListener::from_std(descriptor.into()).ok()?;
                    tasks.spawn(accept(network, listener));
                }
            }
        }
        Some(async move {
            // An error means that the supervisor is gone.
            _ = serve_link(&network).await;
            drop(tasks);
        })
    }

    /// Returns the host behind a loopback address of the guest, or `None` if the address belongs to the guest itself.
    fn host_at(&self, address: Ipv4Addr) -> Option<Host> {
        let unknown = is_made_up(address).then_some(Host::Address(IpAddr::V4(address)));
        locked(&self.names).host_at(address).or(unknown)
    }

    /// Acquires a permit for a connection beyond the guest's own, if the limit allows one.
    pub fn connection_permit(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.connections).try_acquire_owned()
    }

    /// Asks the caller to approve a connection that the rules allow, if the policy requires it.
    pub async fn ask(&self, endpoint: &Endpoint, addresses: Vec<IpAddr>) -> Result<(), Refusal> {
        if !self.shared.start.asks {
            return Ok(());
        }
        self.questions.ask(&self.link, endpoint, addresses).await
    }

    /// Returns what the rules allow on a connection. Records a refusal if they allow nothing.
    pub fn access(&self, endpoint: &Endpoint) -> Result<Access<'_>, Verdict> {
        let access = self
            .shared
            .start
            .rules
            .access(&endpoint.host, endpoint.port);
        access.map_err(|refusal| self.note(endpoint, None, Verdict::Refused(refusal)))
    }

    /// Records a refusal or failure, and returns its verdict.
    pub fn note(&self, endpoint: &Endpoint, request: Option<&str>, verdict: Verdict) -> Verdict {
        let host = endpoint.host.to_string();
        self.ledger
            .note(&host, Some(endpoint.port), request, verdict);
        verdict
    }
}

/// Handles the supervisor's messages on the link, until the supervisor closes it.
async fn serve_link(network: &Network) -> Result<(), Errno> {
    let mut buffer = [0; 128];
    while let Some((message, _)) = network.link.receive(&mut buffer).await? {
        match message {
            ToNetwork::Report => {
                let report = FromNetwork::Report(network.ledger.report());
                network.link.send(&report)?;
            }
            ToNetwork::Decided { question, allowed } => network.questions.decide(question, allowed),
            ToNetwork::Spend(bytes) => network
                .bytes
                .take(usize::try_from(bytes).unwrap_or(usize::MAX)),
        }
    }
    Ok(())
}

/// Accepts connections and serves each, up to the worker's limit of concurrent connections.
async fn accept(network: Arc<Network>, listener: TcpListener) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        network.accepts.acquire().await;
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let permit = network.connection_permit();
        let (Ok(permit), Ok(SocketAddr::V4(local))) = (permit, stream.local_addr()) else {
            let verdict = Verdict::Refused(Refusal::Connections);
            network.ledger.note("", None, None, verdict);
            drop(stream);
            sleep(PAUSE).await;
            continue;
        };
        let Some(host) = network.host_at(*local.ip()) else {
            // The guest connected to its own address, where it does not listen: reset the connection, as the kernel
            // would.
            _ = stream.set_zero_linger();
            continue;
        };
        // Nagle's algorithm would delay a reply for which the guest is waiting.
        _ = stream.set_nodelay(true);
        let network = Arc::clone(&network);
        tasks.spawn(async move {
            if *local.ip() == SERVICE {
                proxy::serve(&network, stream).await;
            } else {
                let port = local.port();
                let endpoint = Endpoint { host, port };
                connection::serve(&network, Guest::new(stream), endpoint, None).await;
            }
            drop(permit);
        });
    }
}
