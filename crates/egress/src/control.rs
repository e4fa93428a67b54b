//! Messages between the supervisor and the egress process.
//!
//! Both are trusted. Each message is one datagram of JSON. The control socket starts the process and gives it
//! workers; its end ends the process. Each worker has a socket of its own, the link, on which the supervisor asks
//! for reports; its end ends every connection of the worker.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use sandfork_jail::loopback::{NetworkSocket, Transport};
use sandfork_jail::program::{BpfProgram, HostIds};
use serde::{Deserialize, Serialize};

use crate::refusal::Verdict;
use crate::rules::Rules;

/// Supervisor to process, on the control socket.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToEgress {
    /// The first message.
    Start(Box<Start>),
    /// A worker. Descriptors: its link, then a socket for each of `sockets`.
    Serve {
        /// What each socket is bound to.
        sockets: Vec<ServiceSocket>,
    },
    /// What the host's resolver is now.
    Resolve(Resolution),
}

/// The configuration that the process receives before it confines itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Start {
    /// The policy's rules, with secrets in place of references.
    pub rules: Rules,
    /// The maximum number of connections of one worker at a time.
    pub connections: u32,
    /// The maximum number of bytes that one worker sends and receives.
    pub bytes: u64,
    /// The proxy for all that is not private.
    pub proxy: Option<Proxy>,
    /// Whether the caller decides on each connection that the rules allow.
    #[serde(default)]
    pub asks: bool,
    /// How names are resolved.
    pub resolution: Resolution,
    /// A file with the certificates that the host trusts.
    pub trust: Option<PathBuf>,
    /// The authority of an earlier process, which guests trust already.
    pub authority: Option<Authority>,
    /// The ids to take, if the supervisor is root.
    pub identity: Option<HostIds>,
    /// The system calls that the process may make.
    pub filter: BpfProgram,
    /// The kernel's Landlock ABI.
    pub landlock_abi: u32,
}

/// A proxy for the host's own connections.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct Proxy {
    /// Its host.
    pub host: crate::host::Host,
    /// Its port.
    pub port: u16,
    /// The value of `Proxy-Authorization`.
    pub authorization: Option<String>,
}

/// Shows no password.
impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

/// How names are resolved.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Resolution {
    /// Resolvers, in the order in which they are asked.
    pub servers: Vec<SocketAddr>,
    /// Names with their addresses, which no resolver is asked for.
    pub hosts: Vec<(String, IpAddr)>,
}

/// A certificate authority that the guests of one sandbox trust, and no one else.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
pub struct Authority {
    /// The certificate, for guests (PEM).
    pub certificate: String,
    /// The key (PKCS #8 in base64).
    pub key: String,
}

/// Shows no key.
impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// A socket that was made in a worker's network namespace.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ServiceSocket {
    /// What it serves.
    pub serves: Service,
    /// The address that it is bound to.
    pub address: SocketAddrV4,
}

impl ServiceSocket {
    /// The socket as the jail makes it.
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

/// What a socket serves.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// The resolver, over UDP.
    Names,
    /// Connections: to the proxy at its address, and to names at their made-up ones.
    Connections,
}

/// Process to supervisor, on the control socket.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromEgress {
    /// The process has confined itself and serves.
    Ready(Authority),
    /// It could not; the process ends.
    Failed(NotReady),
}

/// Why the process does not serve.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NotReady {
    /// What failed, as part of a sentence.
    pub what: String,
    /// What to do about it, if it is not the host that allows too little.
    pub remedy: Option<String>,
}

impl From<String> for NotReady {
    fn from(what: String) -> Self {
        Self { what, remedy: None }
    }
}

/// Supervisor to process, on a link.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToNetwork {
    /// Report what happened since the last report.
    Report,
    /// Count so many bytes as if the worker had sent them, which an earlier worker of its session has. Not answered.
    Spend(u64),
    /// What the caller has decided about a connection.
    Decided {
        /// The question's number.
        question: u64,
        /// Whether it is allowed; `None` if the caller has given no decision.
        allowed: Option<bool>,
    },
}

/// Process to supervisor, on a link.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromNetwork {
    /// What happened since the last report.
    Report(Report),
    /// Whether a connection may be made.
    Question(Question),
}

/// A connection that the rules allow, and the caller may refuse.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Question {
    /// Its number, which the answer repeats.
    pub question: u64,
    /// The host, as the guest named it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The addresses, one of which is dialled; none if a proxy resolves the name.
    pub addresses: Vec<IpAddr>,
}

/// The maximum number of connections that one report describes. It counts the others.
pub const MOST_REPORTED: usize = 128;

/// What happened since the last report.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// Connections and refused requests, in the order of their ends, then those that are open.
    pub connections: Vec<Connection>,
    /// How many there were, those that are not described included.
    pub count: u64,
    /// The bytes sent to hosts.
    pub sent: u64,
    /// The bytes received from hosts.
    pub received: u64,
}

/// A connection of a guest, or a request that was refused.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Connection {
    /// The host, as the guest named it.
    pub host: String,
    /// The port; `None` if the guest asked for the name alone.
    pub port: Option<u16>,
    /// The address that was dialled.
    pub address: Option<IpAddr>,
    /// The method and path of a request that was refused.
    pub request: Option<String>,
    /// The bytes sent to the host since the last report.
    pub sent: u64,
    /// The bytes received from the host since the last report.
    pub received: u64,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Whether it is still open.
    pub open: bool,
    /// How often the same took place, if it is no connection.
    pub count: u64,
}
