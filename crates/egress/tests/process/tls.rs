//! TLS: relayed unchanged where a rule allows a host, terminated where it restricts requests.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use sandfork_egress::refusal::{Failure, Refusal, Verdict};

use crate::scene::{Scene, Setup, exchange, read_all, rule};
use crate::servers::Server;

type Provider = Arc<rustls::crypto::CryptoProvider>;

fn provider() -> Provider {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A test CA, and the servers that it certifies.
pub struct Hosts {
    issuer: Issuer<'static, KeyPair>,
    /// The file with the CA certificate.
    file: PathBuf,
}

impl Hosts {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let file =
            std::env::temp_dir().join(format!("sandfork-egress-{}-{name}.pem", std::process::id()));
        let text = BASE64_STANDARD.encode(certificate.der());
        let text = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        fs::write(&file, text).expect("a successful write");
        let issuer = Issuer::new(params, key);
        Self { issuer, file }
    }

    /// Starts an HTTP/1.1 server over TLS with a certificate for this name.
    pub fn serve(&self, name: &str) -> Server {
        Self::serve_with(self.certify(name, &[b"http/1.1"]))
    }

    fn serve_with(config: Arc<ServerConfig>) -> Server {
        Server::new(move |stream, own| {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            own.answer_requests(&mut StreamOwned::new(connection, stream));
        })
    }

    /// Returns the file with the CA certificate.
    pub fn file(&self) -> PathBuf {
        self.file.clone()
    }

    /// Returns the configuration of a server with a certificate for this name and these ALPN protocols.
    pub fn certify(&self, name: &str, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Self::present(&certificate, &key, protocols)
    }

    /// Returns the configuration of a server whose certificate is a CA certificate.
    fn certify_as_authority(name: &str) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        Self::present(&certificate, &key, &[b"http/1.1"])
    }

    fn present(
        certificate: &rcgen::Certificate,
        key: &KeyPair,
        protocols: &[&[u8]],
    ) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .expect("a configuration");
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        Arc::new(config)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.file);
    }
}

/// Starts TLS as a client that trusts these certificates and names this host.
pub fn client(
    trusted: &str,
    name: &str,
    stream: TcpStream,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connection = ClientConnection::new(trusting(trusted, &[]), name).expect("a connection");
    StreamOwned::new(connection, stream)
}

/// Returns the configuration of a client that trusts these certificates and offers these ALPN protocols.
pub fn trusting(trusted: &str, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots
            .add(certificate.expect("a certificate"))
            .expect("it is sound");
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    Arc::new(config)
}

fn request(port: u16, line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: a.example:{port}\r\nConnection: close\r\n{headers}\r\n")
}

pub fn scene(hosts: &Hosts, server: &Server, rest: &str) -> Scene {
    let mut setup = Setup::new(&[rule(server.port, rest)], &["a.example"]);
    setup.trust = Some(hosts.file.clone());
    setup.start(&[server.port])
}

