//! Guests that use the proxy, and an upstream proxy between the process and hosts.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;

use sandfork_egress::control::Proxy;
use sandfork_egress::refusal::{Failure, Refusal, Verdict};

use crate::scene::{Scene, Setup, exchange, read_head};
use crate::servers::Server;

fn rules(port: u16) -> [String; 2] {
    [
        format!(r#"{{"host":"db.example","ports":[{port}],"private":true,"raw":true}}"#),
        format!(r#"{{"host":"127.0.0.1","ports":[{port}],"private":true,"raw":true}}"#),
    ]
}

fn echoes(stream: &mut TcpStream) {
    stream.write_all(b"hello").expect("the peer reads");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("the peer answers");
    assert_eq!(&answer, b"hello");
}

#[test]
fn connect_opens_a_tunnel_to_the_named_host() {
    let server = Server::echo();
    let scene = Setup::new(&rules(server.port), &["db.example"]).start(&[]);
    for host in [
        "db.example",
        "DB.Example.",
        "127.0.0.1",
        "[::ffff:127.0.0.1]",
    ] {
        let (head, mut stream) = scene.tunnel(&format!("{host}:{}", server.port));
        assert!(head.starts_with("HTTP/1.1 200"), "{host}: {head}");
        echoes(&mut stream);
    }
}

#[test]
fn bytes_sent_with_connect_are_forwarded() {
    let server = Server::echo();
    let scene = Setup::new(&rules(server.port), &["db.example"]).start(&[]);
    let mut stream = scene.connect_proxy();
    let target = format!("db.example:{}", server.port);
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\nat once");
    stream
        .write_all(request.as_bytes())
        .expect("the peer reads");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).expect("the peer answers");
    assert_eq!(&answer, b"at once");
}

fn socks(scene: &Scene, request: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut stream = scene.connect_proxy();
    stream.write_all(&[5, 1, 0]).expect("the peer reads");
    let mut welcome = [0; 2];
    stream.read_exact(&mut welcome).expect("the peer answers");
    assert_eq!(welcome, [5, 0]);
    stream.write_all(request).expect("the peer reads");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("the peer answers");
    (stream, answer.to_vec())
}

fn socks_name(name: &str, port: u16) -> Vec<u8> {
    let length = u8::try_from(name.len()).expect("short");
    [&[5, 1, 0, 3, length], name.as_bytes(), &port.to_be_bytes()].concat()
}

#[test]
fn socks_connects_to_names_and_addresses() {
    let server = Server::echo();
    let scene = Setup::new(&rules(server.port), &["db.example"]).start(&[]);
    let address = [&[5, 1, 0, 1, 127, 0, 0, 1], &server.port.to_be_bytes()[..]].concat();
    for request in [socks_name("db.example", server.port), address] {
        let (mut stream, answer) = socks(&scene, &request);
        assert_eq!(answer[1], 0, "{request:?}");
        echoes(&mut stream);
    }
    let other = Ipv4Addr::new(127, 0, 0, 2).octets();
    let other = [&[5, 1, 0, 1], &other[..], &server.port.to_be_bytes()].concat();
    for request in [
        socks_name("other.example", server.port),
        socks_name("db.example", 1),
        other,
    ] {
        let (_, answer) = socks(&scene, &request);
        assert_eq!(answer[1], 2, "{request:?}");
    }
}

#[test]
fn longest_socks_name_may_arrive_in_two_segments() {
    // The longest valid host name.
    let name = [
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(61),
    ]
    .join(".");
    let server = Server::echo();
    let rule = format!(
        r#"{{"host":"{name}","ports":[{}],"private":true,"raw":true}}"#,
        server.port
    );
    let scene = Setup::new(&[rule], &[&name]).start(&[]);
    let request = socks_name(&name, server.port);
    let (first, last) = request.split_at(request.len() - 1);
    let mut stream = scene.connect_proxy();
    stream.write_all(&[5, 1, 0]).expect("the peer reads");
    stream.read_exact(&mut [0; 2]).expect("the peer answers");
    stream.write_all(first).expect("the peer reads");
    // Nothing indicates that the process has read the first segment.
    std::thread::sleep(Duration::from_millis(200));
    stream.write_all(last).expect("the peer reads");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("the peer answers");
    assert_eq!(answer[1], 0);
    echoes(&mut stream);
}

#[test]
fn malformed_proxy_request_is_reported() {
    let scene = Setup::new(&[], &[]).start(&[]);
    for request in ["\x00\x01\x02", "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"] {
        _ = exchange(&mut scene.connect_proxy(), request).len();
        scene.await_verdict(Verdict::Refused(Refusal::Malformed));
    }
}

/// Starts a proxy that connects every request to one port and records the request heads.
fn proxy_to(port: u16) -> Server {
    Server::new(move |mut stream, own| {
        let head = read_head(&mut stream);
        own.heads.lock().expect("no panic").push(head.clone());
        if head.starts_with("CONNECT refused.example") {
            let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
            stream.write_all(refusal).expect("the peer reads");
            return;
        }
        let mut host = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the peer listens");
        if head.starts_with("CONNECT ") {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\n")
                .expect("the peer reads");
        } else {
            host.write_all(head.as_bytes()).expect("the peer reads");
        }
        let (mut from, mut to) = (stream.try_clone().unwrap(), host.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        _ = std::io::copy(&mut host, &mut stream);
    })
}

#[test]
fn public_hosts_are_reached_through_the_policys_proxy() {
    let server = Server::http();
    let upstream = proxy_to(server.port);
    let rules = [
        r#"{"host":"a.example","ports":[80,443]}"#.to_owned(),
        r#"{"host":"refused.example","raw":true}"#.to_owned(),
        r#"{"host":"raw.example","raw":true}"#.to_owned(),
    ];
    // The process must not resolve any name: there is no resolver.
    let mut setup = Setup::new(&rules, &[]);
    setup.proxy = Some(Proxy {
        host: "127.0.0.1".parse().expect("an address"),
        port: upstream.port,
        authorization: Some("Basic dXNlcjpwYXNz".to_owned()),
    });
    let scene = setup.start(&[]);
    let mut stream = scene.connect_proxy();
    let request = "GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    let answer = exchange(&mut stream, request);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (head, mut stream) = scene.tunnel("raw.example:443");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    stream
        .write_all(b"GET /y HTTP/1.1\r\nHost: z\r\n\r\n")
        .expect("the peer reads");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
    let (head, _) = scene.tunnel("refused.example:443");
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    let heads = upstream.heads();
    assert!(
        heads[0].starts_with("GET http://a.example/x HTTP/1.1\r\n"),
        "{heads:?}"
    );
    assert!(
        heads[1].starts_with("CONNECT raw.example:443 HTTP/1.1\r\n"),
        "{heads:?}"
    );
    let authorized = "proxy-authorization: basic dxnlcjpwyxnz";
    let all = heads
        .iter()
        .take(2)
        .all(|head| head.to_lowercase().contains(authorized));
    assert!(all, "{heads:?}");
    // The proxy's address is not reported as the host's.
    let report = scene.await_report(|report| report.count >= 3);
    let addresses: Vec<Option<IpAddr>> = report.connections.iter().map(|it| it.address).collect();
    assert!(addresses.iter().all(Option::is_none), "{addresses:?}");
}

#[test]
fn silent_proxy_is_reported_as_a_proxy_failure() {
    let silent = Server::new(|mut stream, _| _ = stream.read_to_end(&mut Vec::new()));
    let rules = [r#"{"host":"raw.example","raw":true}"#.to_owned()];
    let mut setup = Setup::new(&rules, &[]);
    setup.proxy = Some(Proxy {
        host: "127.0.0.1".parse().expect("an address"),
        port: silent.port,
        authorization: None,
    });
    let scene = setup.start(&[]);
    let (head, _) = scene.tunnel("raw.example:443");
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    scene.await_verdict(Verdict::Failed(Failure::Proxy));
}
