//! Asks the caller of a worker to approve its connections, if the policy requires it. A missing decision is a refusal.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::http::Endpoint;
use super::locked;
use super::socket::Packets;
use crate::control::{FromNetwork, Question};
use crate::refusal::Refusal;

/// How long the caller may take to decide.
const DECISION_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of pending questions: the link has room for as many, in addition to a report, if no one reads it.
const MAX_PENDING: usize = 64;

/// The pending questions of one worker.
#[derive(Debug, Default)]
pub struct Questions(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    last: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Option<bool>>>,
}

impl Questions {
    /// Asks the caller whether a connection to one of these addresses is allowed.
    pub async fn ask(
        &self,
        link: &Packets,
        endpoint: &Endpoint,
        addresses: Vec<IpAddr>,
    ) -> Result<(), Refusal> {
        let (sender, decided) = oneshot::channel();
        let question = {
            let mut pending = locked(&self.0);
            // Remove the questions of guests that disconnected and of callers that took too long.
            pending.waiting.retain(|_, sender| !sender.is_closed());
            if pending.waiting.len() >= MAX_PENDING {
                return Err(Refusal::Undecided);
            }
            pending.last += 1;
            let question = pending.last;
            pending.waiting.insert(question, sender);
            question
        };
        let question = Question {
            question,
            host: endpoint.host.to_string(),
            port: endpoint.port,
            addresses,
        };
        // Fails if the supervisor no longer reads the link, so there will be no decision.
        let sent = link.send(&FromNetwork::Question(question));
        sent.map_err(|_| Refusal::Undecided)?;
        match timeout(DECISION_TIMEOUT, decided).await {
            Ok(Ok(Some(true))) => Ok(()),
            Ok(Ok(Some(false))) => Err(Refusal::Caller),
            _ => Err(Refusal::Undecided),
        }
    }

    /// Delivers the caller's decision. A question that has timed out has no receiver.
    pub fn decide(&self, question: u64, allowed: Option<bool>) {
        if let Some(sender) = locked(&self.0).waiting.remove(&question) {
            _ = sender.send(allowed);
        }
    }
}
