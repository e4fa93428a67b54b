//! The DNS resolver of a guest. It queries no other resolver, so a name that the policy does not allow never leaves the
//! process.

use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::net::UdpSocket;

use super::budget::RateLimit;
use super::locked;
use super::network::Network;
use crate::dns::{MAX_BYTES, Query, Reply};
use crate::host::Host;
use crate::refusal::{Refusal, Verdict};

/// Replies to each query.
pub async fn serve(network: Arc<Network>, socket: UdpSocket, limit: RateLimit) {
    let mut buffer = [0; MAX_BYTES];
    loop {
        limit.acquire().await;
        // An error stems from an earlier reply whose receiver is gone.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        if let Some(query) = Query::read(&buffer[..length]) {
            let reply = reply(&network, &query);
            // A guest that does not receive the reply retries.
            _ = socket.try_send_to(&query.answer(reply), from);
        }
    }
}

fn reply(network: &Network, query: &Query) -> Reply {
    let Some(name) = query.name.as_deref() else {
        return Reply::NoName;
    };
    let refuse = |refusal| {
        let verdict = Verdict::Refused(refusal);
        network.ledger.note(name, None, None, verdict);
    };
    let rules = &network.shared.start.rules;
    let is_known = rules.knows(&Host::Name(name.to_owned()));
    if !is_known && (name == "localhost" || name.ends_with(".localhost")) {
        return if query.asks_address {
            Reply::Address(Ipv4Addr::LOCALHOST)
        } else {
            Reply::Nothing
        };
    }
    match (is_known, query.asks_address) {
        (true, true) => {
            let address = locked(&network.names).address_of(name);
            address.map_or_else(
                || {
                    refuse(Refusal::Names);
                    Reply::Failure
                },
                Reply::Address,
            )
        }
        // The name has no other record. A client that prefers IPv6 falls back to IPv4.
        (true, false) => Reply::Nothing,
        (false, asks_address) => {
            // Clients query both kinds of address, so record only one refusal.
            if asks_address {
                refuse(Refusal::Host);
            }
            Reply::NoName
        }
    }
}
