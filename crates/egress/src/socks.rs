//! Parses SOCKS5 without authentication (RFC 1928): the greeting and the request to connect.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::host::Host;

/// The first byte of both messages.
pub const VERSION: u8 = 5;

/// The maximum size of a message in bytes: a request with the longest name and its port.
pub const MAX_BYTES: usize = 4 + 1 + 255 + 2;

const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;

/// The result of parsing a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Read<T> {
    /// More bytes are needed.
    Incomplete,
    /// A complete message and its length in bytes.
    Message(T, usize),
    /// The message requests an unsupported feature. Contains the reply to send.
    Unsupported(&'static [u8]),
    /// The message violates the protocol.
    Malformed,
}

/// The reply to a greeting that offers no authentication.
pub const WELCOME: &[u8] = &[VERSION, NO_AUTHENTICATION];

/// The result of a request (RFC 1928, 6).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Code {
    /// The connection is open.
    Succeeded = 0,
    /// The policy does not allow it.
    NotAllowed = 2,
    /// The host cannot be reached.
    HostUnreachable = 4,
}

/// Encodes the reply to a request. Clients ignore its address field, which is zero.
pub fn answer(code: Code) -> [u8; 10] {
    [VERSION, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// Parses a greeting.
pub fn greeting(bytes: &[u8]) -> Read<()> {
    let (Some(version), Some(count)) = (bytes.first(), bytes.get(1)) else {
        return Read::Incomplete;
    };
    if *version != VERSION {
        return Read::Malformed;
    }
    let length = 2 + usize::from(*count);
    match bytes.get(2..length) {
        None => Read::Incomplete,
        Some(methods) if methods.contains(&NO_AUTHENTICATION) => Read::Message((), length),
        Some(_) => Read::Unsupported(&[VERSION, 0xff]),
    }
}

/// Parses a request to connect.
pub fn request(bytes: &[u8]) -> Read<(Host, u16)> {
    let Some([version, command, reserved, kind]) = bytes.first_chunk() else {
        return Read::Incomplete;
    };
    if *version != VERSION || *reserved != 0 {
        return Read::Malformed;
    }
    if *command != CONNECT {
        return Read::Unsupported(&[VERSION, 7, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
    let rest = &bytes[4..];
    let (host, length) = match kind {
        1 => {
            let address = rest.first_chunk::<4>();
            let host = address.map(|it| Some(Host::Address(Ipv4Addr::from(*it).into())));
            (host, 4)
        }
        4 => {
            let address = rest.first_chunk::<16>();
            let host = address.map(|it| {
                let address = std::net::IpAddr::from(Ipv6Addr::from(*it));
                Some(Host::Address(address.to_canonical()))
            });
            (host, 16)
        }
        3 => {
            let Some(length) = rest.first().map(|it| usize::from(*it)) else {
                return Read::Incomplete;
            };
            let name = rest.get(1..=length);
            let host = name.map(|it| std::str::from_utf8(it).ok()?.parse().ok());
            (host, 1 + length)
        }
        _ => return Read::Unsupported(&[VERSION, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
    };
    let port = rest.get(length..).and_then(|rest| rest.first_chunk());
    match (host, port) {
        (Some(Some(host)), Some(port)) => {
            Read::Message((host, u16::from_be_bytes(*port)), 4 + length + 2)
        }
        (Some(None), _) => Read::Malformed,
        _ => Read::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_must_offer_no_authentication() {
        assert_eq!(greeting(&[5, 1, 0]), Read::Message((), 3));
        assert_eq!(greeting(&[5, 2, 2, 0, 5]), Read::Message((), 4));
        assert_eq!(greeting(&[5, 1, 2]), Read::Unsupported(&[5, 0xff]));
        assert_eq!(greeting(&[5, 0]), Read::Unsupported(&[5, 0xff]));
        assert_eq!(greeting(&[4, 1]), Read::Malformed);
        for bytes in [&[][..], &[5], &[5, 2, 0]] {
            assert_eq!(greeting(bytes), Read::Incomplete, "{bytes:?}");
        }
    }

    #[test]
    fn request_contains_a_name_or_an_address() {
        let name = [&[5, 1, 0, 3, 9][..], b"A.example", &[1, 187]].concat();
        let host: Host = "a.example".parse().expect("a name");
        assert_eq!(request(&name), Read::Message((host, 443), name.len()));
        for length in 0..name.len() {
            assert_eq!(request(&name[..length]), Read::Incomplete, "{length}");
        }
        let ipv4 = [5, 1, 0, 1, 10, 0, 0, 1, 0, 80];
        let host: Host = "10.0.0.1".parse().expect("an address");
        assert_eq!(request(&ipv4), Read::Message((host.clone(), 80), 10));
        let mapped: Ipv6Addr = "::ffff:10.0.0.1".parse().expect("an address");
        let ipv6 = [&[5, 1, 0, 4][..], &mapped.octets(), &[0, 80]].concat();
        assert_eq!(request(&ipv6), Read::Message((host, 80), 22));
    }

    #[test]
    fn malformed_and_unsupported_requests_are_rejected() {
        let malformed = [
            &[5, 1, 1, 1, 1, 2, 3, 4, 0, 80][..],
            &[4, 1, 0, 1, 1, 2, 3, 4, 0, 80],
            &[5, 1, 0, 3, 0, 0, 80],
            &[5, 1, 0, 3, 1, b' ', 0, 80],
            &[
                5, 1, 0, 3, 10, b'2', b'1', b'3', b'0', b'7', b'0', b'6', b'4', b'3', b'3', 0, 80,
            ],
        ];
        for bytes in malformed {
            assert_eq!(request(bytes), Read::Malformed, "{bytes:?}");
        }
        // BIND, UDP ASSOCIATE, an unknown address type.
        for bytes in [[5, 2, 0, 1], [5, 3, 0, 1], [5, 1, 0, 2]] {
            assert!(matches!(request(&bytes), Read::Unsupported(_)), "{bytes:?}");
        }
    }
}
