//! Bounds of connections and bodies, as the configuration has them.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;

/// Bounds of what clients can make the server hold.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpBounds {
    /// Connections at once.
    pub connections: usize,
    /// Bytes of one body.
    pub body: ByteSize,
    /// Bytes of all bodies and answers at once.
    pub bodies: ByteSize,
    /// The time for the head of a request, and between two requests of a connection.
    #[serde(with = "humantime_serde")]
    pub head: Duration,
    /// The time in which a client sends the next part of a body, or takes the next part of an answer.
    #[serde(with = "humantime_serde")]
    pub pause: Duration,
}

impl Default for HttpBounds {
    fn default() -> Self {
        Self {
            connections: 4096,
            body: ByteSize::mib(32),
            bodies: ByteSize::mib(512),
            head: Duration::from_secs(30),
            pause: Duration::from_secs(30),
        }
    }
}

impl HttpBounds {
    /// Checks that they let something through.
    ///
    /// # Errors
    /// The key that does not.
    pub fn check(&self) -> Result<(), String> {
        if self.connections == 0 {
            return Err("connections: without any, no client is served".to_owned());
        }
        if self.body.as_u64() == 0 {
            return Err("body: without any byte, no request is read".to_owned());
        }
        if self.bodies < self.body {
            let Self { body, bodies, .. } = self;
            return Err(format!(
                "bodies: {bodies} are less than one body of `http.body`, {body}"
            ));
        }
        Ok(())
    }
}
