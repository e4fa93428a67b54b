//! The resources that a hostile HTTP/2 guest can consume, tested frame by frame.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use sandfork_egress::refusal::{Refusal, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::http2::{HTTP2, connect, guest, request, runtime, serve, text};
use crate::scene::Scene;
use crate::servers::Server;
use crate::tls::{Hosts, scene};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

const JUDGED: &str = r#","methods":["GET","POST"]"#;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Encodes request headers (HPACK): method, scheme, authority and path; the last two are literals.
fn head(server: &Server, method: u8, path: &str) -> Vec<u8> {
    let authority = format!("a.example:{}", server.port);
    let mut head = vec![method, 0x87];
    for (name, value) in [(1, authority.as_str()), (4, path)] {
        head.extend([name, u8::try_from(value.len()).expect("short")]);
        head.extend(value.as_bytes());
    }
    head
}

const GET: u8 = 0x82;
const POST: u8 = 0x83;

struct Frames(TlsStream<TcpStream>);

impl Frames {
    async fn new(scene: &Scene, server: &Server, settings: &[u8]) -> Self {
        let mut stream = connect(scene, server, HTTP2).await;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        stream.write_all(preface).await.expect("the peer reads");
        let settings = frame(SETTINGS, 0, 0, settings);
        stream.write_all(&settings).await.expect("the peer reads");
        Self(stream)
    }

    /// Reads the next frame: its type, flags, stream and payload.
    async fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((head[3], head[4], stream, payload))
    }

    /// Waits for the first frame that answers a request, and returns its type and payload. `None` if the connection
    /// ends.
    async fn verdict(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let (kind, .., payload) = self.next().await?;
            if [RESET, GO_AWAY, HEADERS].contains(&kind) {
                return Some((kind, payload));
            }
        }
    }

    async fn await_kind(&mut self, kind: u8) -> Option<(u8, u8, u32, Vec<u8>)> {
        loop {
            let frame = self.next().await?;
            if frame.0 == kind {
                return Some(frame);
            }
        }
    }
}

fn scenery(name: &str) -> (Hosts, Server, Scene) {
    let hosts = Hosts::new(name);
    let server = serve(&hosts);
    let scene = scene(&hosts, &server, JUDGED);
    (hosts, server, scene)
}

#[test]
fn settings_announce_the_limits() {
    let (_hosts, server, scene) = scenery("http2-settings");
    runtime().block_on(async {
        let mut frames = Frames::new(&scene, &server, &[]).await;
        let (.., payload) = frames.await_kind(SETTINGS).await.expect("settings");
        let settings: Vec<(u16, u32)> = payload
            .chunks(6)
            .map(|it| {
                let value = [it[2], it[3], it[4], it[5]];
                (
                    u16::from_be_bytes([it[0], it[1]]),
                    u32::from_be_bytes(value),
                )
            })
            .collect();
        // Concurrent streams, initial window size, and header list size.
        for expected in [(3, 32), (4, 128 << 10), (6, 64 << 10)] {
            assert!(settings.contains(&expected), "{settings:?}");
        }
    });
}

/// Rapid reset: each stream is reset as soon as it is opened, so that it never counts towards the stream limit.
#[test]
fn rapid_resets_are_throttled() {
    let (_hosts, server, scene) = scenery("http2-reset");
    runtime().block_on(async {
        let frames = Frames::new(&scene, &server, &[]).await;
        let (mut reader, mut writer) = tokio::io::split(frames.0);
        let head = head(&server, GET, "/");
        let drain = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while matches!(reader.read(&mut buffer).await, Ok(1..)) {}
        });
        let flood = async {
            for nth in 0..1 << 20 {
                let stream = 2 * nth + 1;
                let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
                bytes.extend(frame(RESET, 0, stream, &[0, 0, 0, 8]));
                if writer.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        // Whether the flood is cut off or throttled, the process serves other connections meanwhile.
        let others = async {
            let mut guest = guest(&scene, &server).await;
            for _ in 0..10 {
                let answer = guest.send_request(request(&server, "GET", "/")).await;
                assert_eq!(answer.expect("an answer").status(), 200);
            }
        };
        tokio::pin!(flood);
        tokio::select! {
            () = &mut flood => {}
            () = others => {}
        }
        drain.abort();
    });
    // The burst covers four seconds, plus the requests that arrived meanwhile.
    assert!(server.heads().len() < 6000, "{}", server.heads().len());
}

