//! Verifies the loopback interface of a worker, from the tables of its network namespace (proc_pid_net(5)).

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;

use super::{Checked, differs};
use crate::plan::Layer;
use crate::supervisor::error::While;
use crate::supervisor::proc_dir::ProcDir;

/// The IPv4 addresses and routes, including the local table.
const IPV4: &str = "net/fib_trie";

/// The IPv6 addresses and routes. Missing on a host without IPv6.
const IPV6: &str = "net/ipv6_route";

/// Checks that the loopback interface is up and has these addresses, and that there is no other address or route.
pub fn check(process: &ProcDir, addresses: &[Ipv4Addr]) -> Checked {
    let ipv4 = process.read(IPV4).when("read the worker's routes")?;
    let ipv6 = match process.read(IPV6) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    };
    let ipv6 = ipv6.when("read the worker's routes")?;
    let wanted = "a loopback interface that is up, and no other route";
    match wrong(&ipv4, &ipv6, addresses) {
        Some(found) => differs(Layer::Namespaces, found, wanted),
        None => Ok(()),
    }
}

/// Returns the first unexpected line, or the missing address.
fn wrong(ipv4: &str, ipv6: &str, addresses: &[Ipv4Addr]) -> Option<String> {
    let mut missing: BTreeSet<Ipv4Addr> = addresses.iter().copied().collect();
    missing.insert(Ipv4Addr::LOCALHOST);
    let mut place = Ipv4Addr::UNSPECIFIED;
    // `|-- ADDRESS` is followed by the routes to that address. `+-- PREFIX` is an inner node of the trie.
    for line in ipv4.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            let Ok(address) = address.parse() else {
                return Some(format!("the address {address}"));
            };
            place = address;
        } else if line.starts_with('/') {
            let is_own = line == "/32 host LOCAL";
            if is_own {
                missing.remove(&place);
            }
            let is_planned = is_own && addresses.contains(&place);
            if !place.is_loopback() && !is_planned {
                return Some(format!("a route to {place} ({line})"));
            }
        }
    }
    if let Some(address) = missing.first() {
        return Some(format!("no address {address}"));
    }
    let mut ipv6 = ipv6.lines();
    let other = ipv6.find(|line| line.split_ascii_whitespace().next_back() != Some("lo"))?;
    Some(format!("the route `{}`", other.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: &str = "\
Main:
  +-- 127.0.0.0/8 2 0 2
     |-- 127.0.0.0
        /8 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 127.255.255.255
        /32 link BROADCAST
";
    const IPV6: &str = "\
00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    #[test]
    fn routes_beyond_loopback_are_rejected() {
        let of = |ipv4: &str, ipv6: &str| wrong(ipv4, ipv6, &[]);
        assert_eq!(of(IPV4, IPV6), None);
        assert_eq!(of(IPV4, ""), None);
        assert_eq!(of("", IPV6).as_deref(), Some("no address 127.0.0.1"));
        let with_route = format!("{IPV4}     |-- 10.0.0.0\n        /8 link UNICAST\n");
        assert_eq!(
            of(&with_route, IPV6).as_deref(),
            Some("a route to 10.0.0.0 (/8 link UNICAST)")
        );
        let with_device = IPV6.replacen("lo\n", "eth0\n", 1);
        assert!(of(IPV4, &with_device).is_some_and(|found| found.ends_with("eth0`")));
    }

    #[test]
    fn only_planned_addresses_are_accepted() {
        let address = Ipv4Addr::new(10, 0, 0, 5);
        let beside = IPV4.replace(
            "+-- 127.0.0.0/8 2 0 2\n",
            "+-- 0.0.0.0/1 2 0 0\n     |-- 10.0.0.5\n        /32 host LOCAL\n",
        );
        assert_eq!(wrong(&beside, IPV6, &[address]), None);
        assert_eq!(
            wrong(IPV4, IPV6, &[address]).as_deref(),
            Some("no address 10.0.0.5")
        );
        let other = Ipv4Addr::new(10, 0, 0, 6);
        assert!(wrong(&beside, IPV6, &[other]).is_some());
        // A route to the address instead of the address itself.
        let route = beside.replace(
            "10.0.0.5\n        /32 host LOCAL",
            "10.0.0.5\n        /32 link UNICAST",
        );
        assert!(wrong(&route, IPV6, &[address]).is_some());
    }
}
