//! Cleartext HTTP requests.

use std::io::{Read, Write};
use std::net::TcpStream;

use sandfork_egress::refusal::{Refusal, Verdict};

use crate::scene::{ECHO_SPELLINGS, Scene, Setup, echo_rules, exchange, read_head, rule};
use crate::servers::Server;

/// Starts a server and a sandbox whose rule allows some requests to it.
fn scene(rest: &str) -> (Server, Scene) {
    let server = Server::http();
    let rules = [rule(server.port, rest)];
    let scene = Setup::new(&rules, &["a.example", "other.example"]).start(&[server.port]);
    (server, scene)
}

/// Sends a request on a new connection, and returns the whole response.
fn ask(scene: &Scene, server: &Server, request: &str) -> String {
    let mut stream = scene.connect("a.example", server.port);
    exchange(
        &mut stream,
        &request.replace("PORT", &server.port.to_string()),
    )
}

#[test]
fn request_reaches_its_host() {
    let (server, scene) = scene("");
    let answer = ask(
        &scene,
        &server,
        "POST /x?y=z HTTP/1.1\r\nHost: A.example:PORT\r\nX-Own: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let heads = server.heads();
    assert!(
        heads[0].starts_with("POST /x?y=z HTTP/1.1\r\n"),
        "{heads:?}"
    );
    let host = format!("host: a.example:{}\r\n", server.port);
    assert!(heads[0].contains(&host), "{heads:?}");
    assert!(heads[0].contains("x-own: 1\r\n"), "{heads:?}");
    let report = scene.await_report(|report| report.connections.iter().any(|it| !it.open));
    assert!(report.sent > 0 && report.received > 0, "{report:?}");
}

#[test]
fn connection_is_kept_alive() {
    let (server, scene) = scene("");
    let mut stream = scene.connect("a.example", server.port);
    for nth in 0..5 {
        let request = format!(
            "GET /{nth} HTTP/1.1\r\nHost: a.example:{}\r\n\r\n",
            server.port
        );
        stream
            .write_all(request.as_bytes())
            .expect("the peer reads");
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
        let body = read_head(&mut stream);
        assert!(body.starts_with(&format!("GET /{nth} ")), "{body}");
    }
    assert_eq!(server.count(), 1);
}

/// A host may close an idle connection at any time.
#[test]
fn closed_upstream_connection_is_replaced() {
    let server = Server::new(|mut stream, own| {
        let head = read_head(&mut stream);
        own.heads.lock().expect("no panic").push(head);
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let rules = [rule(server.port, "")];
    let scene = Setup::new(&rules, &["a.example"]).start(&[server.port]);
    let mut stream = scene.connect("a.example", server.port);
    for _ in 0..3 {
        let request = format!("GET / HTTP/1.1\r\nHost: a.example:{}\r\n\r\n", server.port);
        stream
            .write_all(request.as_bytes())
            .expect("the peer reads");
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
    }
    assert_eq!(server.count(), 3);
}

/// The host may close a connection while a request is in flight. Idempotent requests are then retried.
#[test]
fn idempotent_request_is_retried() {
    let server = Server::new(|mut stream, own| {
        // Each connection answers its first request and is closed at its second.
        for answer in [&b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..], b""] {
            let head = read_head(&mut stream);
            if head.is_empty() {
                return;
            }
            own.heads.lock().expect("no panic").push(head);
            _ = stream.write_all(answer);
        }
    });
    let rules = [rule(server.port, "")];
    let scene = Setup::new(&rules, &["a.example"]).start(&[server.port]);
    for (method, status, heads) in [("GET", 200, 3), ("POST", 502, 2)] {
        server.heads.lock().expect("no panic").clear();
        let mut stream = scene.connect("a.example", server.port);
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: a.example:{}\r\nContent-Length: 0\r\n\r\n",
            server.port
        );
        for expected in [200, status] {
            stream
                .write_all(request.as_bytes())
                .expect("the peer reads");
            let head = read_head(&mut stream);
            let expected = format!("HTTP/1.1 {expected} ");
            assert!(head.starts_with(&expected), "{method}: {head}");
        }
        assert_eq!(server.heads().len(), heads, "{method}");
    }
}

#[test]
fn requests_outside_the_rule_are_refused() {
    let (server, scene) = scene(r#","methods":["GET"],"paths":["/public/*"]"#);
    let request = |line: &str| {
        let request =
            format!("{line} HTTP/1.1\r\nHost: a.example:PORT\r\nConnection: close\r\n\r\n");
        ask(&scene, &server, &request)
    };
    assert!(request("GET /public/x").starts_with("HTTP/1.1 200"));
    for (line, why) in [
        ("POST /public/x", "`methods`"),
        ("TRACE /public/x", "`methods`"),
        ("GET /private", "`paths`"),
        ("GET /public/../private", "`paths`"),
        ("GET /public/%2e%2e/private", "`paths`"),
    ] {
        let answer = request(line);
        assert!(answer.starts_with("HTTP/1.1 403"), "{line}: {answer}");
        assert!(answer.contains(why), "{line}: {answer}");
    }
    assert_eq!(server.heads().len(), 1);
    let report = scene.report();
    let noted = report.connections.iter().find(|it| {
        it.request.as_deref() == Some("GET /private")
            && it.verdict == Verdict::Refused(Refusal::Path)
    });
    assert!(noted.is_some(), "{report:?}");
}

/// The first entry withholds the credential of the second from its paths, in every spelling that some server accepts.
#[test]
fn path_spellings_do_not_get_a_withheld_credential() {
    let server = Server::http();
    let rules = echo_rules(server.port);
    let scene = Setup::new(&rules, &["a.example"]).start(&[server.port]);
    for spelling in ECHO_SPELLINGS {
        let line = format!("GET {spelling} HTTP/1.1\r\nHost: a.example:PORT\r\n");
        let answer = ask(&scene, &server, &format!("{line}Connection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403"), "{spelling}: {answer}");
        assert!(answer.contains("`paths`"), "{spelling}: {answer}");
        let target = format!("http://a.example:{}{spelling}", server.port);
        let line = format!(
            "GET {target} HTTP/1.1\r\nHost: a.example:{}\r\n",
            server.port
        );
        let request = format!("{line}Connection: close\r\n\r\n");
        let answer = exchange(&mut scene.connect_proxy(), &request);
        assert!(!answer.starts_with("HTTP/1.1 2"), "{target}: {answer}");
    }
    assert_eq!(server.heads(), [""; 0]);
    for (path, has_credential) in [("/echo/h", false), ("/%65cho/h", false), ("/other", true)] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: a.example:PORT\r\nConnection: close\r\n\r\n");
        let answer = ask(&scene, &server, &request);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        assert_eq!(
            answer.contains("Bearer ours"),
            has_credential,
            "{path}: {answer}"
        );
    }
}

#[test]
fn request_for_a_different_host_is_misdirected() {
    let (server, scene) = scene("");
    for request in [
        "GET / HTTP/1.1\r\nHost: other.example:PORT\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example.other.example:PORT\r\n\r\n",
        "GET http://other.example:PORT/ HTTP/1.1\r\nHost: a.example:PORT\r\n\r\n",
        "GET http://a.example:PORT/ HTTP/1.1\r\nHost: other.example:PORT\r\n\r\n",
    ] {
        let request = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        let answer = ask(&scene, &server, &request);
        assert!(answer.starts_with("HTTP/1.1 421"), "{request}: {answer}");
    }
    assert_eq!(server.count(), 0);
    scene.await_verdict(Verdict::Refused(Refusal::Name));
}

/// Request smuggling: one parser could see a single request where another sees two.
#[test]
fn ambiguous_request_is_refused() {
    let (server, scene) = scene("");
    for request in [
        "GET / HTTP/1.1\r\nHost: a.example:PORT\r\nHost: other.example\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:PORT, other.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@a.example:PORT\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:PORT\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nHost: a.example:PORT\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example:PORT\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:PORT\r\nX: a\n b\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a.example:PORT\r\n\r\n",
        "CONNECT other.example:443 HTTP/1.1\r\nHost: a.example:PORT\r\n\r\n",
        "GET ftp://a.example:PORT/ HTTP/1.1\r\nHost: a.example:PORT\r\n\r\n",
    ] {
        let request = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        let answer = ask(&scene, &server, &request);
        let is_refused = answer.starts_with("HTTP/1.1 400") || answer.is_empty();
        assert!(is_refused, "{request}: {answer}");
    }
    assert_eq!(server.heads(), [""; 0]);
}

/// The process frames request bodies itself and does not forward the guest's framing.
#[test]
fn body_is_framed_anew() {
    let server = Server::new(|mut stream, own| {
        let head = read_head(&mut stream);
        let mut body = [0; 64];
        let length = stream.read(&mut body).expect("the peer sends");
        let body = String::from_utf8_lossy(&body[..length]).into_owned();
        own.heads.lock().expect("no panic").push(head + &body);
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let rules = [rule(server.port, "")];
    let scene = Setup::new(&rules, &["a.example"]).start(&[server.port]);
    let request = "POST / HTTP/1.1\r\nHost: a.example:PORT\r\nConnection: close\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3;x=y\r\nabc\r\n0\r\nTrailer: x\r\n\r\n";
    let answer = ask(&scene, &server, request);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let heads = server.heads();
    assert!(!heads[0].contains("content-length"), "{heads:?}");
    assert!(
        heads[0].contains("transfer-encoding: chunked\r\n"),
        "{heads:?}"
    );
    assert!(
        heads[0].ends_with("3\r\nabc\r\n") || heads[0].ends_with("3\r\nabc\r\n0\r\n\r\n"),
        "{heads:?}"
    );
}

#[test]
fn proxy_checks_each_request_by_its_host() {
    let (server, scene) = scene("");
    let mut stream = scene.connect_proxy();
    let request = |stream: &mut TcpStream, target: &str, host: &str| {
        let request = format!("GET http://{target}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .expect("the peer reads");
        let head = read_head(stream);
        let length = head.to_lowercase();
        let length = length
            .split("content-length: ")
            .nth(1)
            .and_then(|it| it.split("\r\n").next());
        let mut body = vec![0; length.expect("a length").parse().expect("a number")];
        stream.read_exact(&mut body).expect("the whole body");
        head
    };
    let own = format!("a.example:{}", server.port);
    let other = format!("other.example:{}", server.port);
    assert!(request(&mut stream, &own, &own).starts_with("HTTP/1.1 200"));
    assert!(request(&mut stream, &other, &other).starts_with("HTTP/1.1 403"));
    assert!(request(&mut stream, &own, &other).starts_with("HTTP/1.1 421"));
    assert!(request(&mut stream, &own, &own).starts_with("HTTP/1.1 200"));
    assert_eq!(server.heads().len(), 2);
    let https = exchange(
        &mut scene.connect_proxy(),
        "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
    );
    assert!(https.starts_with("HTTP/1.1 400"), "{https}");
}

#[test]
fn only_websocket_upgrades_are_forwarded() {
    let server = Server::websocket();
    let rules = [rule(server.port, r#","methods":["GET"]"#)];
    let scene = Setup::new(&rules, &["a.example"]).start(&[server.port]);
    let asks = |protocol: &str| {
        let mut stream = scene.connect("a.example", server.port);
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a.example:{}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
            server.port
        );
        stream
            .write_all(request.as_bytes())
            .expect("the peer reads");
        (read_head(&mut stream), stream)
    };
    let (head, mut stream) = asks("websocket");
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    stream.write_all(b"hello").expect("the peer reads");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("the peer answers");
    assert_eq!(&answer, b"firsthello");
    let (head, _) = asks("h2c");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let heads = server.heads();
    assert!(!heads[1].to_lowercase().contains("upgrade"), "{heads:?}");
}

/// In cleartext nothing indicates that the host supports HTTP/2. Over TLS it is negotiated.
#[test]
fn cleartext_http2_is_refused() {
    let (server, scene) = scene("");
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
    let answer = ask(&scene, &server, preface);
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    scene.await_verdict(Verdict::Refused(Refusal::Content));
    // After a first request, and on the proxy.
    let first = "GET / HTTP/1.1\r\nHost: a.example:PORT\r\n\r\n";
    let answer = ask(&scene, &server, &format!("{first}{preface}"));
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    let answer = exchange(&mut scene.connect_proxy(), preface);
    assert!(!answer.contains("HTTP/1.1 2"), "{answer}");
    assert_eq!(server.heads().len(), 1);
}

#[test]
fn other_protocols_need_a_raw_rule() {
    let (server, scene) = scene("");
    for bytes in ["\0\0\0\x08\x04\x12\x16\x2f", "SSH-2.0-x\r\n", "hello"] {
        let answer = ask(&scene, &server, bytes);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
            "{answer}"
        );
    }
    assert_eq!(server.count(), 0);
    scene.await_verdict(Verdict::Refused(Refusal::Content));
}
