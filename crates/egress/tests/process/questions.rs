//! Connections that the caller must approve.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};

use sandfork_egress::refusal::{Refusal, Verdict};

use crate::scene::{Scene, Setup, read_all, rule};
use crate::servers::Server;

fn scene() -> (Server, Scene) {
    let server = Server::echo();
    let rules = [rule(server.port, r#","raw":true"#)];
    let mut setup = Setup::new(&rules, &["a.example"]);
    setup.asks = true;
    let scene = setup.start(&[server.port]);
    (server, scene)
}

fn works(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut byte).is_ok()
}

#[test]
fn connection_waits_for_a_decision() {
    let (server, scene) = scene();
    let mut allowed = scene.connect("a.example", server.port);
    let first = scene.question();
    assert_eq!(
        (first.host.as_str(), first.port),
        ("a.example", server.port)
    );
    assert_eq!(first.addresses, [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    // Nothing is sent to the host before the decision.
    assert_eq!(server.count(), 0);
    let mut refused = scene.connect("a.example", server.port);
    let second = scene.question();
    scene.decide(second.question, Some(false));
    assert_eq!(read_all(&mut refused), [0; 0]);
    scene.await_verdict(Verdict::Refused(Refusal::Caller));
    scene.decide(first.question, Some(true));
    assert!(works(&mut allowed));
    assert_eq!(server.count(), 1);
}

#[test]
fn connection_without_a_decision_is_refused() {
    let (server, scene) = scene();
    // One caller fails to decide, another never answers.
    let mut failed = scene.connect("a.example", server.port);
    scene.decide(scene.question().question, None);
    assert_eq!(read_all(&mut failed), [0; 0]);
    let mut ignored = scene.connect("a.example", server.port);
    let question = scene.question().question;
    assert_eq!(read_all(&mut ignored), [0; 0]);
    let is_undecided = |it: &sandfork_egress::control::Connection| {
        it.verdict == Verdict::Refused(Refusal::Undecided) && it.count == 2
    };
    scene.await_report(|report| report.connections.iter().any(is_undecided));
    // Late and unknown decisions are ignored.
    scene.decide(question, Some(true));
    scene.decide(u64::MAX, Some(true));
    // The caller is not asked about a connection that the rules refuse.
    let (head, _) = scene.tunnel("other.example:443");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    assert_eq!(server.count(), 0);
}
