//! The endpoint and scheme of requests.

use std::fmt;

use crate::host::{Authority, Host};

/// A host and a port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    pub host: Host,
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (self.host.clone(), Some(self.port));
        Authority { host, port }.fmt(f)
    }
}

impl Endpoint {
    /// Returns the authority of a request, without the default port.
    pub fn authority(&self, scheme: Scheme) -> String {
        let whole = self.to_string();
        let usual = format!(":{}", scheme.usual_port());
        whole.strip_suffix(&usual).unwrap_or(&whole).to_owned()
    }
}

/// The scheme of requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// Cleartext HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    pub const fn usual_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}
