//! Asks the caller of a worker about its connections, if the policy says so. No answer is a refusal.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::http::Place;
use super::locked;
use super::socket::Packets;
use crate::control::{FromNetwork, Question};
use crate::refusal::Refusal;

/// How long a decision may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most questions that wait: as many as the link holds beside a report, if no one reads them.
const MOST: usize = 64;

/// The questions of one worker that are not answered yet.
#[derive(Debug, Default)]
pub struct Questions(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Option<bool>>>,
}

impl Questions {
    /// Whether the caller allows a connection to one of these addresses.
    pub async fn ask(
        &self,
        link: &Packets,
        place: &Place,
        addresses: Vec<IpAddr>,
    ) -> Result<(), Refusal> {
        let (sender, decided) = oneshot::channel();
        let question = {
            let mut open = locked(&self.0);
            // Those of guests that gave up, and of callers that took too long.
            open.waiting.retain(|_, sender| !sender.is_closed());
            if open.waiting.len() >= MOST {
                return Err(Refusal::Undecided);
            }
            open.last += 1;
            let question = open.last;
            open.waiting.insert(question, sender);
            question
        };
        let question = Question {
            question,
            host: place.host.to_string(),
            port: place.port,
            addresses,
        };
        // A supervisor that reads no more of them has no decision either.
        let sent = link.send(&FromNetwork::Question(question));
        sent.map_err(|_| Refusal::Undecided)?;
        match timeout(PATIENCE, decided).await {
            Ok(Ok(Some(true))) => Ok(()),
            Ok(Ok(Some(false))) => Err(Refusal::Caller),
            _ => Err(Refusal::Undecided),
        }
    }

    /// Passes on what the caller has decided. A question whose time is over has no receiver.
    pub fn decide(&self, question: u64, allowed: Option<bool>) {
        if let Some(sender) = locked(&self.0).waiting.remove(&question) {
            _ = sender.send(allowed);
        }
    }
}
