//! What a guest did on the network.

use core::net::IpAddr;

use serde::Serialize;

/// A connection of the guest to another host, or one that did not come about. The egress process saw it; the guest
/// chose the names.
#[allow(unnameable_types, reason = "callers read its fields")]
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// The host, as the guest named it; empty if it named none.
    pub host: String,
    /// The port. `None` if the guest asked for the name alone.
    pub port: Option<u16>,
    /// The address that was dialled, unless a proxy dialled it.
    pub address: Option<IpAddr>,
    /// The method and path of a request that was refused.
    pub request: Option<String>,
    /// The bytes sent to the host, in this cell or run.
    pub sent: u64,
    /// The bytes received from the host, in this cell or run.
    pub received: u64,
    /// `allowed`, `refused` by the policy, or `failed` on the way.
    pub verdict: &'static str,
    /// Why it was refused or failed, in one word that `docs/network.md` explains.
    pub reason: Option<&'static str>,
    /// Whether it was still open at the end of the cell or run.
    pub open: bool,
    /// How often it was refused or failed in the same way.
    pub count: u64,
}

/// The connections and bytes of a guest in a cell or run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    /// The connections; of very many, only some.
    pub connections: Vec<Connection>,
    /// How many were begun or refused.
    pub count: u64,
    /// The bytes sent.
    pub sent: u64,
    /// The bytes received.
    pub received: u64,
}

impl Traffic {
    /// Adds what was done later.
    pub fn add(&mut self, later: Self) {
        self.connections.extend(later.connections);
        self.count += later.count;
        self.sent += later.sent;
        self.received += later.received;
    }
}
