//! The messages between the supervisor and the egress process.
//!
//! Both ends are trusted. Each message is one JSON datagram. On the control socket the supervisor starts the process
//! and passes it the sockets of workers; closing the control socket ends the process. Each worker also has a link, a
//! socket on which the supervisor requests reports; closing the link ends every connection of that worker.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use sandfork_jail::loopback::{NetworkSocket, Transport};
use sandfork_jail::program::{BpfProgram, HostIds};
use serde::{Deserialize, Serialize};

use crate::refusal::Verdict;
use crate::rules::Rules;

/// A message from the supervisor to the process, on the control socket.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToEgress {
    /// The first message: the configuration.
    Start(Box<Start>),
    /// A worker to serve. Descriptors: its link, then one socket for each of `sockets`.
    Serve {
        /// The purpose and address of each socket.
        sockets: Vec<ServiceSocket>,
    },
    /// The current resolver configuration of the host.
    Resolve(Resolution),
}

/// The configuration, which the process receives before it confines itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Start {
    /// The policy's rules, with secrets substituted for references.
    pub rules: Rules,
    /// The maximum number of concurrent connections of a worker.
    pub connections: u32,
    /// The maximum number of bytes that a worker may send and receive in total.
    pub bytes: u64,
    /// The proxy for all hosts that are not private.
    pub proxy: Option<Proxy>,
    /// Whether the caller must approve each connection that the rules allow.
    #[serde(default)]
    pub asks: bool,
    /// The resolver configuration.
    pub resolution: Resolution,
    /// The PEM file with the host's trusted certificates.
    pub trust: Option<PathBuf>,
    /// The CA of an earlier process of this sandbox, which its guests already trust.
    pub authority: Option<Authority>,
    /// The user and group ids to switch to, if the supervisor is root.
    pub identity: Option<HostIds>,
    /// The seccomp filter of the process.
    pub filter: BpfProgram,
    /// The kernel's Landlock ABI.
    pub landlock_abi: u32,
}

/// An upstream proxy.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct Proxy {
    /// The host name or address of the proxy.
    pub host: crate::host::Host,
    /// The port of the proxy.
    pub port: u16,
    /// The value of `Proxy-Authorization`.
    pub authorization: Option<String>,
}

/// Hides the password.
impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

/// The resolver configuration of the host.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Resolution {
    /// The resolvers, in the order in which they are queried.
    pub servers: Vec<SocketAddr>,
    /// Names with static addresses (`/etc/hosts`), which take precedence over the resolvers.
    pub hosts: Vec<(String, IpAddr)>,
}

/// A certificate authority (CA) that only the guests of one sandbox trust.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct Authority {
    /// The certificate for the guests (PEM).
    pub certificate: String,
    /// The private key (PKCS #8 in base64).
    pub key: String,
}

/// Hides the key.
impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// A socket that was created in a worker's network namespace.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ServiceSocket {
    /// The service behind the socket.
    pub serves: Service,
    /// The address that the socket is bound to.
    pub address: SocketAddrV4,
}

impl ServiceSocket {
    /// Returns the description by which the jail creates the socket.
    pub fn to_make(self) -> NetworkSocket {
        NetworkSocket {
            transport: match self.serves {
                Service::Names => Transport::Udp,
                Service::Connections => Transport::Tcp,
            },
            address: self.address,
        }
    }
}

/// The service behind a socket.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// The DNS resolver, over UDP.
    Names,
    /// TCP connections to the proxy's address and to the made-up addresses of names.
    Connections,
}

/// A message from the process to the supervisor, on the control socket.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromEgress {
    /// The process has confined itself and is serving.
    Ready(Authority),
    /// The process failed to start and ends.
    Failed(NotReady),
}

/// The reason why the process failed to start.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NotReady {
    /// The step that failed, as part of a sentence.
    pub what: String,
    /// The remedy, unless the cause is a restriction of the host.
    pub remedy: Option<String>,
}

impl From<String> for NotReady {
    fn from(what: String) -> Self {
        Self { what, remedy: None }
    }
}

/// A message from the supervisor to the process, on a link.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToNetwork {
    /// Requests a report of the activity since the last report.
    Report,
    /// Charges bytes to the worker's quota that an earlier worker of its session has used. Not acknowledged.
    Spend(u64),
    /// The caller's decision about a connection.
    Decided {
        /// The number of the question.
        question: u64,
        /// Whether the connection is allowed; `None` if the caller has made no decision.
        allowed: Option<bool>,
    },
}

/// A message from the process to the supervisor, on a link.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromNetwork {
    /// The activity since the last report.
    Report(Report),
    /// A request for a decision about a connection.
    Question(Question),
}

/// A connection that the rules allow and that the caller must approve.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Question {
    /// The number of the question, which the decision repeats.
    pub question: u64,
    /// The host, as named by the guest.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The candidate addresses; empty if a proxy resolves the name.
    pub addresses: Vec<IpAddr>,
}

/// The maximum number of connections that a report describes. A report counts the rest.
pub const MAX_REPORTED: usize = 128;

/// The network activity of a worker since its last report.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// Ended connections and refusals in the order in which they ended, then the open connections.
    pub connections: Vec<Connection>,
    /// The number of connections and refusals, including those that `connections` omits.
    pub count: u64,
    /// The bytes sent to hosts.
    pub sent: u64,
    /// The bytes received from hosts.
    pub received: u64,
}

/// A connection of a guest, or a refused request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Connection {
    /// The host, as named by the guest.
    pub host: String,
    /// The port; `None` for a name lookup.
    pub port: Option<u16>,
    /// The address that the process connected to.
    pub address: Option<IpAddr>,
    /// The method and path of a refused request.
    pub request: Option<String>,
    /// The bytes sent to the host since the last report.
    pub sent: u64,
    /// The bytes received from the host since the last report.
    pub received: u64,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Whether the connection is still open.
    pub open: bool,
    /// The number of identical refusals; 1 for a connection.
    pub count: u64,
}
