//! Creates a worker's loopback interface.
//!
//! A network namespace retains state: ports of closed connections stay taken for a minute, and every packet and error
//! is counted. Unlike the empty namespaces, this one is therefore never lent to another worker. It ends with the
//! worker's last process and socket.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, bind, listen,
    recv, send, socket,
};
use serde::{Deserialize, Serialize};

use super::failure::{Failure, InStep, Step};
use super::namespaces;
use super::program::WorkerJail;
use crate::sys::procfs;

/// A socket to create for another process to serve.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NetworkSocket {
    /// The transport protocol.
    pub transport: Transport,
    /// The address to bind.
    pub address: SocketAddrV4,
}

/// The transport protocol of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP; the socket listens.
    Tcp,
    /// UDP; the socket receives datagrams.
    Udp,
}

/// The maximum size of a TCP socket's send and receive buffer each, bytes.
pub const LARGEST_BUFFER: u64 = 256 * 1024;

/// The kernel's default minimum and initial sizes, with a much lower maximum (tcp(7)).
const BUFFERS: [(&str, &str); 2] = [
    ("sys/net/ipv4/tcp_rmem", "4096 131072 262144"),
    ("sys/net/ipv4/tcp_wmem", "4096 16384 262144"),
];

/// The first port that needs no privilege (ip(7)).
const FIRST_PORT: &str = "sys/net/ipv4/ip_unprivileged_port_start";

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Enters a new network namespace whose only interface is a loopback interface, with its usual addresses and those of
/// the plan. Creates the plan's sockets there and returns them in the plan's order.
///
/// `proc` is the root of a procfs that shows the calling process.
pub fn make(proc: BorrowedFd, plan: &WorkerJail) -> Result<Vec<OwnedFd>, Failure> {
    namespaces::unshare_network().in_step(Step::MakeNetwork)?;
    // Bound the buffers, because no cgroup is charged for data in connections that are not accepted yet.
    for (file, value) in BUFFERS {
        procfs::write(proc, file, value).in_step(Step::BoundBuffers)?;
    }
    // The guest may use all ports of its own interface, unless another process serves some of them.
    if plan.sockets.is_empty() {
        procfs::write(proc, FIRST_PORT, "0").in_step(Step::MakeNetwork)?;
    }
    let kernel = Netlink::open().in_step(Step::RaiseLoopback)?;
    // The kernel assigns the usual addresses when the interface comes up.
    kernel.execute(&up()).in_step(Step::RaiseLoopback)?;
    for address in &plan.addresses {
        kernel
            .execute(&new_address(*address))
            .in_step(Step::RaiseLoopback)?;
    }
    let made: Result<Vec<OwnedFd>, Errno> = plan.sockets.iter().copied().map(open).collect();
    made.in_step(Step::NetworkSockets)
}

/// Creates a bound socket. The process may still bind privileged ports.
fn open(one: NetworkSocket) -> Result<OwnedFd, Errno> {
    let kind = match one.transport {
        Transport::Tcp => SockType::Stream,
        Transport::Udp => SockType::Datagram,
    };
    let made = socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, None)?;
    bind(made.as_raw_fd(), &SockaddrIn::from(one.address))?;
    if one.transport == Transport::Tcp {
        listen(&made, Backlog::new(BACKLOG)?)?;
    }
    Ok(made)
}

/// A socket for requests about the interfaces of a network namespace (rtnetlink(7)).
struct Netlink(OwnedFd);

impl Netlink {
    fn open() -> Result<Self, Errno> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Self(socket))
    }

    /// Sends a change request and checks the kernel's acknowledgement, which is queued before send(2) returns.
    fn execute(&self, request: &[u8]) -> Result<(), Errno> {
        send(self.0.as_raw_fd(), request, MsgFlags::empty())?;
        let mut reply = [0; 256];
        let length = recv(self.0.as_raw_fd(), &mut reply, MsgFlags::MSG_DONTWAIT)?;
        check_ack(&reply[..length])
    }
}

// linux/netlink.h, linux/rtnetlink.h, linux/if.h
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const IFF_UP: u32 = 1;
const AF_INET: u8 = 2;
const RT_SCOPE_HOST: u8 = 254;
const IFA_LOCAL: u16 = 2;

/// The index of the loopback interface, the first of every namespace (`LOOPBACK_IFINDEX` of net/flow.h).
const LOOPBACK: i32 = 1;

/// Returns a message of 32 bytes with its `struct nlmsghdr` filled in.
fn request(kind: u16) -> [u8; 32] {
    let mut message = [0; 32];
    message[..4].copy_from_slice(&32_u32.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    message
}

/// Returns a request that sets `IFF_UP` on the loopback interface (`struct ifinfomsg`).
fn up() -> [u8; 32] {
    let mut message = request(RTM_NEWLINK);
    message[20..24].copy_from_slice(&LOOPBACK.to_ne_bytes());
    message[24..28].copy_from_slice(&IFF_UP.to_ne_bytes());
    message[28..].copy_from_slice(&IFF_UP.to_ne_bytes());
    message
}

/// Returns a request that adds an address to the loopback interface, without a route to other addresses (`struct
/// ifaddrmsg` and one `struct rtattr`).
fn new_address(address: Ipv4Addr) -> [u8; 32] {
    let mut message = request(RTM_NEWADDR);
    let (all_bits, no_flags) = (32, 0);
    message[16..20].copy_from_slice(&[AF_INET, all_bits, no_flags, RT_SCOPE_HOST]);
    message[20..24].copy_from_slice(&LOOPBACK.to_ne_bytes());
    message[24..26].copy_from_slice(&8_u16.to_ne_bytes());
    message[26..28].copy_from_slice(&IFA_LOCAL.to_ne_bytes());
    message[28..].copy_from_slice(&address.octets());
    message
}

/// Parses `struct nlmsgerr`, whose error is 0 or a negative errno.
fn check_ack(reply: &[u8]) -> Result<(), Errno> {
    let kind = reply.get(4..6).and_then(|it| it.try_into().ok());
    let error = reply.get(16..20).and_then(|it| it.try_into().ok());
    match (kind.map(u16::from_ne_bytes), error.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(errno)) => Err(Errno::from_raw(-errno)),
        _ => Err(Errno::EPROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_acknowledgement_is_success() {
        let reply = |kind: u16, errno: i32| {
            let mut reply = [0; 36];
            reply[4..6].copy_from_slice(&kind.to_ne_bytes());
            reply[16..20].copy_from_slice(&errno.to_ne_bytes());
            reply
        };
        assert_eq!(check_ack(&reply(NLMSG_ERROR, 0)), Ok(()));
        assert_eq!(
            check_ack(&reply(NLMSG_ERROR, -libc::EPERM)),
            Err(Errno::EPERM)
        );
        assert_eq!(check_ack(&reply(RTM_NEWLINK, 0)), Err(Errno::EPROTO));
        assert_eq!(check_ack(&[]), Err(Errno::EPROTO));
    }
}
