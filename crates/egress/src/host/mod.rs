//! Host names and addresses, and the patterns by which a policy's rules match them.

mod authority;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

pub use authority::Authority;

/// The maximum length of a name without the trailing dot (RFC 1035, 2.3.4).
const MAX_NAME: usize = 253;
/// The maximum length of a label.
const MAX_LABEL: usize = 63;

/// A host: a DNS name in lower case without its trailing dot, or an address.
///
/// An address has one canonical form: dotted decimal, or IPv6 notation with or without brackets. An IPv4-mapped IPv6
/// address (`::ffff:127.0.0.1`) becomes the IPv4 address. Every other spelling that some library parses as an address
/// (`2130706433`, `0x7f.1`, `017700000001`) is rejected.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Host {
    /// A DNS name.
    Name(String),
    /// An IP address.
    Address(IpAddr),
}

/// The reason why a text is not a host.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum HostError {
    /// The text is empty.
    #[error("the host is empty: write a name, such as \"api.github.com\"")]
    Empty,
    /// A character of a URL, such as the colon before a port.
    #[error(
        "\"{0}\" does not belong to a host: write the name alone, such as \"api.github.com\", and ports in `ports`"
    )]
    NotAlone(char),
    /// A character that no host name contains.
    #[error(
        "a host name cannot contain {0:?}: use letters, digits, `-` and `_`, and write other alphabets as `xn--`"
    )]
    Character(char),
    /// A label that is empty, longer than 63 characters, or begins or ends with a hyphen.
    #[error("each part between two dots has 1 to 63 characters, and no hyphen first or last")]
    Label,
    /// More than 253 characters.
    #[error("a host name has at most 253 characters")]
    TooLong,
    /// The last label is a number: libraries parse such names as addresses.
    #[error(
        "a host name cannot end in a number: write an IPv4 address as four numbers from 0 to 255, or use IPv6 notation"
    )]
    Number,
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bare {
            let address = address.parse::<Ipv6Addr>();
            let address = address.map_err(|_| HostError::Character('['))?;
            return Ok(Self::Address(IpAddr::from(address).to_canonical()));
        }
        // `Ipv4Addr` accepts only four decimal numbers without leading zeros.
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self::Address(IpAddr::from(address).to_canonical()));
        }
        name(text).map(Self::Name)
    }
}

/// Validates a name and converts it to lower case.
fn name(text: &str) -> Result<String, HostError> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    if text.len() > MAX_NAME {
        return Err(HostError::TooLong);
    }
    for found in text.chars() {
        match found {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => {}
            ':' | '/' | '@' | '?' | '#' => return Err(HostError::NotAlone(found)),
            other => return Err(HostError::Character(other)),
        }
    }
    let is_label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    if !text.split('.').all(is_label) {
        return Err(HostError::Label);
    }
    let last = text.rsplit('.').next().unwrap_or(text);
    if is_number(last) {
        return Err(HostError::Number);
    }
    Ok(text.to_ascii_lowercase())
}

/// Returns whether some address parser reads a label as a number: decimal, octal or hexadecimal
/// (<https://url.spec.whatwg.org/#ends-in-a-number-checker>).
fn is_number(label: &str) -> bool {
    let hexadecimal = label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        None => label.bytes().all(|digit| digit.is_ascii_digit()),
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// A pattern that matches hosts.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum HostPattern {
    /// A single host.
    Exactly(Host),
    /// Every subdomain of this name at any depth, but not the name itself: `*.example.org`.
    Beneath(String),
}

/// The reason why a text is not a host pattern.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum PatternError {
    /// `*`, or an equivalent such as `*.*`.
    #[error(
        "this pattern would allow every host: name the hosts, or the domains as \
         in \"*.example.org\""
    )]
    Everything,
    /// `*` anywhere but in place of the first label.
    #[error("`*` stands for the first part of a name only, as in \"*.example.org\"")]
    Star,
    /// The rest of the pattern is not a host.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if !text.contains('*') {
            return Ok(Self::Exactly(text.parse()?));
        }
        if text.chars().all(|it| matches!(it, '*' | '.')) {
            return Err(PatternError::Everything);
        }
        match text.strip_prefix("*.") {
            Some(rest) if !rest.contains('*') => Ok(Self::Beneath(name(rest)?)),
            _ => Err(PatternError::Star),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(host) => host.fmt(f),
            Self::Beneath(name) => write!(f, "*.{name}"),
        }
    }
}

