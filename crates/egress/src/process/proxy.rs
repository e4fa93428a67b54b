//! The guest's proxy: HTTP with `CONNECT`, and SOCKS5 with names, on one port.

use std::io;
use std::sync::Arc;

use bytes::Buf;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::STEP_TIMEOUT;
use super::connection;
use super::dial::{Carries, dial};
use super::head::Guest;
use super::http::{self, Endpoint, Scheme};
use super::network::Network;
use crate::host::Host;
use crate::refusal::{Refusal, Verdict};
use crate::socks::{self, Code, Read};

/// Serves a connection to the proxy.
pub async fn serve(network: &Arc<Network>, stream: TcpStream) {
    let mut guest = Guest::new(stream);
    match timeout(STEP_TIMEOUT, guest.read_ahead()).await {
        Ok(Ok(1..)) => {}
        // The client has disconnected or sent nothing.
        _ => return,
    }
    match guest.head.first() {
        Some(&socks::VERSION) => socks(network, guest).await,
        Some(b'A'..=b'Z') => http::serve(network, guest, Scheme::Http, None, None).await,
        _ => note_malformed(network),
    }
}

fn note_malformed(network: &Network) {
    let verdict = Verdict::Refused(Refusal::Malformed);
    network.ledger.note("", None, None, verdict);
}

async fn socks(network: &Arc<Network>, mut guest: Guest) {
    let (host, port) = match timeout(STEP_TIMEOUT, handshake(&mut guest)).await {
        Ok(Ok(Some(target))) => target,
        Ok(Ok(None)) => return note_malformed(network),
        Ok(Err(_)) | Err(_) => return,
    };
    let endpoint = Endpoint { host, port };
    let dialled = match network.access(&endpoint) {
        Ok(access) => dial(network, &endpoint, &access, Carries::Other).await,
        Err(verdict) => Err(verdict),
    };
    let code = match dialled {
        Ok(_) => Code::Succeeded,
        Err(Verdict::Refused(_)) => Code::NotAllowed,
        Err(_) => Code::HostUnreachable,
    };
    let answered = guest.write_all(&socks::answer(code)).await;
    if let (Ok(dialled), Ok(())) = (dialled, answered) {
        connection::serve(network, guest, endpoint, Some(dialled)).await;
    }
}

/// Performs the SOCKS5 handshake. Returns the requested host and port, or `None` for a request that cannot be served.
async fn handshake(guest: &mut Guest) -> io::Result<Option<(Host, u16)>> {
    let Some(()) = read_message(guest, socks::greeting).await? else {
        return Ok(None);
    };
    guest.write_all(socks::WELCOME).await?;
    read_message(guest, socks::request).await
}

/// Reads a message. Returns `None` for a message that cannot be served.
async fn read_message<T>(guest: &mut Guest, parse: fn(&[u8]) -> Read<T>) -> io::Result<Option<T>> {
    loop {
        match parse(&guest.head) {
            Read::Message(message, length) => {
                guest.head.advance(length);
                return Ok(Some(message));
            }
            Read::Unsupported(answer) => {
                guest.write_all(answer).await?;
                return Ok(None);
            }
            Read::Malformed => return Ok(None),
            Read::Incomplete if guest.head.len() > socks::MAX_BYTES => return Ok(None),
            Read::Incomplete => {}
        }
        if guest.read_ahead().await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
