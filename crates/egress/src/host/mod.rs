//! Names of hosts: those of a policy's rules, and those that a guest asks for.

mod authority;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

pub use authority::Authority;

/// The longest name, without the final dot (RFC 1035, 2.3.4).
const LONGEST: usize = 253;
/// The longest label.
const LONGEST_LABEL: usize = 63;

/// A host: a name of the DNS in lower case without its final dot, or an address.
///
/// An address has one spelling: four decimal numbers, or the notation of IPv6 with or without brackets. An IPv4
/// address that is written as one of IPv6 (`::ffff:127.0.0.1`) is the IPv4 address. Every other spelling of numbers
/// that some library would read as an address (`2130706433`, `0x7f.1`, `017700000001`) is no host at all.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Host {
    /// A name.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// Why a text is not a host.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum HostError {
    /// There is nothing.
    #[error("the host is empty: write a name, such as \"api.github.com\"")]
    Empty,
    /// A URL, or a part of one.
    #[error(
        "\"{0}\" does not belong to a host: write the name alone, such as \"api.github.com\", and ports in `ports`"
    )]
    NotAlone(char),
    /// A character that no name has.
    #[error(
        "a name of a host has no {0:?}: use letters, digits, `-` and `_`, and write other alphabets as `xn--`"
    )]
    Character(char),
    /// An empty label, or one that is too long or begins or ends with a hyphen.
    #[error("each part between two dots has 1 to 63 characters, and no hyphen first or last")]
    Label,
    /// More than 253 characters.
    #[error("a name of a host has at most 253 characters")]
    TooLong,
    /// A last label that is a number: libraries read such names as addresses.
    #[error(
        "a name does not end in a number: write an address as four numbers of 0 to 255, or as one of IPv6"
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
        // Rust reads four decimal numbers without leading zeros, and nothing else, as IPv4.
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self::Address(IpAddr::from(address).to_canonical()));
        }
        name(text).map(Self::Name)
    }
}

/// Reads a name.
fn name(text: &str) -> Result<String, HostError> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    if text.len() > LONGEST {
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
        (1..=LONGEST_LABEL).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
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

/// Whether a label is a number to one of the readers of addresses: decimal, octal or hexadecimal
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

/// The hosts of a rule.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum HostPattern {
    /// One host.
    Exactly(Host),
    /// Every name beneath this one, at any depth, and not the name itself: `*.example.org`.
    Beneath(String),
}

/// Why a text is not a pattern of hosts.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum PatternError {
    /// `*`, or the same in other words.
    #[error(
        "this pattern would allow every host: name the hosts, or the domains as \
         in \"*.example.org\""
    )]
    Everything,
    /// `*` elsewhere than in place of the first label.
    #[error("`*` stands for the first part of a name only, as in \"*.example.org\"")]
    Star,
    /// What is left is not a host.
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
    /// Whether the host is one of these.
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exactly(own), host) => own == host,
            (Self::Beneath(above), Host::Name(name)) => {
                let label = name.strip_suffix(above.as_str());
                label.is_some_and(|label| label.len() > 1 && label.ends_with('.'))
            }
            (Self::Beneath(_), Host::Address(_)) => false,
        }
    }

    /// Whether a host may be one of both.
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

    /// How closely it describes the hosts that it matches: of two patterns that match one host, the one that
    /// describes it more closely decides.
    pub fn closeness(&self) -> usize {
        match self {
            Self::Exactly(_) => usize::MAX,
            Self::Beneath(name) => name.len(),
        }
    }

    /// Whether it is a whole top-level domain, such as `*.com`.
    pub fn is_top_level(&self) -> bool {
        matches!(self, Self::Beneath(name) if !name.contains('.'))
    }
}

/// Reads and writes the text.
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
    fn a_name_has_one_form() {
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
    fn an_address_has_one_spelling() {
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
    fn a_star_stands_for_the_parts_before_a_domain() {
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
    fn the_closer_pattern_has_the_greater_number() {
        let closeness = |text: &str| text.parse::<HostPattern>().expect("a pattern").closeness();
        assert!(closeness("a.b.c") > closeness("*.b.c"));
        assert!(closeness("*.b.c") > closeness("*.c"));
    }
}
