//! Where requests go, and how.

use std::fmt;

use crate::host::{Authority, Host};

/// A host and a port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    pub host: Host,
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (self.host.clone(), Some(self.port));
        Authority { host, port }.fmt(f)
    }
}

impl Place {
    /// The host as requests name it: without the port that goes without saying.
    pub fn authority(&self, scheme: Scheme) -> String {
        let whole = self.to_string();
        let usual = format!(":{}", scheme.usual_port());
        whole.strip_suffix(&usual).unwrap_or(&whole).to_owned()
    }
}

/// How requests reach the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
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