impl HostPattern {
    /// Returns whether the pattern matches the host.
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exactly(exact), host) => exact == host,
            (Self::Beneath(domain), Host::Name(name)) => {
                let label = name.strip_suffix(domain.as_str());
                label.is_some_and(|label| label.len() > 1 && label.ends_with('.'))
            }
            (Self::Beneath(_), Host::Address(_)) => false,
        }
    }

    /// Returns whether some host could match both patterns.
    pub fn meets(&self, other: &Self) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let label = inner.strip_suffix(outer);
            label.is_some_and(|label| label.is_empty() || label.ends_with('.'))
        };
        match (self, other) {
            (Self::Exactly(host), pattern) | (pattern, Self::Exactly(host)) => {
                pattern.matches(host)
            }
            (Self::Beneath(one), Self::Beneath(two)) => is_within(one, two) || is_within(two, one),
        }
    }

    /// Returns the specificity of the pattern: of two patterns that match the same host, the one with the higher value
    /// takes precedence.
    pub fn specificity(&self) -> usize {
        match self {
            Self::Exactly(_) => usize::MAX,
            Self::Beneath(name) => name.len(),
        }
    }

    /// Returns whether the pattern covers a whole top-level domain, such as `*.com`.
    pub fn is_top_level(&self) -> bool {
        matches!(self, Self::Beneath(name) if !name.contains('.'))
    }
}

/// Implements serde through `Display` and `FromStr`.
macro_rules! as_text {
    ($($type:ty),+) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

as_text!(Host, HostPattern);

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn names_have_one_canonical_form() {
        assert_eq!(host("API.GitHub.com."), Host::Name("api.github.com".into()));
        assert_eq!(host("_srv.a-b.x1"), Host::Name("_srv.a-b.x1".into()));
        let refused = [
            ("", HostError::Empty),
            (".", HostError::Empty),
            ("a..b", HostError::Label),
            (".a", HostError::Label),
            ("-a.b", HostError::Label),
            ("a-.b", HostError::Label),
            ("a b", HostError::Character(' ')),
            ("a\0.b", HostError::Character('\0')),
            ("bücher.example", HostError::Character('ü')),
            ("a.b:443", HostError::NotAlone(':')),
            ("https://a.b", HostError::NotAlone(':')),
            ("a.b/c", HostError::NotAlone('/')),
            ("user@a.b", HostError::NotAlone('@')),
        ];
        for (text, error) in refused {
            assert_eq!(Host::from_str(text), Err(error), "{text:?}");
        }
        assert_eq!(
            Host::from_str(&format!("{}.b", "a".repeat(64))),
            Err(HostError::Label)
        );
        assert_eq!(Host::from_str(&"a.".repeat(130)), Err(HostError::TooLong));
    }

    #[test]
    fn addresses_have_one_canonical_form() {
        let loopback = Host::Address(Ipv4Addr::LOCALHOST.into());
        for text in ["127.0.0.1", "::ffff:127.0.0.1", "[::ffff:7f00:1]"] {
            assert_eq!(host(text), loopback, "{text}");
        }
        assert_eq!(host("[::1]"), Host::Address(Ipv6Addr::LOCALHOST.into()));
        for text in [
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "127.1",
            "0177.0.0.1",
            "127.0.0.0x1",
            "127.0.0.1.",
            "127.0.0.01",
            "256.0.0.1",
            "1.2.3.4.5",
            "a.1",
            "a.0x",
        ] {
            assert_eq!(Host::from_str(text), Err(HostError::Number), "{text}");
        }
        for text in ["[127.0.0.1]", "[::1", "::1]", "[::1%lo]", "fe80::1%eth0"] {
            assert!(Host::from_str(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wildcard_matches_subdomains() {
        let pattern: HostPattern = "*.PyPI.org.".parse().expect("a pattern");
        assert_eq!(pattern.to_string(), "*.pypi.org");
        for name in ["files.pypi.org", "a.b.pypi.org", "FILES.pypi.org."] {
            assert!(pattern.matches(&host(name)), "{name}");
        }
        for name in ["pypi.org", "evilpypi.org", "pypi.org.evil.com", "10.0.0.1"] {
            assert!(!pattern.matches(&host(name)), "{name}");
        }
        let refused = |text: &str| HostPattern::from_str(text).map(drop);
        for text in ["*", "*.", "*.*", ".*", "**"] {
            assert_eq!(refused(text), Err(PatternError::Everything), "{text}");
        }
        for text in ["a*.b", "a.*", "*b.c", "*.*.c", "*.a.*"] {
            assert_eq!(refused(text), Err(PatternError::Star), "{text}");
        }
        assert_eq!(
            refused("*.0.0.1"),
            Err(PatternError::Host(HostError::Number))
        );
        assert!(
            "*.com"
                .parse::<HostPattern>()
                .expect("a pattern")
                .is_top_level()
        );
        assert!(!pattern.is_top_level());
    }

    #[test]
    fn longer_pattern_is_more_specific() {
        let specificity = |text: &str| {
            text.parse::<HostPattern>()
                .expect("a pattern")
                .specificity()
        };
        assert!(specificity("a.b.c") > specificity("*.b.c"));
        assert!(specificity("*.b.c") > specificity("*.c"));
    }
}
