//! Output as it comes, as server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio_stream::StreamExt;

use crate::failure::Failure;
use crate::http::{Budget, Held, Live, LiveText, WithBytes};

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
    begin: impl FnOnce(LiveText<Event>) -> F,
) -> Result<Response, Failure>
where
    F: Future<Output = Result<Value, Failure>> + Send + 'static,
{
    let live = Live::begin(held, error, |sender| {
        let running = begin(LiveText::new(sender, output));
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

fn output(stream: &str, text: &str) -> WithBytes<Event> {
    let text = json!({ "text": text }).to_string();
    let bytes = text.len() as u64;
    (event(stream, text), bytes)
}

fn error(failure: &Failure) -> Event {
    let error = json!({ "kind": failure.kind(), "message": failure.to_string() });
    event("error", error.to_string())
}

fn event(name: &str, data: String) -> Event {
    Event::default().event(name).data(data)
}
