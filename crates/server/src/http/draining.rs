//! Graceful shutdown: the server rejects new requests, and gives active ones time to complete.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use crate::failure::Failure;

/// The phase of the shutdown.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Phase {
    Serving,
    /// New requests are rejected; active requests continue.
    Draining,
    /// Active requests are cancelled.
    Over,
}

/// The state of the shutdown.
#[derive(Debug)]
pub struct Draining(watch::Sender<Phase>);

impl Default for Draining {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }
}

impl Draining {
    /// Rejects new requests from now on.
    pub fn begin(&self) {
        self.0.send_replace(Phase::Draining);
    }

    /// Returns whether new requests are rejected.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() >= Phase::Draining
    }

    /// Cancels active requests.
    pub fn cut_off(&self) {
        self.0.send_replace(Phase::Over);
    }

    /// Waits until active requests are cancelled.
    async fn wait_for_cut_off(&self) {
        let mut phase = self.0.subscribe();
        // The sender is `self`, so there is no error.
        _ = phase.wait_for(|phase| *phase == Phase::Over).await;
    }
}

/// Handles a request, or fails it when active requests are cancelled. What it runs is then cancelled, as for a client
/// that disconnects.
pub async fn until_cut_off(
    State(draining): State<Arc<Draining>>,
    request: Request,
    next: Next,
) -> Response {
    tokio::select! {
        response = next.run(request) => response,
        () = draining.wait_for_cut_off() => Failure::Draining.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn shutdown_has_two_phases() {
        let draining = Draining::default();
        assert!(!draining.has_begun());
        draining.begin();
        assert!(draining.has_begun());
        let mut over = std::pin::pin!(draining.wait_for_cut_off());
        let early = timeout(Duration::ZERO, &mut over).await;
        assert!(early.is_err());
        draining.cut_off();
        over.await;
        assert!(draining.has_begun());
    }
}
