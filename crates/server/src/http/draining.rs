//! The end of the server: it takes no more requests, and gives those that it has a time to end.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use crate::failure::Failure;

/// How far the end has come.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Phase {
    Serving,
    /// Requests that are being answered go on.
    Draining,
    /// Their time is over.
    Over,
}

/// Whether the server ends.
#[derive(Debug)]
pub struct Draining(watch::Sender<Phase>);

impl Default for Draining {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }
}

impl Draining {
    /// Refuses new requests from now on.
    pub fn begin(&self) {
        self.0.send_replace(Phase::Draining);
    }

    /// Whether new requests are refused.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() >= Phase::Draining
    }

    /// Ends the time of requests that are being answered.
    pub fn cut_off(&self) {
        self.0.send_replace(Phase::Over);
    }

    /// Waits until that time is over.
    async fn is_over(&self) {
        let mut phase = self.0.subscribe();
        // The sender is `self`, so there is no error.
        _ = phase.wait_for(|phase| *phase == Phase::Over).await;
    }
}

/// Answers a request, or refuses it when its time is over. What it runs is then cancelled, as for a client that
/// leaves.
pub async fn until_cut_off(
    State(draining): State<Arc<Draining>>,
    request: Request,
    next: Next,
) -> Response {
    tokio::select! {
        response = next.run(request) => response,
        () = draining.is_over() => Failure::Draining.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_end_comes_in_two_steps() {
        let draining = Draining::default();
        assert!(!draining.has_begun());
        draining.begin();
        assert!(draining.has_begun());
        let mut over = std::pin::pin!(draining.is_over());
        let early = timeout(Duration::ZERO, &mut over).await;
        assert!(early.is_err());
        draining.cut_off();
        over.await;
        assert!(draining.has_begun());
    }
}
