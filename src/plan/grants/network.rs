//! What would allow a socket or a connection.

use super::{Explanation, Grants, of_limit};
use crate::outcome::{Layer, LimitName, Limits};
use crate::policy::{Level, ModeRule, NetworkMode};
use sandfork_egress::address::AddressClass;
use sandfork_egress::host::{Authority, Host};
use sandfork_egress::refusal::Refusal;

// Keys that more than one function names.
const MODE: &str = "network.mode";
const HOSTS: &str = "network.allow";

impl Grants {
    /// What would allow an internet socket, or `None` if the plan allows one.
    pub fn of_socket(&self) -> Option<Explanation> {
        let refused = Explanation::by(Layer::Seccomp);
        match (self.network, self.level) {
            (NetworkMode::Loopback | NetworkMode::Allow, _) => None,
            // Its guests are in the host's network namespace.
            (NetworkMode::None, Level::Landlock) => Some(refused),
            (NetworkMode::None, _) => Some(refused.allowed_by(MODE, "loopback")),
        }
    }

    /// What would allow a connection to `HOST:PORT`, or to a host alone. `None` if that is no host, or the egress
    /// process tells of the connection itself.
    pub fn of_host(&self, target: &str) -> Option<Explanation> {
        let Authority { host, port } = target.parse().ok()?;
        if port == Some(0) {
            return None;
        }
        let refused = match self.network {
            NetworkMode::None => Explanation::by(Layer::Seccomp),
            NetworkMode::Loopback => Explanation::by(Layer::Namespaces),
            NetworkMode::Allow => return None,
        };
        match (self.level, self.mode_rule) {
            (Level::Landlock, _) => Some(refused),
            _ if is_own(&host) => self.of_socket(),
            (_, ModeRule::OfPolicy) => Some(refused.allowed_by(MODE, "allow")),
            (_, ModeRule::FollowsHosts) => {
                let host = Authority { host, port: None }.to_string();
                Some(refused.allowed_by(HOSTS, entry(&host, port)))
            }
        }
    }
}

/// Whether it is a host of the guest's own network.
fn is_own(host: &Host) -> bool {
    match host {
        Host::Address(address) => AddressClass::of(*address) == AddressClass::Own,
        Host::Name(name) => name == "localhost",
    }
}

/// The entry of `network.allow` for a host.
fn entry(host: &str, port: Option<u16>) -> String {
    match port {
        // As many of the usual ports as an entry has without `ports`.
        None | Some(80 | 443) => host.to_owned(),
        Some(port) => with_port(host, port),
    }
}

fn with_port(host: &str, port: u16) -> String {
    format!("{{ host = \"{host}\", ports = [{port}] }}")
}

/// What would allow a connection that was refused for this reason.
pub fn of_connection(
    refusal: Refusal,
    host: &str,
    port: Option<u16>,
    limits: &Limits,
) -> Explanation {
    let refused = Explanation::default();
    match (refusal, port) {
        (Refusal::Host, _) => refused.allowed_by(HOSTS, entry(host, port)),
        (Refusal::Port, Some(port)) => refused.allowed_by(HOSTS, with_port(host, port)),
        (Refusal::Connections, _) => of_limit(LimitName::Connections, limits, None),
        (Refusal::Undecided, _) => refused.allowed_by("network.ask", "false"),
        (Refusal::Bytes, _) => of_limit(LimitName::NetworkBytes, limits, None),
        // An entry would have to be changed, and only its author knows whether.
        (
            Refusal::Port
            | Refusal::Method
            | Refusal::Path
            | Refusal::Content
            | Refusal::PrivateAddress
            | Refusal::OwnAddress
            | Refusal::MetadataAddress
            | Refusal::LinkLocalAddress,
            _,
        ) => Explanation {
            key: Some(HOSTS),
            ..refused
        },
        (
            Refusal::Caller
            | Refusal::Name
            | Refusal::EncryptedName
            | Refusal::ClearCredential
            | Refusal::UnusableAddress
            | Refusal::Names
            | Refusal::Malformed,
            _,
        ) => refused,
    }
}
