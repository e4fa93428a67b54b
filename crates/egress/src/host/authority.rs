//! Parses and formats a host with an optional port.

use std::fmt;
use std::str::FromStr;

use super::{Host, HostError};

/// A host and a port, as in the target of `CONNECT` and in the `Host` header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port, if there is one.
    pub port: Option<u16>,
}

impl FromStr for Authority {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let (host, port) = match text.rsplit_once(':') {
            // A colon inside brackets belongs to the IPv6 address.
            Some((host, port)) if !port.ends_with(']') => {
                let is_number = !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit());
                let port = is_number.then(|| port.parse().ok()).flatten();
                (host, Some(port.ok_or(HostError::NotAlone(':'))?))
            }
            _ => (text, None),
        };
        // Without brackets, the end of an IPv6 address would be ambiguous.
        if host.contains(':') && !host.starts_with('[') {
            return Err(HostError::NotAlone(':'));
        }
        let host = host.parse()?;
        Ok(Self { host, port })
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) if address.is_ipv6() => write!(f, "[{address}]")?,
            host => host.fmt(f)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_follows_the_last_colon() {
        let read = |text: &str| Authority::from_str(text).map(|it| (it.host.to_string(), it.port));
        assert_eq!(read("a.b"), Ok(("a.b".into(), None)));
        assert_eq!(read("a.b:80"), Ok(("a.b".into(), Some(80))));
        assert_eq!(read("[::1]:80"), Ok(("::1".into(), Some(80))));
        assert_eq!(read("[::1]"), Ok(("::1".into(), None)));
        for text in ["a.b", "a.b:80", "[::1]:80", "[::1]"] {
            let written = Authority::from_str(text).map(|it| it.to_string());
            assert_eq!(written.as_deref(), Ok(text));
        }
        for text in [
            "a.b:",
            "a.b:+80",
            "a.b:65536",
            "a.b:8 0",
            "::1:80",
            "a:80:80",
            ":80",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