#[test]
fn host_without_restrictions_gets_the_guests_own_tls() {
    let hosts = Hosts::new("own");
    let server = hosts.serve("a.example");
    let scene = scene(&hosts, &server, "");
    let trusted = fs::read_to_string(&hosts.file).expect("a readable file");
    // Through the made-up address, and through the proxy.
    let (head, tunnel) = scene.tunnel(&format!("a.example:{}", server.port));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for stream in [scene.connect("a.example", server.port), tunnel] {
        let mut stream = client(&trusted, "a.example", stream);
        let answer = exchange(&mut stream, &request(server.port, "GET /", ""));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[test]
fn tls_server_name_must_match_the_connection() {
    let hosts = Hosts::new("sni");
    let server = hosts.serve("other.example");
    let trusted = fs::read_to_string(&hosts.file).expect("a readable file");
    for rest in ["", r#","methods":["GET"]"#] {
        let scene = scene(&hosts, &server, rest);
        let (_, tunnel) = scene.tunnel(&format!("a.example:{}", server.port));
        for stream in [scene.connect("a.example", server.port), tunnel] {
            let mut stream = client(&trusted, "other.example", stream);
            let error = stream.write_all(b"GET /").and_then(|()| stream.flush());
            let error = error
                .and_then(|()| stream.read(&mut [0]))
                .expect_err("no host");
            assert!(error.to_string().contains("UnrecognisedName"), "{error}");
        }
        // With an address in place of a name, TLS sends no server name.
        let stream = scene.connect("a.example", server.port);
        let mut stream = client(&trusted, "127.0.0.1", stream);
        assert!(
            stream
                .write_all(b"GET /")
                .and_then(|()| stream.flush())
                .is_err()
        );
        scene.await_verdict(Verdict::Refused(Refusal::Name));
    }
    // Connections for `CONNECT` are opened before the guest sends its first bytes, but carry no request.
    assert_eq!(server.heads(), [""; 0]);
}

#[test]
fn credential_replaces_the_guests_own() {
    let hosts = Hosts::new("credential");
    let server = hosts.serve("a.example");
    let rest =
        r#","methods":["GET"],"credential":{"header":"Authorization","value":"Bearer ours"}"#;
    let scene = scene(&hosts, &server, rest);
    let own = scene.authority.certificate.clone();
    let (_, tunnel) = scene.tunnel(&format!("a.example:{}", server.port));
    for stream in [scene.connect("a.example", server.port), tunnel] {
        let mut stream = client(&own, "a.example", stream);
        let headers = "Authorization: Bearer guest\r\nauthorization: Basic guest\r\n";
        let answer = exchange(&mut stream, &request(server.port, "GET /x", headers));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    for head in server.heads() {
        let found: Vec<&str> = head
            .lines()
            .filter(|line| line.starts_with("authorization"))
            .collect();
        assert_eq!(found, ["authorization: Bearer ours"], "{head}");
    }
    assert_eq!(server.heads().len(), 2);
    let mut refused = client(&own, "a.example", scene.connect("a.example", server.port));
    let answer = exchange(&mut refused, &request(server.port, "DELETE /x", ""));
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let mut fronted = client(&own, "a.example", scene.connect("a.example", server.port));
    let fronting = request(server.port, "GET /x", "").replace("Host: a", "Host: b");
    let answer = exchange(&mut fronted, &fronting);
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
    assert_eq!(server.heads().len(), 2);
    let report = format!("{:?}", scene.report());
    assert!(!report.contains("ours"), "{report}");
}

#[test]
fn credential_is_not_sent_to_an_untrusted_host() {
    let (hosts, others) = (Hosts::new("trusted"), Hosts::new("others"));
    let wrong_name = hosts.serve("b.example");
    let wrong_authority = others.serve("a.example");
    let authority = Hosts::serve_with(Hosts::certify_as_authority("a.example"));
    let rest = r#","credential":{"header":"X-Key","value":"ours"}"#;
    for (server, failure) in [
        (wrong_name, Failure::Certificate),
        (wrong_authority, Failure::Certificate),
        (authority, Failure::AuthorityCertificate),
    ] {
        let scene = scene(&hosts, &server, rest);
        let own = scene.authority.certificate.clone();
        let mut stream = client(&own, "a.example", scene.connect("a.example", server.port));
        let answer = exchange(&mut stream, &request(server.port, "GET /", ""));
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(answer.contains(failure.as_words()), "{answer}");
        scene.await_verdict(Verdict::Failed(failure));
        assert_eq!(server.heads(), [""; 0]);
    }
}

#[test]
fn credential_is_not_sent_in_cleartext() {
    let rule = r#"{"host":"a.example","credential":{"header":"X-Key","value":"ours"}}"#;
    let scene = Setup::new(&[rule.to_owned()], &["a.example"]).start(&[]);
    let mut stream = scene.connect_proxy();
    let request = "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    let answer = exchange(&mut stream, request);
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("use https"), "{answer}");
    scene.await_verdict(Verdict::Refused(Refusal::ClearCredential));
}

#[test]
fn later_process_restores_the_authority() {
    let hosts = Hosts::new("later");
    let server = hosts.serve("a.example");
    let first = scene(&hosts, &server, r#","methods":["GET"]"#);
    let authority = first.authority.clone();
    drop(first);
    let mut setup = Setup::new(
        &[rule(server.port, r#","methods":["GET"]"#)],
        &["a.example"],
    );
    setup.trust = Some(hosts.file.clone());
    setup.authority = Some(authority.clone());
    let second = setup.start(&[server.port]);
    assert!(second.authority == authority);
    let stream = second.connect("a.example", server.port);
    let mut stream = client(&authority.certificate, "a.example", stream);
    let answer = exchange(&mut stream, &request(server.port, "GET /", ""));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Where TLS is expected, malformed or truncated bytes are answered with an alert and never reach the host.
#[test]
fn malformed_hello_is_not_forwarded() {
    let hosts = Hosts::new("hello");
    let server = hosts.serve("a.example");
    let scene = scene(&hosts, &server, "");
    for bytes in [
        &[22, 3, 1, 0, 0][..],
        &[22, 3, 1, 0, 4, 2, 0, 0, 0],
        &[22, 9, 9, 9],
    ] {
        let mut stream = scene.connect("a.example", server.port);
        stream.write_all(bytes).expect("the peer reads");
        let answer = read_all(&mut stream);
        assert_eq!(answer[..1], [21], "{bytes:?} {answer:?}");
    }
    assert_eq!(server.count(), 0);
    scene.await_verdict(Verdict::Refused(Refusal::Malformed));
}
