//! The limits that apply to each worker.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sandfork_egress::dns::{Answer, RecordKind};
use sandfork_egress::refusal::{Refusal, Verdict};

use crate::scene::{Scene, Setup, read_all, read_head, rule};
use crate::servers::Server;

fn setup(port: u16) -> Setup {
    let rule = format!(r#"{{"host":"db.example","ports":[{port}],"private":true,"raw":true}}"#);
    Setup::new(&[rule], &["db.example"])
}

/// Opens a connection and verifies that it works.
fn open(scene: &Scene, port: u16) -> Option<TcpStream> {
    let mut stream = scene.connect("db.example", port);
    stream.write_all(b"x").ok()?;
    stream.read_exact(&mut [0]).ok()?;
    Some(stream)
}

#[test]
fn concurrent_connections_are_limited() {
    let server = Server::echo();
    let mut setup = setup(server.port);
    setup.connections = 3;
    let scene = setup.start(&[server.port]);
    let mut held: Vec<TcpStream> = (0..3).filter_map(|_| open(&scene, server.port)).collect();
    assert_eq!(held.len(), 3);
    assert!(open(&scene, server.port).is_none());
    scene.await_verdict(Verdict::Refused(Refusal::Connections));
    held.pop();
    scene.await_report(|report| {
        report
            .connections
            .iter()
            .any(|it| !it.open && it.verdict == Verdict::Allowed)
    });
    assert!(open(&scene, server.port).is_some());
}

#[test]
fn byte_quota_ends_connections() {
    let server = Server::echo();
    let mut setup = setup(server.port);
    setup.bytes = 100_000;
    let scene = setup.start(&[server.port]);
    let mut stream = open(&scene, server.port).expect("the rules allow it");
    let sent = stream.try_clone().expect("a copy");
    let write = std::thread::spawn(move || (&sent).write_all(&vec![0; 10_000_000]));
    let received = read_all(&mut stream).len();
    // The guest writes to a closed connection.
    write.join().expect("no panic").expect_err("it is cut off");
    assert!(received < 100_000, "{received}");
    let report = scene.await_verdict(Verdict::Refused(Refusal::Bytes));
    assert!(report.sent + report.received <= 100_000, "{report:?}");
    assert!(open(&scene, server.port).is_none());
}

#[test]
fn byte_quota_applies_after_an_upgrade() {
    let server = Server::websocket();
    let mut setup = Setup::new(&[rule(server.port, "")], &["a.example"]);
    setup.bytes = 100_000;
    let scene = setup.start(&[server.port]);
    let mut stream = scene.connect("a.example", server.port);
    let request = format!(
        "GET / HTTP/1.1\r\nHost: a.example:{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        server.port
    );
    stream
        .write_all(request.as_bytes())
        .expect("the peer reads");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101"));
    let sent = stream.try_clone().expect("a copy");
    let write = std::thread::spawn(move || (&sent).write_all(&vec![0; 10_000_000]));
    assert!(read_all(&mut stream).len() < 100_000);
    write.join().expect("no panic").expect_err("it is cut off");
    scene.await_verdict(Verdict::Refused(Refusal::Bytes));
}

/// More connections than the host has ports for one destination within a minute.
#[test]
fn new_connections_are_rate_limited() {
    let server = Server::echo();
    let mut setup = setup(server.port);
    setup.connections = 10;
    let scene = setup.start(&[server.port]);
    let address = scene.address_of("db.example");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let address = (address, server.port).into();
        // Waits in the backlog and times out there.
        _ = TcpStream::connect_timeout(&address, Duration::from_millis(50));
    }
    let count = server.count();
    assert!(count <= max_connections(begun), "{count}");
}

/// The burst of ten, and fifty for each second since, including the current one.
fn max_connections(begun: Instant) -> usize {
    10 + 50 * (usize::try_from(begun.elapsed().as_secs()).expect("a short time") + 1)
}

/// Requests on one proxy connection, each of which needs a new connection to a host.
#[test]
fn upstream_connections_are_rate_limited() {
    let server = Server::http();
    let hosts = ["a.example", "b.example"];
    let rules = hosts.map(|host| {
        format!(
            r#"{{"host":"{host}","ports":[{}],"private":true}}"#,
            server.port
        )
    });
    let mut setup = Setup::new(&rules, &hosts);
    setup.connections = 10;
    let scene = setup.start(&[]);
    let mut stream = scene.connect_proxy();
    let begun = Instant::now();
    let mut nth = 0;
    while begun.elapsed() < Duration::from_secs(2) {
        let authority = format!("{}:{}", hosts[nth % 2], server.port);
        // The server echoes the request head as the body.
        let request = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .expect("the peer reads");
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
        assert!(read_head(&mut stream).starts_with("GET / "));
        nth += 1;
    }
    assert_eq!(server.count(), nth);
    assert!(nth <= max_connections(begun), "{nth}");
}

#[test]
fn number_of_names_is_limited() {
    let scene = Setup::new(&[r#"{"host":"*.b.example"}"#.to_owned()], &[]).start(&[]);
    let answers = (0..1100).map(|nth| scene.query(&format!("{nth}.b.example"), RecordKind::A));
    let known = answers
        .filter(|it| matches!(it, Answer::Addresses(_)))
        .count();
    assert_eq!(known, 1024);
    scene.await_verdict(Verdict::Refused(Refusal::Names));
}

/// A connection that sends nothing, or never completes its first message, does not block others and times out.
#[test]
fn slow_connections_do_not_delay_others() {
    let server = Server::http();
    let rule = rule(server.port, "");
    let scene = Setup::new(&[rule], &["a.example"]).start(&[server.port]);
    let openings: [&[u8]; 4] = [b"", b"GET / HTT", &[22, 3, 1], &[5, 1]];
    let slow: Vec<TcpStream> = (0..40)
        .map(|nth| {
            let mut stream = match nth % 2 {
                0 => scene.connect("a.example", server.port),
                _ => scene.connect_proxy(),
            };
            stream
                .write_all(openings[nth / 2 % 4])
                .expect("the peer reads");
            stream
        })
        .collect();
    let mut stream = scene.connect("a.example", server.port);
    let request = format!("GET / HTTP/1.1\r\nHost: a.example:{}\r\n\r\n", server.port);
    stream
        .write_all(request.as_bytes())
        .expect("the peer reads");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
    // Longer than each timeout. The longest applies to the head of a request that has begun.
    for mut stream in slow {
        stream
            .set_read_timeout(Some(Duration::from_secs(90)))
            .expect("a time");
        let mut last = [0; 256];
        while matches!(stream.read(&mut last), Ok(1..)) {}
    }
    assert_eq!(server.count(), 1);
}
