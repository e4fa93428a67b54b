//! The loopback interface of a worker, from the tables of its network namespace (proc_pid_net(5)).

use std::io;

use super::{Checked, differs};
use crate::plan::Layer;
use crate::supervisor::error::While;
use crate::supervisor::proc_dir::ProcDir;

/// The addresses and routes of IPv4, also those of the local table.
const IPV4: &str = "net/fib_trie";

/// The same of IPv6. A host without the protocol has no such file.
const IPV6: &str = "net/ipv6_route";

/// Checks that the interface is up, and that no address and no route leads anywhere else.
pub fn check(process: &ProcDir) -> Checked {
    let ipv4 = process.read(IPV4).when("read the worker's routes")?;
    let ipv6 = match process.read(IPV6) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    };
    let ipv6 = ipv6.when("read the worker's routes")?;
    let wanted = "a loopback interface that is up, and no other route";
    match wrong(&ipv4, &ipv6) {
        Some(found) => differs(Layer::Namespaces, found, wanted),
        None => Ok(()),
    }
}

/// The first line that should not be there, or what is missing.
fn wrong(ipv4: &str, ipv6: &str) -> Option<String> {
    // `+-- PREFIX`, `|-- ADDRESS` and, beneath, what is there.
    let places = ipv4.lines().filter_map(|line| line.split_once("-- "));
    let elsewhere = |place: &&str| !place.starts_with("127.");
    let mut addresses = places.map(|(_, place)| place);
    if let Some(other) = addresses.clone().find(elsewhere) {
        return Some(format!("a route to {other}"));
    }
    if !addresses.any(|place| place == "127.0.0.1") {
        return Some("no loopback address".to_owned());
    }
    let mut ipv6 = ipv6.lines();
    let other = ipv6.find(|line| line.split_ascii_whitespace().next_back() != Some("lo"))?;
    Some(format!("the route `{}`", other.trim()))
}

#[cfg(test)]
mod tests {
    use super::wrong;

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
    fn only_the_loopback_interface_may_be_there() {
        assert_eq!(wrong(IPV4, IPV6), None);
        assert_eq!(wrong(IPV4, ""), None);
        assert_eq!(wrong("", IPV6).as_deref(), Some("no loopback address"));
        let with_route = format!("{IPV4}     |-- 10.0.0.0\n        /8 link UNICAST\n");
        assert_eq!(
            wrong(&with_route, IPV6).as_deref(),
            Some("a route to 10.0.0.0")
        );
        let with_device = IPV6.replacen("lo\n", "eth0\n", 1);
        assert!(wrong(IPV4, &with_device).is_some_and(|found| found.ends_with("eth0`")));
    }
}
