//! Attacks through names and addresses: names whose address changes, and alternative spellings of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sandfork_egress::refusal::{Refusal, Verdict};

use crate::scene::{Setup, exchange, rule};
use crate::servers::{Answers, Resolver, Server};

/// The owner of an allowed name resolves it to addresses of this machine.
#[test]
fn name_that_resolves_to_this_machine_is_refused() {
    let server = Server::http();
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    let translated: Ipv6Addr = "64:ff9b::7f00:1".parse().expect("an address");
    let tunnelled: Ipv6Addr = "2002:7f00:1::".parse().expect("an address");
    let table: [(IpAddr, Refusal); 7] = [
        (Ipv4Addr::LOCALHOST.into(), Refusal::OwnAddress),
        (Ipv6Addr::LOCALHOST.into(), Refusal::OwnAddress),
        (mapped.into(), Refusal::OwnAddress),
        (translated.into(), Refusal::OwnAddress),
        (tunnelled.into(), Refusal::UnusableAddress),
        (Ipv4Addr::UNSPECIFIED.into(), Refusal::UnusableAddress),
        (
            Ipv4Addr::new(169, 254, 169, 254).into(),
            Refusal::MetadataAddress,
        ),
    ];
    for (address, refusal) in table {
        let resolver = Resolver::new(vec![vec![address]], Answers::OverUdp);
        let rule = format!(r#"{{"host":"a.example","ports":[{}]}}"#, server.port);
        let mut setup = Setup::new(&[rule], &[]);
        setup.servers = vec![resolver.address];
        let scene = setup.start(&[server.port]);
        let (head, mut stream) = scene.tunnel(&format!("a.example:{}", server.port));
        assert!(head.starts_with("HTTP/1.1 403"), "{address}: {head}");
        let text = exchange(&mut stream, "");
        assert!(text.contains(refusal.as_words()), "{address}: {text}");
        scene.await_verdict(Verdict::Refused(refusal));
    }
    assert_eq!(server.count(), 0);
}

/// DNS rebinding: the resolver alternates between a public and a forbidden address.
#[test]
fn connection_goes_to_the_address_that_was_checked() {
    let server = Server::http();
    let good: IpAddr = Ipv4Addr::LOCALHOST.into();
    let bad: IpAddr = Ipv4Addr::new(169, 254, 169, 254).into();
    let resolver = Resolver::new(vec![vec![good], vec![bad]], Answers::OverUdp);
    let rule = rule(server.port, "");
    let mut setup = Setup::new(&[rule], &[]);
    setup.servers = vec![resolver.address];
    let scene = setup.start(&[server.port]);
    let target = format!("a.example:{}", server.port);
    for expected in ["200", "403", "200", "403"] {
        let (head, _) = scene.tunnel(&target);
        assert!(head.starts_with(&format!("HTTP/1.1 {expected}")), "{head}");
    }
    // One query for each address family and connection.
    assert_eq!(resolver.questions.lock().expect("no panic").len(), 8);
    let report = scene.report();
    let dialled: Vec<_> = report
        .connections
        .iter()
        .filter_map(|it| it.address)
        .collect();
    assert_eq!(dialled, [good, good]);
}

/// Forbidden addresses are skipped.
#[test]
fn allowed_address_next_to_a_forbidden_one_is_used() {
    let server = Server::http();
    let addresses = vec![
        Ipv4Addr::new(169, 254, 169, 254).into(),
        Ipv4Addr::LOCALHOST.into(),
    ];
    let resolver = Resolver::new(vec![addresses], Answers::OverUdp);
    let rule = rule(server.port, "");
    let mut setup = Setup::new(&[rule], &[]);
    setup.servers = vec![resolver.address];
    let scene = setup.start(&[]);
    let (head, _) = scene.tunnel(&format!("a.example:{}", server.port));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

/// The owner of a name chooses how many addresses it has. Only the first ones are checked.
#[test]
fn allowed_address_after_many_forbidden_ones_is_ignored() {
    let server = Server::http();
    for (bad, expected) in [(40, "200"), (64, "403"), (100, "403")] {
        let mut addresses = vec![Ipv4Addr::new(169, 254, 169, 254).into(); bad];
        addresses.push(Ipv4Addr::LOCALHOST.into());
        let resolver = Resolver::new(vec![addresses], Answers::OverTcp);
        let rule = rule(server.port, "");
        let mut setup = Setup::new(&[rule], &[]);
        setup.servers = vec![resolver.address];
        let scene = setup.start(&[]);
        let (head, _) = scene.tunnel(&format!("a.example:{}", server.port));
        let expected = format!("HTTP/1.1 {expected} ");
        assert!(head.starts_with(&expected), "{bad}: {head}");
    }
}

/// The guest names this machine in every spelling that some library parses as an address.
#[test]
fn no_spelling_of_a_forbidden_address_is_allowed() {
    let server = Server::http();
    let rules = [
        r#"{"host":"a.example"}"#.to_owned(),
        r#"{"host":"*.b.example"}"#.to_owned(),
    ];
    let scene = Setup::new(&rules, &["a.example"]).start(&[]);
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[::127.0.0.1]",
        "localhost",
        "a.example@127.0.0.1",
        "127.0.0.1#.a.example",
        "169.254.169.254",
    ] {
        let (head, _) = scene.tunnel(&format!("{host}:{}", server.port));
        let is_refused = head.starts_with("HTTP/1.1 403") || head.starts_with("HTTP/1.1 400");
        assert!(is_refused, "{host}: {head}");
        let request = format!(
            "GET http://{host}:{0}/ HTTP/1.1\r\nHost: {host}:{0}\r\nConnection: close\r\n\r\n",
            server.port
        );
        let answer = exchange(&mut scene.connect_proxy(), &request);
        let is_refused = answer.starts_with("HTTP/1.1 403") || answer.starts_with("HTTP/1.1 400");
        assert!(is_refused, "{host}: {answer}");
    }
    assert_eq!(server.count(), 0);
}

/// The address of a network interface is not a loopback address, but reaches this machine.
#[test]
fn interface_address_counts_as_this_machine() {
    let Some(own) = address_of_an_interface() else {
        return eprintln!("this machine has only loopback addresses");
    };
    let resolver = Resolver::new(vec![vec![own]], Answers::OverUdp);
    let mut setup = Setup::new(&[r#"{"host":"a.example"}"#.to_owned()], &[]);
    setup.servers = vec![resolver.address];
    let scene = setup.start(&[]);
    let (head, _) = scene.tunnel("a.example:443");
    assert!(head.starts_with("HTTP/1.1 403"), "{own}: {head}");
    scene.await_verdict(Verdict::Refused(Refusal::OwnAddress));
}

fn address_of_an_interface() -> Option<IpAddr> {
    let table = std::fs::read_to_string("/proc/net/fib_trie").ok()?;
    let lines: Vec<&str> = table.lines().collect();
    let locals = lines
        .windows(2)
        .filter(|pair| pair[1].contains("/32 host LOCAL"));
    let addresses = locals.filter_map(|pair| pair[0].rsplit(' ').next()?.parse::<Ipv4Addr>().ok());
    addresses
        .filter(|it| !it.is_loopback())
        .map(IpAddr::V4)
        .next()
}
