//! The DNS resolver of a guest.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use sandfork_egress::dns::{Answer, RecordKind};
use sandfork_egress::refusal::{Failure, Refusal, Verdict};

use crate::scene::{Scene, Setup, exchange, rule};
use crate::servers::{Answers, Resolver, Server};

#[test]
fn names_of_the_policy_have_made_up_addresses() {
    let rules = [
        r#"{"host":"a.example"}"#.to_owned(),
        r#"{"host":"*.b.example"}"#.to_owned(),
    ];
    let scene = Setup::new(&rules, &[]).start(&[]);
    let address = |last| Answer::Addresses(vec![Ipv4Addr::new(127, 1, 0, last).into()]);
    assert_eq!(scene.query("a.example", RecordKind::A), address(2));
    assert_eq!(scene.query("x.b.example", RecordKind::A), address(3));
    assert_eq!(scene.query("A.EXAMPLE", RecordKind::A), address(2));
    let none = Answer::Addresses(vec![]);
    assert_eq!(scene.query("a.example", RecordKind::Aaaa), none);
    let local = Answer::Addresses(vec![Ipv4Addr::LOCALHOST.into()]);
    assert_eq!(scene.query("localhost", RecordKind::A), local);
}

#[test]
fn unknown_name_is_never_sent_to_a_resolver() {
    let resolver = Resolver::new(vec![vec![]], Answers::OverUdp);
    let mut setup = Setup::new(&[r#"{"host":"a.example"}"#.to_owned()], &[]);
    setup.servers = vec![resolver.address];
    let scene = setup.start(&[]);
    for name in [
        "secret-data.evil.example",
        "b.a.example",
        "example",
        "2130706433",
    ] {
        assert_eq!(scene.query(name, RecordKind::A), Answer::NoName, "{name}");
    }
    // The proxy does not resolve it either.
    for target in ["secret-data.evil.example:443", "x.a.example:443"] {
        let (head, _) = scene.tunnel(target);
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    }
    let report = scene.report();
    let refused = |host: &str, port| {
        let mut all = report.connections.iter();
        all.any(|it| {
            it.host == host && it.port == port && it.verdict == Verdict::Refused(Refusal::Host)
        })
    };
    assert!(refused("secret-data.evil.example", None), "{report:?}");
    assert!(refused("secret-data.evil.example", Some(443)), "{report:?}");
    assert_eq!(*resolver.questions.lock().expect("no panic"), [""; 0]);
}

/// Returns the server's response to a guest that connects to it as `a.example`.
fn response_of(scene: &Scene, server: &Server) -> String {
    let mut stream = scene.connect("a.example", server.port);
    let request = format!(
        "GET / HTTP/1.1\r\nHost: a.example:{}\r\nConnection: close\r\n\r\n",
        server.port
    );
    exchange(&mut stream, &request)
}

#[test]
fn allowed_name_is_resolved_by_the_hosts_resolver() {
    let server = Server::http();
    for answers in [Answers::OverUdp, Answers::OverTcp] {
        let resolver = Resolver::new(vec![vec![Ipv4Addr::LOCALHOST.into()]], answers);
        let rule = rule(server.port, "");
        let mut setup = Setup::new(&[rule], &[]);
        setup.servers = vec![resolver.address];
        let scene = setup.start(&[server.port]);
        let answer = response_of(&scene, &server);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answers:?} {answer}");
        let questions = resolver.questions.lock().expect("no panic").clone();
        assert!(
            questions.iter().all(|name| name == "a example"),
            "{questions:?}"
        );
        assert_eq!(questions.len(), 2);
    }
}

/// The resolver returns more IPv6 addresses than are tried, ahead of the one that is reachable.
#[test]
fn host_with_many_ipv6_addresses_is_reached_over_ipv4() {
    let server = Server::http();
    let mut addresses = vec![Ipv6Addr::LOCALHOST.into(); 9];
    addresses.push(Ipv4Addr::LOCALHOST.into());
    let resolver = Resolver::new(vec![addresses], Answers::OverUdp);
    let mut setup = Setup::new(&[rule(server.port, "")], &[]);
    setup.servers = vec![resolver.address];
    let scene = setup.start(&[server.port]);
    let answer = response_of(&scene, &server);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn unresolved_name_is_reported() {
    let resolver = Resolver::new(vec![vec![]], Answers::OverUdp);
    let mut setup = Setup::new(&[r#"{"host":"a.example"}"#.to_owned()], &[]);
    setup.servers = vec![resolver.address];
    let scene = setup.start(&[]);
    let (head, mut stream) = scene.tunnel("a.example:443");
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    let text = exchange(&mut stream, "");
    assert!(text.contains("the name does not exist"), "{text}");
    scene.await_verdict(Verdict::Failed(Failure::Unresolved));
}

#[test]
fn silent_resolvers_are_reported_as_a_resolver_failure() {
    let silent = [(); 3].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    let mut setup = Setup::new(&[r#"{"host":"a.example"}"#.to_owned()], &[]);
    let addresses = silent.iter().map(UdpSocket::local_addr);
    setup.servers = addresses.collect::<Result<_, _>>().expect("they are bound");
    let scene = setup.start(&[]);
    let (head, _) = scene.tunnel("a.example:443");
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    scene.await_verdict(Verdict::Failed(Failure::Resolver));
}
