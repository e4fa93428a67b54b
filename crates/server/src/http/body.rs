//! Reads request bodies, JSON or raw, within limits of size, memory and time.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRef, FromRequest, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::bounds::HttpBounds;
use super::budget::{Budget, Held};
use super::values::memory_of_values;
use crate::failure::Failure;
use crate::running::blocking;

/// The size in bytes above which JSON is parsed where blocking is allowed, so that it does not delay other requests on
/// the async threads.
pub const BLOCKING_THRESHOLD: usize = 64 << 10;

/// Reads request bodies.
#[derive(Clone, Debug)]
pub struct Bodies {
    max_body: u64,
    /// The timeout for the client to send or accept the next chunk.
    pub pause: Duration,
    /// The memory budget of all bodies. Requests of a tenant carry the tenant's share in their extensions.
    pub budget: Budget,
}

impl Bodies {
    /// Creates a reader with these limits.
    pub fn new(bounds: &HttpBounds) -> Self {
        Self {
            max_body: bounds.body.as_u64(),
            pause: bounds.pause,
            budget: Budget::new(bounds.bodies.as_u64()),
        }
    }

    async fn read(&self, request: Request) -> Result<(Bytes, Held), Failure> {
        let share = request.extensions().get::<Budget>();
        let budget = share.unwrap_or(&self.budget).clone();
        let headers = request.headers();
        let announced = headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
        // With `Expect: 100-continue`, a body that is rejected by its announced length is never sent.
        let awaits_continue = headers.contains_key(EXPECT) && announced.is_some();
        let mut body = request.into_body();
        let read = self.collect(&mut body, announced, &budget).await;
        if let Err(Failure::TooLong(_) | Failure::NeverFits { .. } | Failure::Busy(_)) = read
            && !awaits_continue
        {
            self.discard(body).await;
        }
        read
    }

    /// Drains an unneeded body, for at most as long as a client may pause and up to twice the maximum length. A client
    /// that is still sending when its connection is closed would get a socket error instead of the response.
    pub async fn discard(&self, mut body: Body) {
        let discard = async {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, Bytes::len) as u64;
                if read > self.max_body.saturating_mul(2) {
                    break;
                }
            }
        };
        _ = timeout(self.pause, discard).await;
    }

    async fn collect(
        &self,
        body: &mut Body,
        announced: Option<u64>,
        budget: &Budget,
    ) -> Result<(Bytes, Held), Failure> {
        if announced.is_some_and(|length| length > self.max_body) {
            return Err(Failure::TooLong(self.max_body));
        }
        // An announced length reserves its memory in advance; without one, memory is reserved as chunks arrive.
        let mut held = budget.hold(announced.unwrap_or_default())?;
        let mut bytes = BytesMut::new();
        loop {
            let next = timeout(self.pause, body.frame()).await;
            let Some(frame) = next.map_err(|_| Failure::TooSlow)? else {
                return Ok((bytes.freeze(), held));
            };
            let frame = frame
                .map_err(|error| Failure::Request(format!("the body ended early: {error}")))?;
            if let Ok(data) = frame.into_data() {
                if (bytes.len() + data.len()) as u64 > self.max_body {
                    return Err(Failure::TooLong(self.max_body));
                }
                held.grow((bytes.len() + data.len()) as u64)?;
                bytes.extend_from_slice(&data);
            }
        }
    }
}

/// A JSON body.
#[derive(Debug)]
pub struct JsonBody<T> {
    /// The parsed value.
    pub value: T,
    /// The reserved memory of the value.
    pub held: Held,
}

/// A raw body.
#[derive(Debug)]
pub struct RawBody {
    /// The bytes.
    pub bytes: Bytes,
    /// The reserved memory of the bytes.
    pub held: Held,
}

