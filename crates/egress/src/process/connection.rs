//! A guest's connection whose host and port are known: decides what it carries, and serves it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::PATIENCE;
use super::dial::{Carries, Dialled, dial};
use super::head::Guest;
use super::http::{self, Place, Scheme};
use super::network::Network;
use super::relay::relay;
use super::tls::HTTP2;
use crate::hello::{self, Hello};
use crate::host::Host;
use crate::refusal::{Failure, Refusal, Verdict};
use crate::rules::{Access, Content};

/// How long a guest may take to read why it is refused.
const FAREWELL: Duration = Duration::from_secs(1);

/// Alerts of TLS (RFC 8446, 6.2).
const ACCESS_DENIED: u8 = 49;
const UNRECOGNIZED_NAME: u8 = 112;
const INTERNAL_ERROR: u8 = 80;

/// How HTTP/2 begins (RFC 9113, 3.4), as far as it must be read to know it.
const PREFACE: &[u8] = b"PRI * HTTP/2";

/// Serves a connection to a made-up address, or one of which a proxy knows the host. `dialled` is the connection to the
/// host, if there is one already.
pub async fn serve(network: &Arc<Network>, guest: Guest, place: Place, dialled: Option<Dialled>) {
    let carried = match network.access(&place) {
        Ok(access) => carry(network, guest, &place, &access, dialled).await,
        Err(verdict) => Err((guest, verdict)),
    };
    if let Err((guest, verdict)) = carried {
        // Fails if the guest is gone.
        _ = timeout(FAREWELL, refuse(guest, &place, verdict)).await;
    }
}

/// Carries the connection to its end. Gives the guest back with what it was refused for, if nothing was carried.
async fn carry(
    network: &Arc<Network>,
    mut guest: Guest,
    place: &Place,
    access: &Access<'_>,
    dialled: Option<Dialled>,
) -> Result<(), (Guest, Verdict)> {
    if access.content() == Content::Checked {
        match timeout(PATIENCE, first_words(&mut guest, place)).await {
            Ok(Ok(Speaks::Nothing)) => return Ok(()),
            Ok(Ok(Speaks::Http)) => {
                http::serve(network, guest, Scheme::Http, Some(place.clone()), dialled).await;
                return Ok(());
            }
            Ok(Ok(Speaks::Tls)) if access.is_about_requests() => {
                terminate(network, guest, place, dialled).await;
                return Ok(());
            }
            Ok(Ok(Speaks::Tls)) => {}
            Ok(Err(refusal)) => {
                let verdict = network.note(place, None, Verdict::Refused(refusal));
                return Err((guest, verdict));
            }
            Err(_) => {
                let verdict = network.note(place, None, Verdict::Failed(Failure::Slow));
                return Err((guest, verdict));
            }
        }
    }
    let dialled = match dialled {
        Some(dialled) => dialled,
        None => match dial(network, place, access, Carries::Other).await {
            Ok(dialled) => dialled,
            Err(verdict) => return Err((guest, verdict)),
        },
    };
    if relay(guest, dialled.stream).await.is_err() {
        note_end_of_bytes(network, place);
    }
    Ok(())
}

/// Notes that a connection ended because the worker's limit was reached.
pub fn note_end_of_bytes(network: &Network, place: &Place) {
    if network.bytes.left() == 0 {
        network.note(place, None, Verdict::Refused(Refusal::Bytes));
    }
}

/// What a connection speaks.
enum Speaks {
    /// It ended.
    Nothing,
    /// HTTP/1 in the clear.
    Http,
    /// TLS for the host of the connection.
    Tls,
}

/// Reads ahead until it is clear what the guest speaks.
async fn first_words(guest: &mut Guest, place: &Place) -> Result<Speaks, Refusal> {
    loop {
        match guest.head.first() {
            None => {}
            Some(&hello::FIRST_BYTE) => match hello::read(&guest.head) {
                Hello::Incomplete => {}
                Hello::Encrypted => return Err(Refusal::EncryptedName),
                Hello::Malformed => return Err(Refusal::Malformed),
                Hello::Names(Some(named)) if named == place.host => return Ok(Speaks::Tls),
                // TLS names no addresses.
                Hello::Names(None) if matches!(place.host, Host::Address(_)) => {
                    return Ok(Speaks::Tls);
                }
                Hello::Names(_) => return Err(Refusal::Name),
            },
            // HTTP/2 in the clear, of which nothing says that the host speaks it.
            Some(_) if guest.head.starts_with(PREFACE) => return Err(Refusal::Content),
            Some(_) if PREFACE.starts_with(&guest.head) => {}
            Some(b'A'..=b'Z') => return Ok(Speaks::Http),
            Some(_) => return Err(Refusal::Content),
        }
        match guest.read_ahead().await {
            Ok(0) | Err(_) if guest.head.is_empty() => return Ok(Speaks::Nothing),
            Ok(0) | Err(_) => return Err(Refusal::Malformed),
            Ok(_) => {}
        }
    }
}

/// Ends the guest's TLS here, to judge each request.
async fn terminate(network: &Arc<Network>, guest: Guest, place: &Place, dialled: Option<Dialled>) {
    let accepted = network.shared.tls.accept(&place.host, guest);
    if let Ok(Ok(stream)) = timeout(PATIENCE, accepted).await {
        let place = place.clone();
        if stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
            http::http2::serve(network, stream, place, dialled).await;
        } else {
            http::serve(network, stream, Scheme::Https, Some(place), dialled).await;
        }
    } else {
        // The guest does not trust the authority, or gave up: its own library says which.
        network.note(place, None, Verdict::Failed(Failure::Broken));
    }
}

/// Tells the guest why there is no connection, in the protocol that it speaks, as far as it has said so.
async fn refuse(mut guest: Guest, place: &Place, verdict: Verdict) -> io::Result<()> {
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
            let (status, text) = http::explain(verdict, &place.to_string());
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
    // What is unread when the socket is closed would take the answer with it.
    let mut rest = [0; 1024];
    while guest.read(&mut rest).await? > 0 {}
    Ok(())
}
