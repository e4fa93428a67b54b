//! Verifies the sockets that a worker hands over: each matches the plan, and its network namespace contains no other.
//!
//! The number of sockets in the namespace comes from `net/sockstat`. `net/tcp` would list each socket, but the kernel
//! walks the connection table of the whole host for it, which takes a millisecond.

use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{SockType, SockaddrIn, getsockname, getsockopt, sockopt};

use super::{Checked, differs};
use crate::plan::Layer;
use crate::supervisor::error::While;
use crate::supervisor::proc_dir::ProcDir;
use sandfork_jail::loopback::{NetworkSocket, Transport};

/// Checks the sockets before they are passed to the process that serves them.
pub fn check(process: &ProcDir, planned: &[NetworkSocket], handed_over: &[OwnedFd]) -> Checked {
    // No socket is received from a worker whose plan has none.
    if planned.is_empty() {
        return Ok(());
    }
    let found: Result<Vec<Option<NetworkSocket>>, Errno> = handed_over.iter().map(seen).collect();
    let found = found.when("look at the worker's sockets")?;
    if !found.iter().copied().eq(planned.iter().copied().map(Some)) {
        let (found, wanted) = (format!("the sockets {found:?}"), format!("{planned:?}"));
        return differs(Layer::Namespaces, found, wanted);
    }
    let table = process.read("net/sockstat");
    let table = table.when("count the worker's sockets")?;
    for (protocol, transport) in [("TCP", Transport::Tcp), ("UDP", Transport::Udp)] {
        let wanted = planned
            .iter()
            .filter(|it| it.transport == transport)
            .count();
        let found = in_use(&table, protocol);
        if found != Some(wanted) {
            let found = found.map_or_else(|| "no count".to_owned(), |it| it.to_string());
            let (found, wanted) = (format!("{found} of {protocol}"), format!("{wanted}"));
            return differs(Layer::Namespaces, found, wanted);
        }
    }
    Ok(())
}

/// Describes a descriptor, if it is a socket of a kind that plans use.
fn seen(socket: &OwnedFd) -> Result<Option<NetworkSocket>, Errno> {
    let listens = getsockopt(socket, sockopt::AcceptConn)?;
    let transport = match (getsockopt(socket, sockopt::SockType)?, listens) {
        (SockType::Stream, true) => Transport::Tcp,
        (SockType::Datagram, false) => Transport::Udp,
        _ => return Ok(None),
    };
    let address = getsockname::<SockaddrIn>(socket.as_raw_fd());
    let address = address.ok().map(SocketAddrV4::from);
    Ok(address.map(|address| NetworkSocket { transport, address }))
}

/// Returns the number of bound sockets of a protocol in the namespace, from the line `TCP: inuse 3 orphan 0 ...`.
fn in_use(table: &str, protocol: &str) -> Option<usize> {
    let mut lines = table.lines().filter_map(|line| line.split_once(": inuse "));
    let (_, counts) = lines.find(|(name, _)| *name == protocol)?;
    counts.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn only_listeners_and_datagram_sockets_are_described() {
        let any = "127.0.0.1:0";
        let listener = TcpListener::bind(any).unwrap();
        let std::net::SocketAddr::V4(address) = listener.local_addr().unwrap() else {
            panic!("it is one of IPv4");
        };
        let listener = OwnedFd::from(listener);
        let transport = Transport::Tcp;
        assert_eq!(
            seen(&listener),
            Ok(Some(NetworkSocket { transport, address }))
        );
        let datagrams = seen(&UdpSocket::bind(any).unwrap().into()).unwrap();
        assert_eq!(datagrams.map(|it| it.transport), Some(Transport::Udp));
        assert_eq!(seen(&UnixDatagram::unbound().unwrap().into()), Ok(None));
        assert_eq!(
            seen(&std::net::TcpStream::connect(address).unwrap().into()),
            Ok(None)
        );
    }

    #[test]
    fn sockets_in_use_are_counted_by_protocol() {
        let table = "sockets: used 9\nTCP: inuse 3 orphan 0 tw 0 alloc 4 mem 0\nUDP: inuse 1 mem 0\nUDPLITE: inuse 0\n";
        assert_eq!(
            (in_use(table, "TCP"), in_use(table, "UDP")),
            (Some(3), Some(1))
        );
        assert_eq!(in_use("sockets: used 9\n", "TCP"), None);
    }
}
