//! The limits of connections and bodies in the configuration.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;

/// Limits of the resources that clients can occupy.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpBounds {
    /// The maximum number of connections.
    pub connections: usize,
    /// The maximum size of a body.
    pub body: ByteSize,
    /// The maximum size of all bodies and responses together.
    pub bodies: ByteSize,
    /// The timeout for a request head, and for an idle connection.
    #[serde(with = "humantime_serde")]
    pub head: Duration,
    /// The timeout for a client to send the next chunk of a body, or to accept the next chunk of a response.
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
    /// Checks that the limits are usable.
    ///
    /// # Errors
    /// Returns the key that is not, with the reason.
    pub fn check(&self) -> Result<(), String> {
        if self.connections == 0 {
            return Err("connections: 0 serves no client: set 1 or more".to_owned());
        }
        if self.body.as_u64() == 0 {
            return Err("body: 0 accepts no request: set a larger size".to_owned());
        }
        if self.bodies < self.body {
            let Self { body, bodies, .. } = self;
            return Err(format!(
                "bodies: {bodies} is less than `http.body`, {body}: set it to at least that"
            ));
        }
        Ok(())
    }
}
