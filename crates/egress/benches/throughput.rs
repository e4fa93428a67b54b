//! How fast a guest's connection carries bytes from a host, beside a direct connection of the same two programs:
//! `cargo bench -p sandfork-egress`.
#![allow(
    missing_docs,
    dead_code,
    unused_imports,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a bench that uses what the tests have"
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
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustls::{ServerConnection, StreamOwned};

use crate::scene::{Setup, connect, read_head, rule};
use crate::servers::Server;
use crate::tls::{Hosts, client};

/// What each connection carries.
const BYTES: usize = 1 << 30;
const MEBIBYTES: u32 = 1 << 10;
/// Each kind is measured so often, in turns with the direct one.
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

/// MiB a second.
fn receive(stream: &mut (impl Read + Write), port: u16) -> f64 {
    let start = Instant::now();
    let request = REQUEST.replace("PORT", &port.to_string());
    stream.write_all(request.as_bytes()).expect("it reads");
    read_head(stream);
    let (mut buffer, mut received) = (vec![0; 1 << 18], 0);
    while received < BYTES {
        match stream.read(&mut buffer).expect("it sends") {
            0 => panic!("it ended after {received}"),
            length => received += length,
        }
    }
    f64::from(MEBIBYTES) / start.elapsed().as_secs_f64()
}

fn report(name: &str, aim: f64, mut rates: Vec<[f64; 2]>) {
    let middle = |which: usize, rates: &mut Vec<[f64; 2]>| {
        rates.sort_by(|one, other| one[which].total_cmp(&other[which]));
        rates[rates.len() / 2][which]
    };
    let (direct, ours) = (middle(0, &mut rates), middle(1, &mut rates));
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
    let rounds = (0..ROUNDS).map(|_| {
        let direct = receive(&mut connect((Ipv4Addr::LOCALHOST, plain.port)), plain.port);
        let ours = receive(&mut scene.connect("a.example", plain.port), plain.port);
        [direct, ours]
    });
    report("raw", 80.0, rounds.collect());
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
    let theirs = std::fs::read_to_string(hosts.file()).expect("it is there");
    let rounds = (0..ROUNDS).map(|_| {
        let measured = |trusted: &str, stream: TcpStream| {
            receive(&mut client(trusted, "a.example", stream), secure.port)
        };
        let direct = measured(&theirs, connect((Ipv4Addr::LOCALHOST, secure.port)));
        let ours = scene.connect("a.example", secure.port);
        [direct, measured(&scene.authority.certificate, ours)]
    });
    report("TLS that ends in the process", 50.0, rounds.collect());
}
