//! Explains refused sockets and connections.

use super::{Explanation, Grants, of_limit};
use crate::outcome::{Layer, LimitName, Limits};
use crate::policy::{Level, ModeRule, NetworkMode};
use sandfork_egress::address::AddressClass;
use sandfork_egress::host::{Authority, Host};
use sandfork_egress::refusal::Refusal;

// Keys that several functions use.
const MODE: &str = "network.mode";
const HOSTS: &str = "network.allow";

impl Grants {
    /// Explains a refused internet socket. Returns `None` if the plan allows internet sockets.
    pub fn of_socket(&self) -> Option<Explanation> {
        let refused = Explanation::by(Layer::Seccomp);
        match (self.network, self.level) {
            (NetworkMode::Loopback | NetworkMode::Allow, _) => None,
            // Without namespaces, guests would get the host's network.
            (NetworkMode::None, Level::Landlock) => Some(refused),
            (NetworkMode::None, _) => Some(refused.allowed_by(MODE, "loopback")),
        }
    }

    /// Explains a refused connection to `HOST:PORT`, or to a host alone. Returns `None` if the target is not a valid
    /// host, or if the egress process reports the connection.
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

/// Returns whether the host is the guest itself.
fn is_own(host: &Host) -> bool {
    match host {
        Host::Address(address) => AddressClass::of(*address) == AddressClass::Own,
        Host::Name(name) => name == "localhost",
    }
}

/// Returns the entry of `network.allow` for a host.
fn entry(host: &str, port: Option<u16>) -> String {
    match port {
        // An entry without `ports` allows these ports.
        None | Some(80 | 443) => host.to_owned(),
        Some(port) => with_port(host, port),
    }
}

fn with_port(host: &str, port: u16) -> String {
    format!("{{ host = \"{host}\", ports = [{port}] }}")
}

/// Explains a connection that was refused for this reason.
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
        // An existing entry would have to be changed, which only its author can decide.
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
