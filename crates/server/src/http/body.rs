//! Bodies of requests: JSON, read within a bound of bytes and of time.

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

/// Bytes of JSON that take a processor for a while, which other requests wait for on a thread that serves them too.
const LONG: usize = 64 << 10;

/// Reads bodies.
#[derive(Clone, Debug)]
pub struct Bodies {
    longest: u64,
    /// The time in which a client sends the next part, or takes it.
    pub pause: Duration,
    /// The memory of all. A request with a tenant has the tenant's share in its extensions.
    pub budget: Budget,
}

impl Bodies {
    /// Reads within these bounds.
    pub fn new(bounds: &HttpBounds) -> Self {
        Self {
            longest: bounds.body.as_u64(),
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
        // What is announced is refused before such a client sends any.
        let waits = headers.contains_key(EXPECT) && announced.is_some();
        let mut body = request.into_body();
        let read = self.collect(&mut body, announced, &budget).await;
        if let Err(Failure::TooLong(_) | Failure::NeverFits { .. } | Failure::Busy(_)) = read
            && !waits
        {
            self.discard(body).await;
        }
        read
    }

    /// Reads a body that nothing needs, for as long as a client may pause: one that is still sending when its connection
    /// is closed finds no answer, but an error of its socket. One that is twice as long as a body may be goes too far.
    pub async fn discard(&self, mut body: Body) {
        let discard = async {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, Bytes::len) as u64;
                if read > self.longest.saturating_mul(2) {
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
        if announced.is_some_and(|length| length > self.longest) {
            return Err(Failure::TooLong(self.longest));
        }
        // What is announced has its memory before it is sent, and what is not as it comes.
        let mut held = budget.hold(announced.unwrap_or_default())?;
        let mut bytes = BytesMut::new();
        loop {
            let next = timeout(self.pause, body.frame()).await;
            let Some(frame) = next.map_err(|_| Failure::TooSlow)? else {
                return Ok((bytes.freeze(), held));
            };
            let frame =
                frame.map_err(|error| Failure::Request(format!("the body broke off: {error}")))?;
            if let Ok(data) = frame.into_data() {
                if (bytes.len() + data.len()) as u64 > self.longest {
                    return Err(Failure::TooLong(self.longest));
                }
                held.grow((bytes.len() + data.len()) as u64)?;
                bytes.extend_from_slice(&data);
            }
        }
    }
}

/// A body that is JSON.
#[derive(Debug)]
pub struct JsonBody<T> {
    /// What it says.
    pub value: T,
    /// The memory of it.
    pub held: Held,
}

/// A body that is bytes.
#[derive(Debug)]
pub struct RawBody {
    /// The bytes.
    pub bytes: Bytes,
    /// The memory of them.
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
            let problem = "Content-Encoding: a body comes as it is, and not compressed";
            return Err(Failure::Request(problem.to_owned()));
        }
        let is_long = bytes.len() > LONG;
        let read = move || {
            // Without a body, everything is as if it had said nothing.
            let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
            // serde would take the items of an array for the members in their order.
            if text
                .trim_ascii_start()
                .first()
                .is_some_and(|byte| *byte != b'{')
            {
                let problem = "the body is not what it must be: one object of JSON, such as {}";
                return Err(Failure::Request(problem.to_owned()));
            }
            held.grow(memory_of_values(text))?;
            let value = serde_json::from_slice(text).map_err(|error| {
                Failure::Request(format!("the body is not what it must be: {error}"))
            })?;
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

    /// How many of the pieces of a KiB of a body were read, and what became of it.
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
    async fn a_client_that_sends_too_much_is_read_until_it_hears_of_it() {
        let bounds = |body, bodies| HttpBounds {
            body: ByteSize::kib(body),
            bodies: ByteSize::kib(bodies),
            ..HttpBounds::default()
        };
        let (taken, failure) = read(bounds(4, 400), &[("content-length", "6144")]).await;
        assert!(matches!(failure, Some(Failure::TooLong(4096))) && taken == 6);
        let (taken, failure) = read(bounds(4, 400), &[]).await;
        assert!(matches!(failure, Some(Failure::TooLong(4096))) && taken == 6);
        // Memory of 16 KiB is free.
        let (taken, failure) = read(bounds(400, 1), &[("content-length", "20480")]).await;
        assert!(matches!(failure, Some(Failure::NeverFits { .. })) && taken == 6);
        // This one would send it only after it was asked to.
        let head = [("content-length", "6144"), ("expect", "100-continue")];
        let (taken, failure) = read(bounds(4, 400), &head).await;
        assert!(matches!(failure, Some(Failure::TooLong(4096))) && taken == 0);
    }

    /// What a body of JSON is for a route whose body has one key.
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
    async fn a_body_is_an_object() {
        for (body, key) in [("", None), ("{}", None), (" \n{\"key\": 1}", Some(1))] {
            assert_eq!(read_json(body).await, Ok(key), "{body}");
        }
        for body in ["[]", "[1]", " [1]", "1", "\"key\"", "null", "true"] {
            let expected = "the body is not what it must be: one object of JSON, such as {}";
            assert_eq!(read_json(body).await, Err(expected.to_owned()), "{body}");
        }
    }

    #[tokio::test]
    async fn a_long_body_is_read_on_another_thread() {
        struct ReadOn(ThreadId);

        impl<'de> Deserialize<'de> for ReadOn {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                IgnoredAny::deserialize(deserializer)?;
                Ok(Self(thread::current().id()))
            }
        }

        let bodies = Bodies::new(&HttpBounds::default());
        for (length, is_here) in [(10, true), (LONG, false)] {
            let body = format!("{{\"key\":\"{}\"}}", "x".repeat(length));
            let request = Request::new(Body::from(body));
            let read = JsonBody::<ReadOn>::from_request(request, &bodies).await;
            let ReadOn(thread) = read.expect("it is JSON").value;
            assert_eq!(thread == thread::current().id(), is_here, "{length}");
        }
    }

    #[test]
    fn values_take_memory_and_texts_take_their_own() {
        let memory = |text: &str| memory_of_values(text.as_bytes());
        assert_eq!(memory("[0,0,0]"), 7 + 3 * 64);
        assert_eq!(memory(r#"{"a":[{}]}"#), 10 + 22 * 64);
        let text = r#""[[,,::{{\"[,\\""#;
        assert_eq!(memory(text), text.len() as u64);
        assert_eq!(memory(r#"["\\",""]"#), 9 + 2 * 64);
    }
}
