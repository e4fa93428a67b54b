//! Measures the throughput of a guest's connection to a host, relative to a direct connection between the same two
//! programs and to a minimal relay between them: `cargo bench -p sandfork-egress`.
#![allow(
    missing_docs,
    dead_code,
    unused_imports,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a bench that shares modules with the tests"
)]

#[path = "../tests/process/http2.rs"]
mod http2;
#[path = "../tests/process/scene.rs"]
mod scene;
#[path = "../tests/process/servers.rs"]
mod servers;
#[path = "../tests/process/tls.rs"]
mod tls;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice};
use nix::unistd::pipe;
use rustls::{ServerConnection, StreamOwned};

use crate::scene::{Setup, connect, read_head, rule};
use crate::servers::Server;
use crate::tls::{Hosts, client};

/// Bytes transferred on each connection.
const BYTES: usize = 1 << 30;
const MEBIBYTES: u32 = 1 << 10;
/// Measurements of each kind, alternating with the direct connection.
const ROUNDS: usize = 7;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a.example:PORT\r\nConnection: close\r\n\r\n";

fn send(stream: &mut impl Write) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n");
    let chunk = vec![b'x'; 1 << 18];
    let mut sent = stream.write_all(head.as_bytes());
    for _ in 0..BYTES / chunk.len() {
        sent = sent.and_then(|()| stream.write_all(&chunk));
    }
    _ = sent.and_then(|()| stream.flush());
}

/// Returns the throughput in MiB/s.
fn receive(stream: &mut (impl Read + Write), port: u16) -> f64 {
    let start = Instant::now();
    let request = REQUEST.replace("PORT", &port.to_string());
    stream
        .write_all(request.as_bytes())
        .expect("the peer reads");
    read_head(stream);
    let (mut buffer, mut received) = (vec![0; 1 << 18], 0);
    while received < BYTES {
        match stream.read(&mut buffer).expect("the peer sends") {
            0 => panic!("it ended after {received}"),
            length => received += length,
        }
    }
    f64::from(MEBIBYTES) / start.elapsed().as_secs_f64()
}

/// Starts a minimal relay and returns its port: a thread and a pipe for each direction, two system calls for each
/// chunk, and no limits, names or accounting.
fn bare_relay(port: u16) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let own = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for guest in listener.incoming() {
            let guest = guest.expect("a connection");
            let host = connect((Ipv4Addr::LOCALHOST, port));
            let one_way = |from: TcpStream, to: TcpStream| {
                let (read, write) = pipe().expect("a pipe");
                let capacity = fcntl(&write, FcntlArg::F_SETPIPE_SZ(1 << 18)).expect("room");
                let capacity = usize::try_from(capacity).expect("a size");
                let flags = SpliceFFlags::SPLICE_F_MOVE;
                while let Ok(mut held @ 1..) = splice(&from, None, &write, None, capacity, flags) {
                    while held > 0 {
                        match splice(&read, None, &to, None, held, flags) {
                            Ok(moved) => held -= moved,
                            Err(_) => return,
                        }
                    }
                }
                _ = to.shutdown(Shutdown::Write);
            };
            let (from, to) = (
                guest.try_clone().expect("a copy"),
                host.try_clone().expect("a copy"),
            );
            thread::spawn(move || one_way(from, to));
            one_way(host, guest);
        }
    });
    own
}

fn median(rates: impl Iterator<Item = f64>) -> f64 {
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Prints the medians. Each round holds the direct rate first and the rate through the process second.
fn report<const KINDS: usize>(name: &str, aim: f64, rates: &[[f64; KINDS]]) {
    let direct = median(rates.iter().map(|rates| rates[0]));
    let ours = median(rates.iter().map(|rates| rates[1]));
    println!(
        "{name}: {ours:.0} MiB/s, {:.0} % of {direct:.0} directly (aim {aim} %)",
        100.0 * ours / direct
    );
}

fn main() {
    let plain = Server::new(|mut stream, _| {
        read_head(&mut stream);
        send(&mut stream);
    });
    let mut setup = Setup::new(&[rule(plain.port, r#","raw":true"#)], &["a.example"]);
    setup.bytes = u64::MAX;
    let scene = setup.start(&[plain.port]);
    let bare_port = bare_relay(plain.port);
    let rounds = (0..ROUNDS).map(|_| {
        let through = |mut stream| receive(&mut stream, plain.port);
        let direct = through(connect((Ipv4Addr::LOCALHOST, plain.port)));
        let ours = through(scene.connect("a.example", plain.port));
        let bare = through(connect((Ipv4Addr::LOCALHOST, bare_port)));
        [direct, ours, bare]
    });
    let rounds: Vec<[f64; 3]> = rounds.collect();
    report("raw", 80.0, &rounds);
    let of_bare = median(rounds.iter().map(|[_, ours, bare]| 100.0 * ours / bare));
    let bare = median(rounds.iter().map(|[direct, _, bare]| 100.0 * bare / direct));
    println!(
        "a bare relay: {bare:.0} % of the direct connection; raw reaches {of_bare:.0} % of the bare relay"
    );
    drop(scene);

    let hosts = Hosts::new("throughput");
    let config = hosts.certify("a.example", &[b"http/1.1"]);
    let secure = Server::new(move |stream, _| {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        let mut stream = StreamOwned::new(connection, stream);
        read_head(&mut stream);
        send(&mut stream);
    });
    let mut setup = Setup::new(
        &[rule(secure.port, r#","methods":["GET"]"#)],
        &["a.example"],
    );
    setup.bytes = u64::MAX;
    setup.trust = Some(hosts.file());
    let scene = setup.start(&[secure.port]);
    let theirs = std::fs::read_to_string(hosts.file()).expect("a readable file");
    let rounds = (0..ROUNDS).map(|_| {
        let measured = |trusted: &str, stream: TcpStream| {
            receive(&mut client(trusted, "a.example", stream), secure.port)
        };
        let direct = measured(&theirs, connect((Ipv4Addr::LOCALHOST, secure.port)));
        let ours = scene.connect("a.example", secure.port);
        [direct, measured(&scene.authority.certificate, ours)]
    });
    report(
        "TLS that ends in the process",
        50.0,
        &rounds.collect::<Vec<_>>(),
    );
}
