//! Streams output as server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio_stream::StreamExt;

use crate::failure::Failure;
use crate::http::{Held, Live, LiveText, SizedItem};

/// Returns whether the client accepts events.
pub fn are_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get(ACCEPT)
        .and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/event-stream"))
}

/// Streams the output of the run that `begin` starts, followed by its result in JSON. A failure before any output
/// becomes the HTTP status, as without events. `output_timeout` limits the total time for which the run waits for its
/// client.
///
/// # Errors
/// Returns the failure if the run fails before any output.
pub async fn answer<F>(
    held: Held,
    output_timeout: Duration,
    begin: impl FnOnce(LiveText<Event>) -> F,
) -> Result<Response, Failure>
where
    F: Future<Output = Result<(Vec<u8>, Held), Failure>> + Send + 'static,
{
    let live = Live::begin(held, output_timeout, error, |sender| {
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

fn output(stream: &str, text: &str) -> SizedItem<Event> {
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
