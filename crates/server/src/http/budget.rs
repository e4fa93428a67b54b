//! The memory that all bodies and answers may take together.

use std::io::{self, Write};
use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keeping::keeping;
use crate::failure::Failure;

/// The unit in which memory is counted.
const KIB: u64 = 1 << 10;

/// Memory for bodies and answers: that of all tenants, or the share of one in it.
#[derive(Clone, Debug)]
pub struct Budget(Vec<Places>);

/// Places of memory, and how many there are in all.
#[derive(Clone, Debug)]
struct Places {
    free: Arc<Semaphore>,
    most: u64,
}

/// A part of it, until it is dropped.
#[derive(Debug)]
pub struct Held {
    /// What it is a part of.
    pub budget: Budget,
    /// Of each that it counts in.
    parts: Vec<OwnedSemaphorePermit>,
}

fn places(bytes: u64) -> Places {
    let places = usize::try_from(bytes / KIB).unwrap_or(usize::MAX);
    Places {
        free: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
        most: bytes / KIB,
    }
}

impl Budget {
    /// So many bytes.
    pub fn new(bytes: u64) -> Self {
        Self(vec![places(bytes)])
    }

    /// So many bytes of these, for a tenant. A client decides how long it takes to send and to read.
    #[must_use]
    pub fn share(&self, bytes: u64) -> Self {
        let own = [places(bytes)];
        Self(own.into_iter().chain(self.0.iter().cloned()).collect())
    }

    /// The text of a value in JSON, whose memory is held before it is made.
    ///
    /// # Errors
    /// If so much memory is not left.
    pub fn json(&self, value: &impl Serialize) -> Result<(Vec<u8>, Held), Failure> {
        let length = length_of(value)?;
        let held = self.hold(length)?;
        let mut text = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        serde_json::to_writer(&mut text, value).map_err(|error| unwritten(&error))?;
        Ok((text, held))
    }

    /// An answer in JSON, whose memory is held until it is sent. A list may take a while to write: its caller is on a thread
    /// that may block.
    ///
    /// # Errors
    /// If so much memory is not left.
    pub fn answer(&self, value: &impl Serialize) -> Result<Response, Failure> {
        let (text, held) = self.json(value)?;
        let headers = [(CONTENT_TYPE, "application/json")];
        Ok((StatusCode::OK, headers, held.with(Bytes::from(text))).into_response())
    }

    /// Takes a part.
    ///
    /// # Errors
    /// If so much is not left.
    pub fn hold(&self, bytes: u64) -> Result<Held, Failure> {
        let mut held = Held {
            budget: self.clone(),
            parts: Vec::new(),
        };
        held.grow(bytes)?;
        Ok(held)
    }
}

impl Held {
    /// Takes more, until it is so many bytes. Few are free: the number of connections bounds them.
    ///
    /// # Errors
    /// If so much is not left. It stays as it was.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Failure> {
        const FREE: u64 = 16 * KIB;
        let more = bytes.div_ceil(KIB).saturating_sub(self.places());
        if bytes <= FREE || more == 0 {
            return Ok(());
        }
        let all = self.budget.0.iter();
        let most = all.clone().map(|places| places.most).min();
        if let Some(most) = most.filter(|most| bytes.div_ceil(KIB) > *most) {
            return Err(Failure::NeverFits {
                needed: bytes,
                most: most * KIB,
            });
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let parts = all.map(|places| Arc::clone(&places.free).try_acquire_many_owned(more));
        let parts: Vec<_> = parts.collect::<Result<_, _>>().map_err(|_| {
            Failure::Busy(
                "the server holds as much of bodies as it may, or as this tenant may: try again later"
                    .to_owned(),
            )
        })?;
        if self.parts.is_empty() {
            self.parts = parts;
        } else {
            let held = self.parts.iter_mut().zip(parts);
            held.for_each(|(held, part)| held.merge(part));
        }
        Ok(())
    }

    /// Takes so many bytes more.
    ///
    /// # Errors
    /// If so much is not left. It stays as it was.
    pub fn grow_by(&mut self, more: u64) -> Result<(), Failure> {
        self.grow(self.places() * KIB + more)
    }

    /// The places that it has.
    fn places(&self) -> u64 {
        let has = self.parts.first();
        has.map_or(0, OwnedSemaphorePermit::num_permits) as u64
    }

    /// An answer in JSON. The memory of the request counts until it is made, and its own until it is sent.
    ///
    /// # Errors
    /// If so much memory is not left.
    pub fn answer(self, value: &impl Serialize) -> Result<Response, Failure> {
        let budget = self.budget.clone();
        drop(self);
        budget.answer(value)
    }

    /// A body that holds it until it is sent.
    pub fn with(self, bytes: Bytes) -> Body {
        keeping(Body::from(bytes), self)
    }
}

/// The bytes of a value in JSON. Nothing is kept of them.
///
/// # Errors
/// If it cannot be written.
pub fn length_of(value: &impl Serialize) -> Result<u64, Failure> {
    struct Length(u64);

    impl Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut length = Length(0);
    serde_json::to_writer(&mut length, value).map_err(|error| unwritten(&error))?;
    Ok(length.0)
}

/// What is said of an answer that cannot be written.
pub fn unwritten(error: &serde_json::Error) -> Failure {
    tracing::error!("an answer cannot be written: {error}");
    Failure::Mistake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_not_left_for_others() {
        let budget = Budget::new(100 * KIB);
        let held = budget.hold(80 * KIB).expect("it is there");
        assert!(budget.hold(80 * KIB).is_err());
        assert!(budget.hold(KIB).is_ok(), "small ones are free");
        drop(held);
        let mut held = budget.hold(KIB).expect("it is there");
        held.grow(90 * KIB).expect("it is there");
        assert!(matches!(budget.hold(20 * KIB), Err(Failure::Busy(_))));
        assert!(matches!(
            held.grow(101 * KIB),
            Err(Failure::NeverFits { .. })
        ));
        drop(held);
        let mut held = budget.hold(40 * KIB).expect("it is there");
        held.grow_by(50 * KIB).expect("it is there");
        assert!(budget.hold(20 * KIB).is_err());
        drop(held);
        assert!(budget.hold(100 * KIB).is_ok());
    }

    #[test]
    fn a_share_leaves_the_rest_to_others() {
        let all = Budget::new(100 * KIB);
        let (one, other) = (all.share(50 * KIB), all.share(50 * KIB));
        let held = one.hold(40 * KIB).expect("it is there");
        assert!(matches!(one.hold(20 * KIB), Err(Failure::Busy(_))));
        // Another attempt would be in vain.
        assert!(matches!(one.hold(60 * KIB), Err(Failure::NeverFits { .. })));
        let mut others = other.hold(30 * KIB).expect("it is there");
        others.grow(50 * KIB).expect("it is there");
        assert!(others.grow(60 * KIB).is_err());
        assert!(all.hold(20 * KIB).is_err());
        drop((held, others));
        assert!(all.hold(100 * KIB).is_ok());
    }

    #[test]
    fn json_has_its_memory_before_it_is_made() {
        struct Once<'a>(&'a Budget, std::cell::Cell<u32>);

        impl Serialize for Once<'_> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.1.set(self.1.get() + 1);
                assert_eq!(self.0.hold(70 * KIB).is_err(), self.1.get() == 2);
                serializer.serialize_str(&"x".repeat(50 << 10))
            }
        }

        let budget = Budget::new(100 * KIB);
        let made = budget.json(&Once(&budget, std::cell::Cell::new(0)));
        let (text, _held) = made.expect("there is room");
        assert_eq!(text.len(), (50 << 10) + 2);
    }
}