/// Control frames cost the guest nothing.
#[test]
fn control_frames_are_throttled() {
    let (_hosts, server, scene) = scenery("http2-ping");
    let begun = Instant::now();
    let pongs = runtime().block_on(async {
        let frames = Frames::new(&scene, &server, &[]).await;
        let (reader, mut writer) = tokio::io::split(frames.0);
        let pings = frame(PING, 0, 0, &[0; 8]).repeat(1000);
        let flood = tokio::spawn(async move { while writer.write_all(&pings).await.is_ok() {} });
        let mut received = 0;
        let mut reader = reader.take(u64::MAX);
        let mut buffer = vec![0; 1 << 16];
        let until = begun + Duration::from_secs(2);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match tokio::time::timeout(left, reader.read(&mut buffer)).await {
                Ok(Ok(length @ 1..)) => received += length,
                _ => break,
            }
        }
        flood.abort();
        received / 17
    });
    // A burst of 4 MiB, and 1 MiB for each second since, including the current one.
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("a short time");
    assert!(pongs <= ((5 + seconds) << 20) / 17, "{pongs}");
    // The limit applies to the whole worker, but its other connections still make progress.
    runtime().block_on(async {
        let mut guest = guest(&scene, &server).await;
        let answer = guest.send_request(request(&server, "GET", "/")).await;
        assert_eq!(answer.expect("an answer").status(), 200);
    });
}

#[test]
fn endless_headers_are_refused() {
    // This server accepts heads of any size.
    let hosts = Hosts::new("http2-headers");
    let server = hosts.serve("a.example");
    let scene = scene(&hosts, &server, JUDGED);
    runtime().block_on(async {
        // A flood of empty `CONTINUATION` frames.
        let mut frames = Frames::new(&scene, &server, &[]).await;
        let mut bytes = frame(HEADERS, END_STREAM, 1, &head(&server, GET, "/"));
        bytes.extend(frame(CONTINUATION, 0, 1, &[]).repeat(100_000));
        _ = frames.0.write_all(&bytes).await;
        while let Some((kind, ..)) = frames.next().await {
            assert_ne!(kind, HEADERS);
        }
        // A small header block that expands to many large headers: each refers to an entry of the dynamic table.
        let mut frames = Frames::new(&scene, &server, &[]).await;
        let mut block = head(&server, GET, "/");
        block.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x16]);
        block.extend([b'y'; 2976]);
        block.extend([0xbe; 4000]);
        let bytes = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        frames.0.write_all(&bytes).await.expect("the peer reads");
        frames.verdict().await;
    });
    assert_eq!(server.heads(), [""; 0]);
}

