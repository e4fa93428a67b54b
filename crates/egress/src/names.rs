//! Assigns the loopback addresses through which a guest reaches hosts.
//!
//! The guest's resolver answers with a made-up loopback address for each name. A listener derives the requested name
//! from the address that the guest connects to, and need not trust the bytes that the guest sends. A host that the
//! policy lists by its address keeps that address on the guest's loopback interface.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use crate::control::{Service, ServiceSocket};
use crate::host::{Host, HostPattern};
use crate::rules::Rules;

/// The address of the resolver and of the proxy.
pub const SERVICE: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);

/// The port of the proxy.
pub const PROXY_PORT: u16 = 3128;

/// The maximum number of names that a guest may look up in addition to the exact names of the policy. Each name takes a
/// few hundred bytes of a process that serves other guests too.
const MAX_NAMES: usize = 1024;

/// Returns the made-up address of the `nth` name.
fn made_up(nth: usize) -> Option<Ipv4Addr> {
    let [high, low] = u16::try_from(nth.checked_add(2)?).ok()?.to_be_bytes();
    Some(Ipv4Addr::new(127, 1, high, low))
}

/// Returns whether an address is in the range of made-up addresses and services.
pub fn is_made_up(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [127, 1, _, _])
}

/// Returns the address of a host that the policy lists by its address. Returns `None` for loopback and IPv6 addresses,
/// which are reachable only through the proxy.
fn direct_address(hosts: &HostPattern) -> Option<Ipv4Addr> {
    match hosts {
        HostPattern::Exactly(Host::Address(IpAddr::V4(address))) if !address.is_loopback() => {
            Some(*address)
        }
        _ => None,
    }
}

/// Returns the addresses of hosts to assign to the guest's loopback interface.
pub fn addresses(rules: &Rules) -> BTreeSet<Ipv4Addr> {
    rules
        .iter()
        .filter_map(|rule| direct_address(rule.hosts()))
        .collect()
}

/// The mapping between names and the made-up addresses of one guest.
#[derive(Clone, Debug)]
pub struct Names {
    /// Hosts that keep their own address.
    addresses: BTreeSet<Ipv4Addr>,
    in_order: Vec<String>,
    indices: HashMap<String, usize>,
    limit: usize,
}

impl Names {
    /// Assigns addresses to the exact names of the rules, in order. These addresses are the same in every sandbox of a
    /// policy, because listeners for some of them are created in advance.
    pub fn of(rules: &Rules) -> Self {
        let mut names = Self {
            addresses: addresses(rules),
            in_order: Vec::new(),
            indices: HashMap::new(),
            limit: usize::MAX,
        };
        for name in rules.exact_names() {
            names.address_of(name);
        }
        names.limit = names.in_order.len() + MAX_NAMES;
        names
    }

    /// Returns the address of a name, and assigns one at the first lookup. Returns `None` if there are too many names.
    pub fn address_of(&mut self, name: &str) -> Option<Ipv4Addr> {
        if let Some(index) = self.indices.get(name) {
            return made_up(*index);
        }
        let index = self.in_order.len();
        let address = made_up(index).filter(|_| index < self.limit)?;
        self.in_order.push(name.to_owned());
        self.indices.insert(name.to_owned(), index);
        Some(address)
    }

    /// Returns the host that has this address.
    pub fn host_at(&self, address: Ipv4Addr) -> Option<Host> {
        if self.addresses.contains(&address) {
            return Some(Host::Address(address.into()));
        }
        let [127, 1, high, low] = address.octets() else {
            return None;
        };
        let index = usize::from(u16::from_be_bytes([high, low])).checked_sub(2)?;
        let name = self.in_order.get(index)?;
        Some(Host::Name(name.clone()))
    }
}

/// The DNS port.
const DOMAIN: u16 = 53;

/// The first port that a guest may listen on without privileges.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// The maximum number of sockets of a worker: each costs time at every start, and all are passed in one message.
const MAX_SOCKETS: usize = 40;

