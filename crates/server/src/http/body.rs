//! Bodies of requests: JSON, read within a bound of bytes and of time.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRef, FromRequest, Request};
use axum::http::header::CONTENT_LENGTH;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::bounds::HttpBounds;
use super::budget::{Budget, Held};
use crate::failure::Failure;

/// Reads bodies.
#[derive(Clone, Debug)]
pub struct Bodies {
    longest: u64,
    pause: Duration,
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
        let announced = request.headers().get(CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.longest) {
            return Err(Failure::TooLong(self.longest));
        }
        // What is announced has its memory before it is sent, and what is not as it comes.
        let share = request.extensions().get::<Budget>();
        let mut held = match share
            .unwrap_or(&self.budget)
            .hold(announced.unwrap_or_default())
        {
            Ok(held) => held,
            Err(failure) => {
                self.discard(request.into_body()).await;
                return Err(failure);
            }
        };
        let bytes = self.collect(request.into_body(), &mut held).await?;
        Ok((bytes, held))
    }

    /// Reads a body that nothing needs, for as long as a client may pause: one that is still sending when its connection
    /// is closed finds no answer, but an error of its socket.
    pub async fn discard(&self, mut body: Body) {
        let discard = async {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, Bytes::len) as u64;
                if read > self.longest {
                    break;
                }
            }
        };
        _ = timeout(self.pause, discard).await;
    }

    async fn collect(&self, mut body: Body, held: &mut Held) -> Result<Bytes, Failure> {
        let mut bytes = BytesMut::new();
        loop {
            let next = timeout(self.pause, body.frame()).await;
            let Some(frame) = next.map_err(|_| Failure::TooSlow)? else {
                return Ok(bytes.freeze());
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

/// The memory that the values of a text of JSON may take together with it: `[0,0]` is a few bytes, and each value is many.
pub fn memory_of_values(text: &[u8]) -> u64 {
    /// A value, its name and its share of what contains it, with the room that grows ahead.
    const VALUE: u64 = 64;
    /// So many values take what an object takes with its first name: a node of a tree, with room for eleven.
    const OBJECT: u64 = 10;
    let (mut values, mut in_string, mut escaped) = (0_u64, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b':' | b'[' if !in_string => values += 1,
            b'{' if !in_string => values += OBJECT,
            _ => {}
        }
    }
    text.len() as u64 + values * VALUE
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

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T>
where
    Bodies: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let RawBody { bytes, mut held } = RawBody::from_request(request, state).await?;
        // Without a body, everything is as if it had said nothing.
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        held.grow(memory_of_values(text))?;
        let value = serde_json::from_slice(text).map_err(|error| {
            Failure::Request(format!("the body is not what it must be: {error}"))
        })?;
        Ok(Self { value, held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