/// A `:path` may be the whole URL of another host, which an HTTP/1 server would follow.
#[test]
fn ambiguous_http2_requests_are_not_forwarded() {
    let hosts = Hosts::new("http2-smuggled");
    for server in [hosts.serve("a.example"), serve(&hosts)] {
        let scene = scene(&hosts, &server, JUDGED);
        runtime().block_on(async {
            for path in ["http://other.example/", "other.example", "@other.example/"] {
                let mut frames = Frames::new(&scene, &server, &[]).await;
                let head = head(&server, GET, path);
                let bytes = frame(HEADERS, END_HEADERS | END_STREAM, 1, &head);
                frames.0.write_all(&bytes).await.expect("the peer reads");
                // Status 400 is an entry of the HPACK static table.
                let verdict = frames.verdict().await;
                let is_refused =
                    |(kind, payload): &(u8, Vec<u8>)| *kind != HEADERS || payload[0] == 0x8c;
                assert!(
                    verdict.as_ref().is_none_or(is_refused),
                    "{path}: {verdict:?}"
                );
            }
            // A body longer or shorter than `Content-Length`.
            for (body, flags) in [(&b"12345"[..], END_STREAM), (b"123", END_STREAM)] {
                let mut frames = Frames::new(&scene, &server, &[]).await;
                let mut head = head(&server, POST, "/");
                head.extend([0x0f, 0x0d, 1, b'4']);
                let mut bytes = frame(HEADERS, END_HEADERS, 1, &head);
                bytes.extend(frame(DATA, flags, 1, body));
                frames.0.write_all(&bytes).await.expect("the peer reads");
                let verdict = frames.verdict().await;
                assert!(
                    verdict.as_ref().is_none_or(|it| it.0 != HEADERS),
                    "{body:?}: {verdict:?}"
                );
            }
            // Connection headers of HTTP/1, and values that would inject another header into HTTP/1.
            for (name, value) in [
                ("transfer-encoding", "chunked"),
                ("connection", "close"),
                ("x", "a\r\nhost: other.example"),
                ("x y", "z"),
                ("X", "y"),
            ] {
                let mut frames = Frames::new(&scene, &server, &[]).await;
                let mut head = head(&server, GET, "/");
                for text in ["", name, value] {
                    head.push(u8::try_from(text.len()).expect("short"));
                    head.extend(text.as_bytes());
                }
                let bytes = frame(HEADERS, END_HEADERS | END_STREAM, 1, &head);
                frames.0.write_all(&bytes).await.expect("the peer reads");
                let verdict = frames.verdict().await;
                assert!(
                    verdict.as_ref().is_none_or(|it| it.0 != HEADERS),
                    "{name}: {value}"
                );
            }
        });
        let heads = server.heads();
        assert!(
            heads
                .iter()
                .all(|it| !it.contains("GET") && !it.contains("other")),
            "{heads:?}"
        );
    }
}

/// A guest that reads no response: the process buffers only a bounded amount from the host.
#[test]
fn unread_responses_apply_back_pressure() {
    let (_hosts, server, scene) = scenery("http2-unread");
    runtime().block_on(async {
        // A window of zero for every stream.
        let mut frames = Frames::new(&scene, &server, &[0, 4, 0, 0, 0, 0]).await;
        frames.await_kind(SETTINGS).await.expect("settings");
        frames
            .0
            .write_all(&frame(SETTINGS, ACK, 0, &[]))
            .await
            .expect("the peer reads");
        for nth in 0..32 {
            let head = head(&server, GET, "/large");
            let bytes = frame(HEADERS, END_HEADERS | END_STREAM, 2 * nth + 1, &head);
            frames.0.write_all(&bytes).await.expect("the peer reads");
        }
        // Each response has begun to arrive.
        for _ in 0..32 {
            frames.await_kind(HEADERS).await.expect("a head");
        }
    });
    let report = scene.await_report(|report| report.received > 0);
    assert!(report.received < 4 << 20, "{report:?}");
}

#[test]
fn byte_quota_ends_http2_requests() {
    let hosts = Hosts::new("http2-bytes");
    let server = serve(&hosts);
    let mut setup =
        crate::scene::Setup::new(&[crate::scene::rule(server.port, JUDGED)], &["a.example"]);
    setup.trust = Some(hosts.file());
    setup.bytes = 100_000;
    let scene = setup.start(&[server.port]);
    runtime().block_on(async {
        let mut guest = guest(&scene, &server).await;
        let mut large = request(&server, "POST", "/");
        *large.body_mut() = Full::new(Bytes::from(vec![b'x'; 200_000]));
        let answer = guest.send_request(large).await;
        assert!(answer.is_ok_and(|it| it.status() == 403));
        let answer = guest.send_request(request(&server, "GET", "/")).await;
        let message = text(answer.expect("an answer")).await;
        assert!(message.contains("network.bytes"), "{message}");
    });
    let report = scene.await_verdict(Verdict::Refused(Refusal::Bytes));
    assert!(report.sent + report.received < 120_000, "{report:?}");
}
