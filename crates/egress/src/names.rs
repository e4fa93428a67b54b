//! The addresses by which a guest reaches hosts, all of them its own.
//!
//! The resolver of a guest answers with a made-up address of its loopback network. A listener there learns from the
//! address which name the guest asked for, and need not trust what the guest sends. A host that the policy has by its address has
//! that address there too.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use crate::control::{Service, ServiceSocket};
use crate::host::{Host, HostPattern};
use crate::rules::Rules;

/// The address of the resolver and of the proxy.
pub const SERVICE: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);

/// The port of the proxy.
pub const PROXY_PORT: u16 = 3128;

/// The maximum number of names that one guest may ask for beyond those that the policy names in full. Each takes some
/// hundred bytes of a process that other guests use too.
const MOST_NAMES: usize = 1024;

/// The address of the `nth` name.
fn made_up(nth: usize) -> Option<Ipv4Addr> {
    let [high, low] = u16::try_from(nth.checked_add(2)?).ok()?.to_be_bytes();
    Some(Ipv4Addr::new(127, 1, high, low))
}

/// Whether an address is one that stands for a name or a service, and not another one of the guest's own network.
pub fn is_made_up(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [127, 1, _, _])
}

/// The address of a host that a policy has by its address. None if it is one of the guest's own loopback network, or of
/// IPv6: such hosts are reached by the proxy alone.
fn as_it_is(hosts: &HostPattern) -> Option<Ipv4Addr> {
    match hosts {
        HostPattern::Exactly(Host::Address(IpAddr::V4(address))) if !address.is_loopback() => {
            Some(*address)
        }
        _ => None,
    }
}

/// The addresses of other hosts that the guest's loopback interface has.
pub fn addresses(rules: &Rules) -> BTreeSet<Ipv4Addr> {
    rules
        .iter()
        .filter_map(|rule| as_it_is(rule.hosts()))
        .collect()
}

/// The names that a guest knows addresses of, both ways.
#[derive(Clone, Debug)]
pub struct Names {
    /// The hosts that have their own.
    addresses: BTreeSet<Ipv4Addr>,
    in_order: Vec<String>,
    places: HashMap<String, usize>,
    most: usize,
}

impl Names {
    /// The names that the rules have in full, in their order. Their addresses are the same in every sandbox of a
    /// policy, because listeners are made for some of them in advance.
    pub fn of(rules: &Rules) -> Self {
        let mut names = Self {
            addresses: addresses(rules),
            in_order: Vec::new(),
            places: HashMap::new(),
            most: usize::MAX,
        };
        for name in rules.exact_names() {
            names.address_of(name);
        }
        names.most = names.in_order.len() + MOST_NAMES;
        names
    }

    /// The address of a name, which it gets when it is first asked for. `None` if there are too many.
    pub fn address_of(&mut self, name: &str) -> Option<Ipv4Addr> {
        if let Some(place) = self.places.get(name) {
            return made_up(*place);
        }
        let place = self.in_order.len();
        let address = made_up(place).filter(|_| place < self.most)?;
        self.in_order.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        Some(address)
    }

    /// The host that has this address.
    pub fn host_at(&self, address: Ipv4Addr) -> Option<Host> {
        if self.addresses.contains(&address) {
            return Some(Host::Address(address.into()));
        }
        let [127, 1, high, low] = address.octets() else {
            return None;
        };
        let place = usize::from(u16::from_be_bytes([high, low])).checked_sub(2)?;
        let name = self.in_order.get(place)?;
        Some(Host::Name(name.clone()))
    }
}

/// The port of resolvers.
const DOMAIN: u16 = 53;

/// From here on a guest may listen itself.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// The most sockets of a worker: each takes time at every start, and all cross in one message.
const MOST_SOCKETS: usize = 40;

/// The sockets through which a guest reaches the hosts of these rules. `None` if there are too many.
///
/// A guest may listen on ports from 1024 on, so there the sockets are at the addresses of the hosts that have such a
/// port, and at every address only if it is not known which names will have it.
pub fn sockets(rules: &Rules) -> Option<Vec<ServiceSocket>> {
    let mut names = Names::of(rules);
    let (mut anywhere, mut at_hosts) = (BTreeSet::new(), BTreeSet::new());
    for rule in rules.iter() {
        for port in rule.ports() {
            match rule.hosts() {
                HostPattern::Exactly(host) => {
                    let address = match host {
                        Host::Name(name) => names.address_of(name)?,
                        Host::Address(_) => match as_it_is(rule.hosts()) {
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
    (sockets.len() <= MOST_SOCKETS).then_some(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_keeps_its_address() {
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
    fn a_guest_cannot_ask_for_any_number_of_names() {
        let mut names = Names::of(&Rules::of_hosts(&["*.b.example"]));
        let known = (0..10_000)
            .filter(|nth| names.address_of(&format!("{nth}.b.example")).is_some())
            .count();
        assert_eq!(known, MOST_NAMES);
        assert!(names.address_of("0.b.example").is_some());
    }

    fn listening(rules: &[&str]) -> Option<Vec<String>> {
        let rules = rules.iter().map(|rule| rule.parse().expect("a rule"));
        let rules = Rules::new(rules.collect()).expect("rules");
        let sockets = sockets(&rules)?.into_iter();
        Some(sockets.map(|socket| socket.address.to_string()).collect())
    }

    #[test]
    fn ports_that_a_guest_may_use_are_taken_at_hosts_only() {
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
