//! Raw connections, which may carry any bytes.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, socket};
use sandfork_egress::refusal::{Failure, Verdict};

use crate::scene::{Setup, read_all};
use crate::servers::Server;

fn rule(port: u16) -> String {
    format!(r#"{{"host":"db.example","ports":[{port}],"private":true,"raw":true}}"#)
}

#[test]
fn bytes_are_relayed_unchanged_in_both_directions() {
    let server = Server::echo();
    let scene = Setup::new(&[rule(server.port)], &["db.example"]).start(&[server.port]);
    let mut stream = scene.connect("db.example", server.port);
    let sent: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut writer = stream.try_clone().expect("a copy");
    let expected = sent.clone();
    let write = std::thread::spawn(move || {
        writer.write_all(&sent).expect("the peer reads");
        // EOF is forwarded too, and bytes in the other direction still arrive.
        writer.shutdown(Shutdown::Write).expect("it is open");
    });
    let received = read_all(&mut stream);
    write.join().expect("no panic");
    assert!(received == expected, "{} bytes", received.len());
    let report = scene.await_report(|report| report.connections.iter().any(|it| !it.open));
    assert_eq!(report.count, 1);
    assert_eq!((report.sent, report.received), (4_000_000, 4_000_000));
    let connection = &report.connections[0];
    assert_eq!(connection.host, "db.example");
    assert_eq!(connection.port, Some(server.port));
    assert_eq!(
        connection.address,
        Some("127.0.0.1".parse().expect("an address"))
    );
    assert_eq!(connection.verdict, Verdict::Allowed);
}

#[test]
fn server_may_send_first() {
    let server = Server::new(|mut stream, _| {
        stream.write_all(b"220 ready\r\n").expect("the peer reads");
        _ = stream.read(&mut [0; 16]);
    });
    let scene = Setup::new(&[rule(server.port)], &["db.example"]).start(&[server.port]);
    let mut stream = scene.connect("db.example", server.port);
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).expect("it speaks");
    assert_eq!(&greeting, b"220 ready\r\n");
}

#[test]
fn host_that_does_not_listen_is_unreachable() {
    // Bound, but not listening.
    let (family, kind) = (AddressFamily::Inet, SockType::Stream);
    let silent = socket(family, kind, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    bind(silent.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).expect("a port");
    let bound: SockaddrIn = getsockname(silent.as_raw_fd()).expect("the socket is bound");
    let port = bound.port();
    let scene = Setup::new(&[rule(port)], &["db.example"]).start(&[]);
    let (head, _) = scene.tunnel(&format!("db.example:{port}"));
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    scene.await_verdict(Verdict::Failed(Failure::Unreachable));
}

#[test]
fn closing_the_link_ends_the_workers_connections() {
    let server = Server::echo();
    let mut scene = Setup::new(&[rule(server.port)], &["db.example"]).start(&[server.port]);
    let mut stream = scene.connect("db.example", server.port);
    stream.write_all(b"x").expect("the peer reads");
    stream.read_exact(&mut [0]).expect("the peer answers");
    scene.link = None;
    assert_eq!(read_all(&mut stream), b"");
}

#[test]
fn process_ends_with_its_supervisor() {
    let scene = Setup::new(&[], &[]).start(&[]);
    assert!(scene.end().success());
}