/// Returns the sockets through which a guest reaches the hosts of these rules, or `None` if there are too many.
///
/// A guest may itself listen on ports from 1024. Sockets for such ports are bound only to the addresses of the hosts
/// that use them, and to every address only for a wildcard, whose names are not known in advance.
pub fn sockets(rules: &Rules) -> Option<Vec<ServiceSocket>> {
    let mut names = Names::of(rules);
    let (mut anywhere, mut at_hosts) = (BTreeSet::new(), BTreeSet::new());
    for rule in rules.iter() {
        for port in rule.ports() {
            match rule.hosts() {
                HostPattern::Exactly(host) => {
                    let address = match host {
                        Host::Name(name) => names.address_of(name)?,
                        Host::Address(_) => match direct_address(rule.hosts()) {
                            Some(address) => address,
                            None => continue,
                        },
                    };
                    if port < FIRST_UNPRIVILEGED {
                        anywhere.insert(port);
                    } else {
                        at_hosts.insert(SocketAddrV4::new(address, port));
                    }
                }
                HostPattern::Beneath(_) => drop(anywhere.insert(port)),
            }
        }
    }
    at_hosts.retain(|address| !anywhere.contains(&address.port()));
    if !anywhere.contains(&PROXY_PORT) {
        at_hosts.insert(SocketAddrV4::new(SERVICE, PROXY_PORT));
    }
    let anywhere = anywhere.into_iter();
    let anywhere = anywhere.map(|port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
    let connections = anywhere.chain(at_hosts).map(|address| ServiceSocket {
        serves: Service::Connections,
        address,
    });
    let resolver = ServiceSocket {
        serves: Service::Names,
        address: SocketAddrV4::new(SERVICE, DOMAIN),
    };
    let sockets: Vec<ServiceSocket> = std::iter::once(resolver).chain(connections).collect();
    (sockets.len() <= MAX_SOCKETS).then_some(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_addresses() {
        let rules = Rules::of_hosts(&["a.example", "*.b.example", "c.example"]);
        let mut names = Names::of(&rules);
        let address = |last: u8| Some(Ipv4Addr::new(127, 1, 0, last));
        assert_eq!(names.address_of("c.example"), address(3));
        assert_eq!(names.address_of("x.b.example"), address(4));
        assert_eq!(names.address_of("a.example"), address(2));
        assert_eq!(names.address_of("x.b.example"), address(4));
        let name = |address: &str| names.host_at(address.parse().expect("an address"));
        assert_eq!(name("127.1.0.2"), Some(Host::Name("a.example".into())));
        assert_eq!(name("127.1.0.4"), Some(Host::Name("x.b.example".into())));
        for other in [
            "127.1.0.0",
            "127.1.0.1",
            "127.1.0.5",
            "127.0.0.2",
            "10.1.0.2",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn number_of_names_is_bounded() {
        let mut names = Names::of(&Rules::of_hosts(&["*.b.example"]));
        let known = (0..10_000)
            .filter(|nth| names.address_of(&format!("{nth}.b.example")).is_some())
            .count();
        assert_eq!(known, MAX_NAMES);
        assert!(names.address_of("0.b.example").is_some());
    }

    fn listening(rules: &[&str]) -> Option<Vec<String>> {
        let rules = rules.iter().map(|rule| rule.parse().expect("a rule"));
        let rules = Rules::new(rules.collect()).expect("rules");
        let sockets = sockets(&rules)?.into_iter();
        Some(sockets.map(|socket| socket.address.to_string()).collect())
    }

    #[test]
    fn unprivileged_ports_are_bound_only_on_hosts() {
        let expected = [
            "127.1.0.1:53",
            "0.0.0.0:80",
            "0.0.0.0:443",
            "0.0.0.0:9000",
            "10.0.0.1:6379",
            "127.1.0.1:3128",
            "127.1.0.3:5432",
        ];
        let rules = [
            "a.example",
            r#"{"host":"b.example","ports":[5432,9000],"raw":true}"#,
            r#"{"host":"*.c.example","ports":[443,9000]}"#,
            r#"{"host":"10.0.0.1","ports":[6379],"private":true}"#,
            r#"{"host":"127.0.0.1","ports":[8000],"private":true}"#,
        ];
        assert_eq!(
            listening(&rules),
            Some(expected.map(str::to_owned).to_vec())
        );
        let proxy = [r#"{"host":"*.c.example","ports":[3128]}"#];
        let expected = ["127.1.0.1:53", "0.0.0.0:3128"];
        assert_eq!(
            listening(&proxy),
            Some(expected.map(str::to_owned).to_vec())
        );
        let ports: Vec<String> = (1..100).map(|port: u16| port.to_string()).collect();
        let many = format!(r#"{{"host":"a.example","ports":[{}]}}"#, ports.join(","));
        assert_eq!(listening(&[&many]), None);
    }
}
