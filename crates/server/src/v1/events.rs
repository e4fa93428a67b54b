//! Output as it comes, as server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use sandfork::OutputSink;
use serde_json::{Value, json};
use tokio_stream::StreamExt;

use crate::failure::Failure;
use crate::http::{Budget, Held, Live, LiveSender, TextDecoder};

/// Output that goes to the client as it comes.
#[derive(Debug)]
pub struct Streamed {
    sender: LiveSender<Event>,
    stdout: TextDecoder,
    stderr: TextDecoder,
}

impl Streamed {
    fn send(&mut self, name: &str, text: &str) {
        let text = json!({ "text": text }).to_string();
        let bytes = text.len() as u64;
        self.sender.send((event(name, text), bytes));
    }
}

impl OutputSink for Streamed {
    fn stdout(&mut self, bytes: &[u8]) {
        let text = self.stdout.text(bytes);
        self.send("stdout", &text);
    }

    fn stderr(&mut self, bytes: &[u8]) {
        let text = self.stderr.text(bytes);
        self.send("stderr", &text);
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
pub async fn answer<F>(
    budget: Budget,
    held: Held,
    begin: impl FnOnce(Streamed) -> F,
) -> Result<Response, Failure>
where
    F: Future<Output = Result<Value, Failure>> + Send + 'static,
{
    let live = Live::begin(held, error, |sender| {
        let running = begin(Streamed {
            sender,
            stdout: TextDecoder::default(),
            stderr: TextDecoder::default(),
        });
        async move {
            let result = running.await?.to_string();
            let held = budget.hold(result.len() as u64)?;
            Ok((event("result", result), held))
        }
    });
    let events = live.await?.map(Ok::<_, Infallible>);
    let alive = KeepAlive::new().interval(Duration::from_secs(5));
    Ok(Sse::new(events).keep_alive(alive).into_response())
}

fn error(failure: &Failure) -> Event {
    let error = json!({ "kind": failure.kind(), "message": failure.to_string() });
    event("error", error.to_string())
}

fn event(name: &str, data: String) -> Event {
    Event::default().event(name).data(data)
}
