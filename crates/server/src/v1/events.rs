//! Output as it comes, as server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio_stream::StreamExt;

use crate::failure::Failure;
use crate::http::{Held, Live, LiveText, WithBytes};

/// Whether the client asks for events.
pub fn is_asked(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get(ACCEPT)
        .and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/event-stream"))
}

/// Sends the output of what `begin` begins, and then its result, in JSON. What fails before any output has the status of its
/// failure, as without events. What runs waits for its client for `patience` in all.
///
/// # Errors
/// If it fails before any output.
pub async fn answer<F>(
    held: Held,
    patience: Duration,
    begin: impl FnOnce(LiveText<Event>) -> F,
) -> Result<Response, Failure>
where
    F: Future<Output = Result<(Vec<u8>, Held), Failure>> + Send + 'static,
{
    let live = Live::begin(held, patience, error, |sender| {
        let running = begin(LiveText::new(sender, output));
        async move {
            let (result, held) = running.await?;
            Ok((event("result", &String::from_utf8_lossy(&result)), held))
        }
    });
    let events = live.await?.map(Ok::<_, Infallible>);
    let alive = KeepAlive::new().interval(Duration::from_secs(5));
    Ok(Sse::new(events).keep_alive(alive).into_response())
}

fn output(stream: &str, text: &str) -> WithBytes<Event> {
    let text = json!({ "text": text }).to_string();
    let bytes = text.len() as u64;
    (event(stream, &text), bytes)
}

fn error(failure: &Failure) -> Event {
    let error = json!({ "kind": failure.kind(), "message": failure.message() });
    event("error", &error.to_string())
}

fn event(name: &str, data: &str) -> Event {
    Event::default().event(name).data(data)
}
