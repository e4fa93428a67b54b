//! One worker's network: its sockets, its limits, and what its connections did.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::budget::{Bytes, Pace};
use super::head::Guest;
use super::http::Place;
use super::ledger::Ledger;
use super::questions::Questions;
use super::socket::{Packets, nonblocking};
use super::{Shared, connection, locked, names_server, proxy};
use crate::control::{FromNetwork, Service, ServiceSocket, ToNetwork};
use crate::host::Host;
use crate::names::{Names, SERVICE, is_made_up};
use crate::refusal::{Refusal, Verdict};
use crate::rules::Access;

/// Requests of HTTP at once, and as many again each second. A guest that sends more waits, and leaves the process to
/// the others.
const REQUESTS: u32 = 1000;

/// Bytes each second that a guest sends over HTTP/2 beside bodies, and four times as many at once.
const OVERHEAD: u32 = 1 << 20;

/// New connections a second, once a guest has made as many as it may have at a time. More would take the ports that
/// the host has for one address.
const CONNECTIONS_EACH_SECOND: u32 = 50;

/// Questions of names at once, and as many again each second.
const QUESTIONS: u32 = 500;

/// How long to wait after an error of accept(2): most are a lack of descriptors, which only time ends. A guest that has
/// too many connections waits as long for each refusal.
const PAUSE: Duration = Duration::from_millis(20);

/// What the connections of one worker share.
#[derive(Debug)]
pub struct Network {
    pub shared: Arc<Shared>,
    pub ledger: Arc<Ledger>,
    pub bytes: Bytes,
    pub names: Mutex<Names>,
    link: Packets,
    questions: Questions,
    connections: Arc<Semaphore>,
    /// Of the guest's connections.
    pace: Pace,
    /// Of connections to hosts: the requests of one guest's connection to a proxy may each need one.
    pub dials: Pace,
    pub requests: Pace,
    /// Of the bytes that a guest sends over HTTP/2 beside bodies.
    pub overhead: Pace,
}

impl Network {
    /// Serves the worker of these descriptors, its link and then its sockets, until the supervisor closes the link.
    /// Everything of it ends with the result. `None` if they are other ones, or cannot be used; closing the link reports
    /// that.
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
        let pace = || Pace::new(start.connections.max(1), CONNECTIONS_EACH_SECOND);
        let network = Arc::new(Self {
            shared: Arc::clone(shared),
            ledger: Arc::default(),
            bytes: Bytes::new(start.bytes),
            names: Mutex::new(Names::of(&start.rules)),
            link,
            questions: Questions::default(),
            connections: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
            pace: pace(),
            dials: pace(),
            requests: Pace::new(REQUESTS, REQUESTS),
            overhead: Pace::new(4 * OVERHEAD, OVERHEAD),
        });
        let mut tasks = JoinSet::new();
        for (socket, descriptor) in sockets.iter().zip(descriptors) {
            let (network, descriptor) = (Arc::clone(&network), nonblocking(descriptor).ok()?);
            match socket.serves {
                Service::Names => {
                    let socket = UdpSocket::from_std(descriptor.into()).ok()?;
                    let pace = Pace::new(QUESTIONS, QUESTIONS);
                    tasks.spawn(names_server::serve(network, socket, pace));
                }
                Service::Connections => {
                    let listener = TcpListener::from_std(descriptor.into()).ok()?;
                    tasks.spawn(accept(network, listener));
                }
            }
        }
        Some(async move {
            // An error means that there is no supervisor to serve for.
            _ = attend(&network).await;
            drop(tasks);
        })
    }

    /// The host behind an address of the guest's loopback interface. None if it is the guest itself.
    fn host_at(&self, address: Ipv4Addr) -> Option<Host> {
        let unknown = is_made_up(address).then_some(Host::Address(IpAddr::V4(address)));
        locked(&self.names).host_at(address).or(unknown)
    }

    /// Room for one more connection to a host than connections of the guest, if there is any.
    pub fn room(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.connections).try_acquire_owned()
    }

    /// Whether the caller allows a connection that the rules allow, if the policy says that it is asked.
    pub async fn ask(&self, place: &Place, addresses: Vec<IpAddr>) -> Result<(), Refusal> {
        if !self.shared.start.asks {
            return Ok(());
        }
        self.questions.ask(&self.link, place, addresses).await
    }

    /// What is allowed of a connection. One of which nothing is allowed is noted.
    pub fn access(&self, place: &Place) -> Result<Access<'_>, Verdict> {
        let access = self.shared.start.rules.access(&place.host, place.port);
        access.map_err(|refusal| self.note(place, None, Verdict::Refused(refusal)))
    }

    /// Notes that a connection, or a request, does not take place. Returns why.
    pub fn note(&self, place: &Place, request: Option<&str>, verdict: Verdict) -> Verdict {
        let host = place.host.to_string();
        self.ledger.note(&host, Some(place.port), request, verdict);
        verdict
    }
}

/// Answers each request for a report, and passes decisions on. Returns at the end of the link.
async fn attend(network: &Network) -> Result<(), Errno> {
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

/// Accepts connections and serves each, as many at a time as the worker may have.
async fn accept(network: Arc<Network>, listener: TcpListener) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        network.pace.turn().await;
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let permit = network.room();
        let (Ok(permit), Ok(SocketAddr::V4(local))) = (permit, stream.local_addr()) else {
            let verdict = Verdict::Refused(Refusal::Connections);
            network.ledger.note("", None, None, verdict);
            drop(stream);
            sleep(PAUSE).await;
            continue;
        };
        let Some(host) = network.host_at(*local.ip()) else {
            // Nothing of the guest listens on this port.
            _ = stream.set_zero_linger();
            continue;
        };
        // An answer that waits for more bytes would wait for a guest that waits for the answer.
        _ = stream.set_nodelay(true);
        let network = Arc::clone(&network);
        tasks.spawn(async move {
            if *local.ip() == SERVICE {
                proxy::serve(&network, stream).await;
            } else {
                let port = local.port();
                let place = Place { host, port };
                connection::serve(&network, Guest::new(stream), place, None).await;
            }
            drop(permit);
        });
    }
}