impl<S: Send + Sync> FromRequest<S> for RawBody
where
    Bodies: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let (bytes, held) = Bodies::from_ref(state).read(request).await?;
        Ok(Self { bytes, held })
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for JsonBody<T>
where
    Bodies: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let encoding = request.headers().get(CONTENT_ENCODING).cloned();
        let RawBody { bytes, mut held } = RawBody::from_request(request, state).await?;
        if encoding.is_some_and(|encoding| encoding != "identity") {
            let problem = "Content-Encoding: compressed bodies are not supported";
            return Err(Failure::Request(problem.to_owned()));
        }
        let is_long = bytes.len() > BLOCKING_THRESHOLD;
        let read = move || {
            // An empty body means an empty object.
            let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
            // serde would also accept an array as a struct, with its items as the fields in order.
            if text
                .trim_ascii_start()
                .first()
                .is_some_and(|byte| *byte != b'{')
            {
                let problem = "invalid body: must be a JSON object, such as {}";
                return Err(Failure::Request(problem.to_owned()));
            }
            held.grow(memory_of_values(text))?;
            let value = serde_json::from_slice(text)
                .map_err(|error| Failure::Request(format!("invalid body: {error}")))?;
            Ok(Self { value, held })
        };
        if is_long {
            blocking(read).await
        } else {
            read()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{self, ThreadId};

    use bytesize::ByteSize;
    use futures_util::StreamExt;
    use futures_util::stream::iter;
    use serde::de::{Deserialize, Deserializer, IgnoredAny};

    use super::*;

    /// Reads a body of 6 KiB in chunks of 1 KiB. Returns the number of chunks that were read, and the failure.
    async fn read(bounds: HttpBounds, head: &[(&str, &str)]) -> (usize, Option<Failure>) {
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let pieces = iter(0..6).map(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(vec![b'x'; 1 << 10])
        });
        let mut request = Request::builder();
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from_stream(pieces)).expect("a request");
        let read = Bodies::new(&bounds).read(request).await;
        (taken.load(Ordering::Relaxed), read.err())
    }

    #[tokio::test]
    async fn oversized_body_is_drained_before_the_response() {
        let bounds = |body, bodies| HttpBounds {
            body: ByteSize::kib(body),
            bodies: ByteSize::kib(bodies),
            ..HttpBounds::default()
        };
        let (taken, failure) = read(bounds(4, 400), &[("content-length", "6144")]).await;
        assert!(matches!(failure, Some(Failure::TooLong(4096))) && taken == 6);
        let (taken, failure) = read(bounds(4, 400), &[]).await;
        assert!(matches!(failure, Some(Failure::TooLong(4096))) && taken == 6);
        // The first 16 KiB need no budget, so announce more.
        let (taken, failure) = read(bounds(400, 1), &[("content-length", "20480")]).await;
        assert!(matches!(failure, Some(Failure::NeverFits { .. })) && taken == 6);
        // With `Expect: 100-continue`, the client has not sent the body yet.
        let head = [("content-length", "6144"), ("expect", "100-continue")];
        let (taken, failure) = read(bounds(4, 400), &head).await;
        assert!(matches!(failure, Some(Failure::TooLong(4096))) && taken == 0);
    }

    /// Parses a JSON body for a route with one key.
    async fn read_json(body: &'static str) -> Result<Option<u32>, String> {
        #[derive(Debug, serde::Deserialize)]
        struct Route {
            key: Option<u32>,
        }
        let bodies = Bodies::new(&HttpBounds::default());
        let request = Request::new(Body::from(body));
        let read = JsonBody::<Route>::from_request(request, &bodies).await;
        read.map(|body| body.value.key)
            .map_err(|failure| failure.to_string())
    }

    #[tokio::test]
    async fn json_body_must_be_an_object() {
        for (body, key) in [("", None), ("{}", None), (" \n{\"key\": 1}", Some(1))] {
            assert_eq!(read_json(body).await, Ok(key), "{body}");
        }
        for body in ["[]", "[1]", " [1]", "1", "\"key\"", "null", "true"] {
            let expected = "invalid body: must be a JSON object, such as {}";
            assert_eq!(read_json(body).await, Err(expected.to_owned()), "{body}");
        }
    }

    #[tokio::test]
    async fn long_body_is_parsed_on_a_blocking_thread() {
        struct ReadOn(ThreadId);

        impl<'de> Deserialize<'de> for ReadOn {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                IgnoredAny::deserialize(deserializer)?;
                Ok(Self(thread::current().id()))
            }
        }

        let bodies = Bodies::new(&HttpBounds::default());
        for (length, is_here) in [(10, true), (BLOCKING_THRESHOLD, false)] {
            let body = format!("{{\"key\":\"{}\"}}", "x".repeat(length));
            let request = Request::new(Body::from(body));
            let read = JsonBody::<ReadOn>::from_request(request, &bodies).await;
            let ReadOn(thread) = read.expect("JSON").value;
            assert_eq!(thread == thread::current().id(), is_here, "{length}");
        }
    }

    #[test]
    fn memory_counts_values_and_ignores_strings() {
        let memory = |text: &str| memory_of_values(text.as_bytes());
        assert_eq!(memory("[0,0,0]"), 7 + 3 * 64);
        assert_eq!(memory(r#"{"a":[{}]}"#), 10 + 22 * 64);
        let text = r#""[[,,::{{\"[,\\""#;
        assert_eq!(memory(text), text.len() as u64);
        assert_eq!(memory(r#"["\\",""]"#), 9 + 2 * 64);
    }
}
