//! Serves a guest's connection to a known host and port: detects its protocol, then proxies or relays it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::STEP_TIMEOUT;
use super::dial::{Carries, Dialled, dial};
use super::head::Guest;
use super::http::{self, Endpoint, Scheme};
use super::network::Network;
use super::relay::relay;
use super::tls::HTTP2;
use crate::hello::{self, Hello};
use crate::host::Host;
use crate::refusal::{Failure, Refusal, Verdict};
use crate::rules::{Access, Content};

/// How long the guest may take to read the reason for a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// TLS alert descriptions (RFC 8446, 6.2).
const ACCESS_DENIED: u8 = 49;
const UNRECOGNIZED_NAME: u8 = 112;
const INTERNAL_ERROR: u8 = 80;

/// The prefix of the HTTP/2 connection preface (RFC 9113, 3.4) that identifies the protocol.
const PREFACE: &[u8] = b"PRI * HTTP/2";

/// Serves a connection to a made-up address, or one whose host a proxy client has named. `dialled` is the connection to
/// the host, if it is already open.
pub async fn serve(
    network: &Arc<Network>,
    guest: Guest,
    endpoint: Endpoint,
    dialled: Option<Dialled>,
) {
    let carried = match network.access(&endpoint) {
        Ok(access) => carry(network, guest, &endpoint, &access, dialled).await,
        Err(verdict) => Err((guest, verdict)),
    };
    if let Err((guest, verdict)) = carried {
        // Fails if the guest has disconnected.
        _ = timeout(REFUSAL_TIMEOUT, refuse(guest, &endpoint, verdict)).await;
    }
}

/// Serves the connection to its end. If nothing was transferred, returns the guest's stream and the verdict.
async fn carry(
    network: &Arc<Network>,
    mut guest: Guest,
    endpoint: &Endpoint,
    access: &Access<'_>,
    dialled: Option<Dialled>,
) -> Result<(), (Guest, Verdict)> {
    if access.content() == Content::Checked {
        match timeout(STEP_TIMEOUT, detect_protocol(&mut guest, endpoint)).await {
            Ok(Ok(Protocol::Closed)) => return Ok(()),
            Ok(Ok(Protocol::Http)) => {
                http::serve(
                    network,
                    guest,
                    Scheme::Http,
                    Some(endpoint.clone()),
                    dialled,
                )
                .await;
                return Ok(());
            }
            Ok(Ok(Protocol::Tls)) if access.inspects_requests() => {
                terminate(network, guest, endpoint, dialled).await;
                return Ok(());
            }
            Ok(Ok(Protocol::Tls)) => {}
            Ok(Err(refusal)) => {
                let verdict = network.note(endpoint, None, Verdict::Refused(refusal));
                return Err((guest, verdict));
            }
            Err(_) => {
                let verdict = network.note(endpoint, None, Verdict::Failed(Failure::Slow));
                return Err((guest, verdict));
            }
        }
    }
    let dialled = match dialled {
        Some(dialled) => dialled,
        None => match dial(network, endpoint, access, Carries::Other).await {
            Ok(dialled) => dialled,
            Err(verdict) => return Err((guest, verdict)),
        },
    };
    if relay(guest, dialled.stream).await.is_err() {
        note_end_of_bytes(network, endpoint);
    }
    Ok(())
}

/// Records that a connection ended because the worker's byte quota is used up.
pub fn note_end_of_bytes(network: &Network, endpoint: &Endpoint) {
    if network.bytes.left() == 0 {
        network.note(endpoint, None, Verdict::Refused(Refusal::Bytes));
    }
}

/// The protocol of a connection.
enum Protocol {
    /// The guest closed the connection.
    Closed,
    /// Cleartext HTTP/1.
    Http,
    /// TLS whose server name is the host of the connection.
    Tls,
}

/// Reads ahead until the protocol is known.
async fn detect_protocol(guest: &mut Guest, endpoint: &Endpoint) -> Result<Protocol, Refusal> {
    loop {
        match guest.head.first() {
            None => {}
            Some(&hello::FIRST_BYTE) => match hello::read(&guest.head) {
                Hello::Incomplete => {}
                Hello::Encrypted => return Err(Refusal::EncryptedName),
                Hello::Malformed => return Err(Refusal::Malformed),
                Hello::Names(Some(named)) if named == endpoint.host => return Ok(Protocol::Tls),
                // TLS sends no server name for an IP address.
                Hello::Names(None) if matches!(endpoint.host, Host::Address(_)) => {
                    return Ok(Protocol::Tls);
                }
                Hello::Names(_) => return Err(Refusal::Name),
            },
            // Cleartext HTTP/2: nothing indicates that the host supports it.
            Some(_) if guest.head.starts_with(PREFACE) => return Err(Refusal::Content),
            Some(_) if PREFACE.starts_with(&guest.head) => {}
            Some(b'A'..=b'Z') => return Ok(Protocol::Http),
            Some(_) => return Err(Refusal::Content),
        }
        match guest.read_ahead().await {
            Ok(0) | Err(_) if guest.head.is_empty() => return Ok(Protocol::Closed),
            Ok(0) | Err(_) => return Err(Refusal::Malformed),
            Ok(_) => {}
        }
    }
}

/// Terminates the guest's TLS, so that each request can be checked.
async fn terminate(
    network: &Arc<Network>,
    guest: Guest,
    endpoint: &Endpoint,
    dialled: Option<Dialled>,
) {
    let accepted = network.shared.tls.accept(&endpoint.host, guest);
    if let Ok(Ok(stream)) = timeout(STEP_TIMEOUT, accepted).await {
        let endpoint = endpoint.clone();
        if stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
            http::http2::serve(network, stream, endpoint, dialled).await;
        } else {
            http::serve(network, stream, Scheme::Https, Some(endpoint), dialled).await;
        }
    } else {
        // The guest does not trust the CA or has disconnected. Its TLS library reports which.
        network.note(endpoint, None, Verdict::Failed(Failure::Broken));
    }
}

/// Sends the reason for a refusal in the guest's protocol, as far as the protocol is known.
async fn refuse(mut guest: Guest, endpoint: &Endpoint, verdict: Verdict) -> io::Result<()> {
    if guest.head.is_empty() {
        guest.read_ahead().await?;
    }
    match guest.head.first() {
        Some(&hello::FIRST_BYTE) => {
            let alert = match verdict {
                Verdict::Refused(Refusal::Name) => UNRECOGNIZED_NAME,
                Verdict::Refused(_) => ACCESS_DENIED,
                _ => INTERNAL_ERROR,
            };
            guest.write_all(&[21, 3, 3, 0, 2, 2, alert]).await?;
        }
        Some(b'A'..=b'Z') => {
            let (status, text) = http::explain(verdict, &endpoint.to_string());
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{text}",
                text.len()
            );
            guest.write_all(answer.as_bytes()).await?;
        }
        _ => return Ok(()),
    }
    guest.shutdown().await?;
    // Closing a socket with unread data sends a reset, which could discard the reply.
    let mut rest = [0; 1024];
    while guest.read(&mut rest).await? > 0 {}
    Ok(())
}
