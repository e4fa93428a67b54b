//! The network activity of a guest.

use core::net::IpAddr;

use serde::Serialize;

/// An attempt of the guest to connect to another host, as the egress process saw it. The guest chose the names.
#[allow(unnameable_types, reason = "callers read its fields")]
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// The host, as the guest named it. Empty if the guest named none.
    pub host: String,
    /// The port. `None` if the guest only looked up the name.
    pub port: Option<u16>,
    /// The address that the egress process connected to. `None` if a proxy connected instead.
    pub address: Option<IpAddr>,
    /// The method and path of a refused request.
    pub request: Option<String>,
    /// The bytes sent to the host, in this cell or run.
    pub sent: u64,
    /// The bytes received from the host, in this cell or run.
    pub received: u64,
    /// `allowed`, `refused` by the policy, or `failed` to connect.
    pub verdict: &'static str,
    /// The reason of a refusal or failure, a keyword that `docs/network.md` explains.
    pub reason: Option<&'static str>,
    /// Whether the connection was still open at the end of the cell or run.
    pub open: bool,
    /// The number of equal attempts that were refused or failed for the same reason.
    pub count: u64,
}

/// The connections and bytes of a guest in a cell or run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    /// The connections. The list is bounded.
    pub connections: Vec<Connection>,
    /// The number of all connections that were started or refused.
    pub count: u64,
    /// The bytes sent.
    pub sent: u64,
    /// The bytes received.
    pub received: u64,
}

impl Traffic {
    /// Adds later traffic.
    pub fn add(&mut self, later: Self) {
        self.connections.extend(later.connections);
        self.count += later.count;
        self.sent += later.sent;
        self.received += later.received;
    }
}
