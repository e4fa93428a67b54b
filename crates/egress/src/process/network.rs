//! One worker's network: its sockets, its limits, and what its connections did.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::budget::{Bytes, Pace};
use super::ledger::Ledger;
use super::questions::Questions;
use super::socket::{Packets, nonblocking};
use super::{Shared, connection, names_server, proxy};
use crate::control::{FromNetwork, Service, ServiceSocket, ToNetwork};
use crate::host::Host;
use crate::names::{Names, SERVICE, is_made_up};
use crate::refusal::{Refusal, Verdict};

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

/// A network with its sockets, ready to be served.
#[derive(Debug)]
pub struct Serving {
    network: Arc<Network>,
    names: Vec<tokio::net::UdpSocket>,
    listeners: Vec<tokio::net::TcpListener>,
}

impl Network {
    /// The network of these descriptors: the link, then the sockets. `None` if they are other ones, or cannot be
    /// used; closing the link reports that.
    #[expect(
        clippy::new_ret_no_self,
        reason = "the value without sockets serves nothing"
    )]
    pub fn new(
        shared: &Arc<Shared>,
        sockets: &[ServiceSocket],
        descriptors: Vec<OwnedFd>,
    ) -> Option<Serving> {
        let mut descriptors = descriptors.into_iter();
        let link = Packets::new(descriptors.next()?).ok()?;
        if descriptors.len() != sockets.len() {
            return None;
        }
        let (mut names, mut listeners) = (Vec::new(), Vec::new());
        for (socket, descriptor) in sockets.iter().zip(descriptors) {
            let descriptor = nonblocking(descriptor).ok()?;
            match socket.serves {
                Service::Names => {
                    let socket = UdpSocket::from(descriptor);
                    names.push(tokio::net::UdpSocket::from_std(socket).ok()?);
                }
                Service::Connections => {
                    let listener = TcpListener::from(descriptor);
                    listeners.push(tokio::net::TcpListener::from_std(listener).ok()?);
                }
            }
        }
        let connections = usize::try_from(shared.connections).unwrap_or(usize::MAX);
        let pace = || Pace::new(shared.connections.max(1), CONNECTIONS_EACH_SECOND);
        let network = Self {
            shared: Arc::clone(shared),
            ledger: Arc::default(),
            bytes: Bytes::new(shared.bytes),
            names: Mutex::new(Names::of(&shared.rules)),
            link,
            questions: Questions::default(),
            connections: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
            pace: pace(),
            dials: pace(),
            requests: Pace::new(REQUESTS, REQUESTS),
            overhead: Pace::new(4 * OVERHEAD, OVERHEAD),
        };
        Some(Serving {
            network: Arc::new(network),
            names,
            listeners,
        })
    }

    /// The host behind an address of the guest's loopback interface. None if it is the guest itself.
    fn host_at(&self, address: Ipv4Addr) -> Option<Host> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = is_made_up(address).then_some(Host::Address(IpAddr::V4(address)));
        names.host_at(address).or(unknown)
    }

    /// Room for one more connection to a host than connections of the guest, if there is any.
    pub fn room(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.connections).try_acquire_owned()
    }

    /// Whether the caller allows a connection that the rules allow, if the policy says that it is asked.
    pub async fn ask(&self, host: &Host, port: u16, addresses: Vec<IpAddr>) -> Result<(), Refusal> {
        if !self.shared.asks {
            return Ok(());
        }
        let asked = self.questions.ask(&self.link, host, port, addresses);
        asked.await
    }

    /// Notes that a connection, or a request, does not take place.
    pub fn note(&self, host: &Host, port: u16, request: Option<&str>, verdict: Verdict) {
        let host = host.to_string();
        self.ledger.note(&host, Some(port), request, verdict);
    }
}

impl Serving {
    /// Serves the worker until the supervisor closes the link. Everything of it ends with this.
    pub async fn serve(self) {
        let Self {
            network,
            names,
            listeners,
        } = self;
        let mut tasks = JoinSet::new();
        for socket in names {
            let pace = Pace::new(QUESTIONS, QUESTIONS);
            tasks.spawn(names_server::serve(Arc::clone(&network), socket, pace));
        }
        for listener in listeners {
            tasks.spawn(accept(Arc::clone(&network), listener));
        }
        // An error means that there is no supervisor to serve for.
        _ = attend(&network).await;
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
async fn accept(network: Arc<Network>, listener: tokio::net::TcpListener) {
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
                connection::serve(&network, stream, host, local.port()).await;
            }
            drop(permit);
        });
    }
}
