//! HTTP/2 over TLS: each side uses the version that it negotiated, and every request is checked.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use sandfork_egress::refusal::{Refusal, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::scene::{ECHO_SPELLINGS, Scene, echo_rules, rule};
use crate::servers::Server;
use crate::tls::{Hosts, scene, trusting};

pub const HTTP1: &[u8] = b"http/1.1";
pub const HTTP2: &[u8] = b"h2";

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn tokio_stream(stream: std::net::TcpStream) -> tokio::net::TcpStream {
    stream.set_nonblocking(true).expect("a socket");
    tokio::net::TcpStream::from_std(stream).expect("a socket")
}

/// Formats a request as the server received it.
async fn shown(request: Request<Incoming>) -> String {
    let (parts, body) = request.into_parts();
    let mut text = format!("{} {} {:?}\n", parts.method, parts.uri, parts.version);
    for (name, value) in &parts.headers {
        let value = value.to_str().expect("text");
        writeln!(text, "{name}: {value}").expect("a string takes it");
    }
    let body = body.collect().await.expect("a body");
    let trailers = body.trailers().cloned().unwrap_or_default();
    writeln!(text, "{trailers:?}").expect("a string takes it");
    text + &String::from_utf8_lossy(&body.to_bytes())
}

/// Starts a server that answers each HTTP/2 request with its description, and supports HTTP/1 only to upgrade to
/// WebSocket.
pub fn serve(hosts: &Hosts) -> Server {
    let config = hosts.certify("a.example", &[HTTP2, HTTP1]);
    Server::new(move |stream, own| {
        let (config, own) = (Arc::clone(&config), own.clone());
        runtime().block_on(async move {
            let accepted = TlsAcceptor::from(config).accept(tokio_stream(stream));
            let Ok(mut stream) = accepted.await else {
                return;
            };
            if stream.get_ref().1.alpn_protocol() == Some(HTTP1) {
                let switched = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello";
                _ = stream.write_all(switched).await;
                // Until the guest disconnects.
                while matches!(stream.read(&mut [0; 1024]).await, Ok(1..)) {}
                return;
            }
            let service = service_fn(|request| {
                let heads = Arc::clone(&own.heads);
                async move {
                    let is_large = request.uri().path() == "/large";
                    let mut text = shown(request).await;
                    if is_large {
                        text += &"x".repeat(1 << 20);
                    }
                    heads.lock().expect("no panic").push(text.clone());
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
                }
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            _ = connection.await;
        });
    })
}

/// Connects to the server as a guest, over TLS with the given ALPN protocol.
pub async fn connect(
    scene: &Scene,
    server: &Server,
    protocol: &[u8],
) -> TlsStream<tokio::net::TcpStream> {
    let config = trusting(&scene.authority.certificate, &[protocol]);
    let stream = tokio_stream(scene.connect("a.example", server.port));
    let name = ServerName::try_from("a.example").expect("a name");
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.expect("it is trusted");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
    stream
}

pub type Sender = http2::SendRequest<Full<Bytes>>;

/// Connects to the server as an HTTP/2 guest.
pub async fn guest(scene: &Scene, server: &Server) -> Sender {
    let stream = TokioIo::new(connect(scene, server, HTTP2).await);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
        .await
        .expect("an HTTP/2 handshake");
    tokio::spawn(connection);
    sender
}

pub fn request(server: &Server, method: &str, path: &str) -> Request<Full<Bytes>> {
    let uri = format!("https://a.example:{}{path}", server.port);
    let request = Request::builder().method(method).uri(uri);
    request.body(Full::default()).expect("a request")
}

pub async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.expect("a body");
    String::from_utf8_lossy(&body.to_bytes()).into_owned()
}

const CREDENTIAL: &str = r#","credential":{"header":"Authorization","value":"Bearer ours"}"#;

/// A request with a body, and with headers that are not forwarded.
fn mixed_request(server: &Server, version: Version) -> Request<Full<Bytes>> {
    let mut sent = request(server, "POST", "/x?y=z");
    let host = format!("a.example:{}", server.port);
    for (name, value) in [
        ("authorization", "Bearer guest"),
        ("x_http_method_override", "DELETE"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
    ] {
        sent.headers_mut()
            .append(name, value.parse().expect("a value"));
    }
    if version == Version::HTTP_11 {
        sent.headers_mut()
            .insert("host", host.parse().expect("a value"));
        *sent.uri_mut() = "/x?y=z".parse().expect("a path");
    }
    *sent.body_mut() = Full::new(Bytes::from_static(b"the body"));
    sent
}

#[test]
fn each_side_uses_its_negotiated_version() {
    let hosts = Hosts::new("http2");
    let (old, new) = (hosts.serve("a.example"), serve(&hosts));
    for (server, speaks) in [(&old, HTTP1), (&new, HTTP2)] {
        let scene = scene(&hosts, server, CREDENTIAL);
        runtime().block_on(async {
            let mut many = guest(&scene, server).await;
            let sent = many.send_request(mixed_request(server, Version::HTTP_2));
            let answer = sent.await.expect("an answer");
            assert_eq!(answer.status(), 200);
            text(answer).await;
            let stream = TokioIo::new(connect(&scene, server, HTTP1).await);
            let (mut one, connection) = http1::handshake(stream).await.expect("HTTP/1");
            tokio::spawn(connection);
            let sent = one.send_request(mixed_request(server, Version::HTTP_11));
            let answer = sent.await.expect("an answer");
            assert_eq!(answer.status(), 200);
            text(answer).await;
        });
        let mut heads = server.heads();
        // The HTTP/1 server does not read bodies, and takes a body for a request head when the connection ends.
        heads.retain(|head| head != "the body");
        assert_eq!(heads.len(), 2);
        for head in &heads {
            let (line, host) = if speaks == HTTP1 {
                ("POST /x?y=z HTTP/1.1", 1)
            } else {
                assert!(head.ends_with("{}\nthe body"), "{head}");
                ("POST https://a.example", 0)
            };
            assert!(head.starts_with(line), "{head}");
            let count = |text: &str| head.matches(text).count();
            assert_eq!(count("host: a.example"), host, "{head}");
            assert_eq!(count("authorization"), 1, "{head}");
            assert_eq!(count("authorization: Bearer ours"), 1, "{head}");
            assert_eq!(count("cookie: a=1; b=2"), 1, "{head}");
            assert_eq!(count("content-length: 8"), 1, "{head}");
            assert_eq!(count("override"), 0, "{head}");
        }
        let report = scene.report();
        assert!(report.sent > 200 && report.received > 200, "{report:?}");
        assert!(!format!("{report:?}").contains("ours"));
    }
}

#[test]
fn each_http2_request_is_checked() {
    let hosts = Hosts::new("http2-judged");
    let server = serve(&hosts);
    let rest = r#","methods":["GET"],"paths":["/public/*"]"#;
    let scene = scene(&hosts, &server, rest);
    let changed = |name: &'static str, value: &'static str| {
        let mut request = request(&server, "GET", "/public/x");
        let value = value.parse().expect("a value");
        request.headers_mut().insert(name, value);
        request
    };
    let elsewhere = |uri: &str| {
        let mut request = request(&server, "GET", "/");
        *request.uri_mut() = uri
            .replace("PORT", &server.port.to_string())
            .parse()
            .expect("a URL");
        request
    };
    runtime().block_on(async {
        let mut guest = guest(&scene, &server).await;
        for (request, status) in [
            (request(&server, "GET", "/public/x"), 200),
            (request(&server, "POST", "/public/x"), 403),
            (request(&server, "TRACE", "/public/x"), 403),
            (request(&server, "GET", "/private"), 403),
            (request(&server, "GET", "/public/%2e%2e/private"), 403),
            (elsewhere("https://other.example:PORT/public/x"), 421),
            (elsewhere("https://a.example/public/x"), 421),
            (elsewhere("https://user@a.example:PORT/public/x"), 400),
            (elsewhere("http://a.example:PORT/public/x"), 400),
            (changed("host", "other.example"), 421),
            (request(&server, "GET", "/public/y"), 200),
        ] {
            let line = format!("{request:?}");
            let answer = guest.send_request(request).await.expect("an answer");
            assert_eq!(answer.status(), status, "{line}");
            text(answer).await;
        }
        // hyper encodes `CONNECT` without a path.
        let mut connect = elsewhere("https://a.example:PORT/");
        *connect.method_mut() = hyper::Method::CONNECT;
        *connect.uri_mut() = "other.example:443".parse().expect("an authority");
        let answer = guest.send_request(connect).await.expect("an answer");
        assert_eq!(answer.status(), 400);
    });
    assert_eq!(server.heads().len(), 2);
    assert_eq!(server.count(), 1);
    let report = scene.report();
    let noted = |request: &str, refusal| {
        report.connections.iter().any(|it| {
            it.request.as_deref() == Some(request) && it.verdict == Verdict::Refused(refusal)
        })
    };
    assert!(noted("POST /public/x", Refusal::Method), "{report:?}");
    assert!(noted("GET /private", Refusal::Path), "{report:?}");
}

#[test]
fn path_spellings_do_not_get_a_withheld_credential_over_http2() {
    let hosts = Hosts::new("http2-spellings");
    let server = serve(&hosts);
    let mut setup = crate::scene::Setup::new(&echo_rules(server.port), &["a.example"]);
    setup.trust = Some(hosts.file());
    let scene = setup.start(&[server.port]);
    runtime().block_on(async {
        let mut guest = guest(&scene, &server).await;
        for spelling in ECHO_SPELLINGS {
            let sent = guest.send_request(request(&server, "GET", spelling));
            assert_eq!(sent.await.expect("an answer").status(), 403, "{spelling}");
        }
        assert_eq!(server.heads(), [""; 0]);
        for (path, has_credential) in [("/echo/h", false), ("/%65cho/h", false), ("/other", true)] {
            let sent = guest.send_request(request(&server, "GET", path));
            let shown = text(sent.await.expect("an answer")).await;
            assert_eq!(shown.contains("Bearer ours"), has_credential, "{shown}");
        }
    });
    scene.await_verdict(Verdict::Refused(Refusal::Path));
}

/// A WebSocket needs HTTP/1, even to a host that has negotiated HTTP/2, and when the connection limit leaves no room
/// for a second connection.
#[test]
fn websocket_to_an_http2_host_uses_http1() {
    let hosts = Hosts::new("http2-websocket");
    let server = serve(&hosts);
    let rule = rule(server.port, r#","methods":["GET"]"#);
    let mut setup = crate::scene::Setup::new(&[rule], &["a.example"]);
    setup.trust = Some(hosts.file());
    setup.connections = 1;
    let scene = setup.start(&[server.port]);
    runtime().block_on(async {
        let mut stream = connect(&scene, &server, HTTP1).await;
        let host = format!("Host: a.example:{}\r\n", server.port);
        let plain = format!("GET / HTTP/1.1\r\n{host}\r\n");
        stream
            .write_all(plain.as_bytes())
            .await
            .expect("the peer reads");
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).await.expect("an answer");
        assert!(answer[..length].starts_with(b"HTTP/1.1 200 "));
        let switch =
            format!("GET / HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        stream
            .write_all(switch.as_bytes())
            .await
            .expect("the peer reads");
        let mut answer = String::new();
        while !answer.ends_with("hello") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.expect("it switches");
            answer.push(char::from(byte[0]));
        }
        assert!(answer.contains("HTTP/1.1 101 "), "{answer}");
    });
    assert_eq!(server.count(), 2);
}

/// Trailers arrive after the request was checked.
#[test]
fn request_trailers_are_not_forwarded() {
    let hosts = Hosts::new("http2-trailers");
    let server = serve(&hosts);
    let scene = scene(&hosts, &server, CREDENTIAL);
    runtime().block_on(async {
        let stream = TokioIo::new(connect(&scene, &server, HTTP2).await);
        let handshake = http2::handshake(TokioExecutor::new(), stream);
        let (mut guest, connection) = handshake.await.expect("an HTTP/2 handshake");
        tokio::spawn(connection);
        let mut trailers = hyper::HeaderMap::new();
        trailers.insert("authorization", "Bearer guest".parse().expect("a value"));
        let body = Full::new(Bytes::from_static(b"the body"));
        let body = Box::pin(body.with_trailers(async move { Some(Ok(trailers)) }));
        let (mut parts, _) = request(&server, "POST", "/").into_parts();
        parts
            .headers
            .insert("te", "trailers".parse().expect("a value"));
        let answer = guest.send_request(Request::from_parts(parts, body)).await;
        let shown = text(answer.expect("an answer")).await;
        assert!(shown.ends_with("{}\nthe body"), "{shown}");
        assert!(shown.contains("te: trailers\n"), "{shown}");
    });
}

/// To an HTTP/1 host, each unfinished response occupies a connection, within the policy's limit.
#[test]
fn unread_response_does_not_delay_other_requests() {
    use std::io::Write as _;

    let hosts = Hosts::new("http2-old");
    let config = hosts.certify("a.example", &[HTTP1]);
    let server = Server::new(move |stream, own| {
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).expect("a connection");
        let mut stream = rustls::StreamOwned::new(connection, stream);
        loop {
            let head = crate::scene::read_head(&mut stream);
            let is_endless = head.starts_with("GET /endless");
            own.heads.lock().expect("no panic").push(head.clone());
            if head.is_empty() || is_endless {
                let started = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx";
                _ = stream.write_all(started).and_then(|()| stream.flush());
                // Until the guest disconnects.
                crate::scene::read_head(&mut stream);
                return;
            }
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let mut setup = crate::scene::Setup::new(
        &[rule(server.port, r#","methods":["GET"]"#)],
        &["a.example"],
    );
    setup.trust = Some(hosts.file());
    // The guest's own connection, and one more to the host.
    setup.connections = 2;
    let scene = setup.start(&[server.port]);
    runtime().block_on(async {
        let guest = guest(&scene, &server).await;
        let get = |path| guest.clone().send_request(request(&server, "GET", path));
        let endless = get("/endless").await.expect("its head");
        for _ in 0..3 {
            assert_eq!(get("/").await.expect("an answer").status(), 200);
        }
        assert_eq!(server.count(), 2);
        let other = get("/endless").await.expect("its head");
        // The limit allows no third connection: the request waits until the guest cancels one of the others.
        let (answer, ()) = tokio::join!(get("/"), async { drop(endless) });
        assert_eq!(answer.expect("an answer").status(), 200);
        drop(other);
        assert_eq!(server.count(), 3);
    });
}
