//! Output as it comes, as server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use sandfork::OutputSink;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_stream::Stream;

use crate::failure::Failure;
use crate::http::Held;

/// Events that wait for the client. A guest that writes faster than its client reads has to wait.
const WAITING: usize = 64;

/// Output that goes to the client as it comes.
#[derive(Debug)]
pub struct Streamed(Sender<Event>);

impl Streamed {
    fn send(&self, name: &str, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        // A client that has gone is noticed by the connection, which stops what runs.
        _ = self.0.blocking_send(event(name, &json!({ "text": text })));
    }
}

impl OutputSink for Streamed {
    fn stdout(&mut self, bytes: &[u8]) {
        self.send("stdout", bytes);
    }

    fn stderr(&mut self, bytes: &[u8]) {
        self.send("stderr", bytes);
    }
}

/// Whether the client asks for events.
pub fn is_asked(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get(ACCEPT)
        .and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/event-stream"))
}

/// Sends the output of what `begin` begins, and then its result. What fails before any output has the status of its
/// failure, as without events.
///
/// # Errors
/// If it fails before any output.
pub async fn answer<F>(held: Held, begin: impl FnOnce(Streamed) -> F) -> Result<Response, Failure>
where
    F: Future<Output = Result<Value, Failure>> + Send + 'static,
{
    let (sender, receiver) = channel(WAITING);
    let mut running: Running = Box::pin(begin(Streamed(sender)));
    let mut events = Events {
        first: None,
        receiver,
        running: None,
        last: None,
        _held: held,
    };
    tokio::select! {
        Some(first) = events.receiver.recv() => {
            events.first = Some(first);
            events.running = Some(running);
        }
        result = &mut running => events.last = Some(event("result", &result?)),
    }
    let alive = KeepAlive::new().interval(Duration::from_secs(5));
    Ok(Sse::new(events).keep_alive(alive).into_response())
}

type Running = Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>;

/// The events of a run. Dropping them stops it.
struct Events {
    first: Option<Event>,
    receiver: Receiver<Event>,
    running: Option<Running>,
    /// Comes when all output has.
    last: Option<Event>,
    _held: Held,
}

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(running) = &mut self.running
            && let Poll::Ready(result) = running.as_mut().poll(context)
        {
            self.running = None;
            self.last = Some(match result {
                Ok(result) => event("result", &result),
                Err(failure) => {
                    let error = json!({ "kind": failure.kind(), "message": failure.to_string() });
                    event("error", &error)
                }
            });
        }
        match ready!(self.receiver.poll_recv(context)) {
            Some(output) => Poll::Ready(Some(Ok(output))),
            // All output has come, and the result is still on its way.
            None if self.running.is_some() => Poll::Pending,
            None => Poll::Ready(self.last.take().map(Ok)),
        }
    }
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}
