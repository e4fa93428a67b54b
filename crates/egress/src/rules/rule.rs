//! A rule: one entry of a policy's `network.allow`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::address::{AddressClass, Reach};
use crate::host::{Host, HostPattern};
use crate::path::{PathPattern, PatternError};
use crate::refusal::Refusal;

/// The ports of a rule without `ports`.
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// A validated entry of `network.allow`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "RuleText", into = "RuleText")]
pub struct Rule {
    pub(super) hosts: HostPattern,
    pub(super) ports: BTreeSet<u16>,
    methods: BTreeSet<String>,
    paths: Vec<PathPattern>,
    pub(super) credential: Option<Credential>,
    pub(super) reach: Reach,
    pub(super) content: Content,
}

/// What a connection may carry.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Content {
    /// TLS or HTTP for the host of the rule.
    #[default]
    Checked,
    /// Any bytes.
    Raw,
}

/// A header that is added to every request of a rule, in place of the guest's own.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The name of the header.
    pub header: String,
    /// The value of the header. In a policy it contains references in place of secrets.
    pub value: String,
}

/// Hides the value, which may be a secret.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Credential");
        shown.field("header", &self.header).finish_non_exhaustive()
    }
}

/// A rule as written in a policy.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleText {
    /// A name, an address, or `*.` and a domain.
    pub host: String,
    /// The ports; 80 and 443 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<u16>>,
    /// The allowed methods; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// The allowed paths; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// A header to add to requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// Whether the host may be on a private network, or be this machine.
    #[serde(default, skip_serializing_if = "is_false")]
    pub private: bool,
    /// Whether a connection may carry any bytes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub raw: bool,
}

// serde requires this signature.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

/// The reason why a rule is invalid.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum RuleError {
    /// The host is invalid.
    #[error(transparent)]
    Host(#[from] crate::host::PatternError),
    /// A wildcard for a whole top-level domain.
    #[error(
        "\"{0}\" covers a whole top-level domain: name a domain, as in \"*.example.org\", or write `private = true` \
         for a network of your own"
    )]
    TopLevel(String),
    /// An address that requires `private`.
    #[error("\"{address}\" is {}: write `private = true` to allow it", class.as_words())]
    NotPublic {
        /// The address.
        address: String,
        /// The class of the address.
        class: AddressClass,
    },
    /// An address that cannot be allowed.
    #[error("\"{0}\" is not the address of a single host: remove it")]
    Unusable(String),
    /// An empty list of ports, or port 0.
    #[error(
        "a port is a number of 1 to 65535: write `ports = [443]`, or leave `ports` out for 80 and 443"
    )]
    Port,
    /// An invalid method.
    #[error("\"{0}\" is not an HTTP method: write methods such as [\"GET\", \"POST\"]")]
    Method(String),
    /// An invalid path pattern.
    #[error(transparent)]
    Path(#[from] PatternError),
    /// A header that cannot be set.
    #[error("\"{0}\" is not a header that can be set: write one such as \"Authorization\"")]
    Header(String),
    /// An invalid header value.
    #[error("the value of a header has no control characters: write one line of text")]
    Value,
    /// `raw` together with a key that applies to requests only.
    #[error(
        "`raw = true` lets any bytes through, so nothing can be required of requests: remove `raw` or `{0}`"
    )]
    Raw(&'static str),
}

/// Hop-by-hop headers, and headers that describe the length or target of a request.
const RESERVED_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// Returns whether a text is an HTTP token (RFC 9110, 5.6.2).
fn is_token(text: &str) -> bool {
    let is_token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !text.is_empty() && text.bytes().all(is_token)
}

/// Reports only the first error, for text that was not written by a person.
impl TryFrom<RuleText> for Rule {
    type Error = RuleError;

    fn try_from(text: RuleText) -> Result<Self, RuleError> {
        Self::new(text).map_err(|mut errors| errors.swap_remove(0))
    }
}

impl Rule {
    /// Validates a rule.
    ///
    /// # Errors
    /// Returns every error; there is at least one.
    pub fn new(text: RuleText) -> Result<Self, Vec<RuleError>> {
        let (reach, content) = (
            if text.private {
                Reach::Private
            } else {
                Reach::Public
            },
            if text.raw {
                Content::Raw
            } else {
                Content::Checked
            },
        );
        let mut errors = Vec::new();
        let hosts = text.host.parse().map_err(RuleError::from);
        let hosts = hosts.and_then(|hosts| check_hosts(&hosts, reach).map(|()| hosts));
        let hosts: Option<HostPattern> = hosts.map_err(|error| errors.push(error)).ok();
        let ports = text.ports.unwrap_or_else(|| DEFAULT_PORTS.to_vec());
        if ports.is_empty() || ports.contains(&0) {
            errors.push(RuleError::Port);
        }
        let others = text.methods.iter().filter(|method| !is_method(method));
        errors.extend(others.cloned().map(RuleError::Method));
        let mut paths: Vec<PathPattern> = Vec::new();
        for path in &text.paths {
            match path.parse() {
                Ok(path) => paths.push(path),
                Err(error) => errors.push(RuleError::Path(error)),
            }
        }
        let credential = text.credential.as_ref().map(check_credential);
        errors.extend(credential.and_then(Result::err));
        if content == Content::Raw {
            let restrictions = [
                ("methods", !text.methods.is_empty()),
                ("paths", !text.paths.is_empty()),
                ("credential", text.credential.is_some()),
            ];
            let restrictions = restrictions.iter().filter(|(_, is_there)| *is_there);
            errors.extend(restrictions.map(|(name, _)| RuleError::Raw(name)));
        }
        match hosts {
            Some(hosts) if errors.is_empty() => Ok(Self {
                hosts,
                ports: ports.into_iter().collect(),
                methods: text.methods.into_iter().collect(),
                paths,
                credential: text.credential,
                reach,
                content,
            }),
            _ => Err(errors),
        }
    }
}

fn check_hosts(hosts: &HostPattern, reach: Reach) -> Result<(), RuleError> {
    match hosts {
        HostPattern::Beneath(_) if hosts.is_top_level() && reach == Reach::Public => {
            Err(RuleError::TopLevel(hosts.to_string()))
        }
        HostPattern::Exactly(Host::Address(address)) => {
            let class = AddressClass::of(*address);
            let address = address.to_string();
            if class == AddressClass::Unusable {
                Err(RuleError::Unusable(address))
            } else if class.is_allowed(reach, true) {
                Ok(())
            } else {
                Err(RuleError::NotPublic { address, class })
            }
        }
        _ => Ok(()),
    }
}

/// Returns whether a method can be allowed. `CONNECT` would open a connection to another host, and `TRACE` would echo
/// the credential.
pub(super) fn is_method(text: &str) -> bool {
    is_token(text)
        && !text.bytes().any(|it| it.is_ascii_lowercase())
        && !matches!(text, "CONNECT" | "TRACE")
}

fn check_credential(credential: &Credential) -> Result<(), RuleError> {
    let Credential { header, value } = credential;
    let is_set = is_token(header)
        && !RESERVED_HEADERS
            .iter()
            .any(|name| name.eq_ignore_ascii_case(header));
    if !is_set || header.to_ascii_lowercase().starts_with("proxy-") {
        return Err(RuleError::Header(header.clone()));
    }
    if value.is_empty() || value.chars().any(char::is_control) {
        return Err(RuleError::Value);
    }
    Ok(())
}

impl From<Rule> for RuleText {
    fn from(rule: Rule) -> Self {
        let is_default = rule.ports.iter().eq(&DEFAULT_PORTS);
        Self {
            host: rule.hosts.to_string(),
            ports: (!is_default).then(|| rule.ports.into_iter().collect()),
            methods: rule.methods.into_iter().collect(),
            paths: rule.paths.iter().map(ToString::to_string).collect(),
            credential: rule.credential,
            private: rule.reach == Reach::Private,
            raw: rule.content == Content::Raw,
        }
    }
}

/// The host alone if the rule has no other keys, otherwise JSON.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = RuleText::from(self.clone());
        let json = serde_json::to_string(&text).map_err(|_| fmt::Error)?;
        let is_only_host = json == format!("{{\"host\":\"{}\"}}", text.host);
        f.write_str(if is_only_host { &text.host } else { &json })
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = if text.starts_with('{') {
            serde_json::from_str(text).map_err(|error| error.to_string())?
        } else {
            RuleText {
                host: text.to_owned(),
                ..RuleText::default()
            }
        };
        Self::try_from(read).map_err(|error| error.to_string())
    }
}

impl Rule {
    /// Returns the host pattern.
    pub fn hosts(&self) -> &HostPattern {
        &self.hosts
    }

    /// Returns the ports, in ascending order.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().copied()
    }

    /// Returns the header that is added to requests.
    pub fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// Replaces the value of the credential.
    #[must_use]
    pub fn with_secret(mut self, value: String) -> Self {
        if let Some(credential) = &mut self.credential {
            credential.value = value;
        }
        self
    }

    /// Checks that the value of the credential is a valid header value.
    ///
    /// # Errors
    /// Returns an error if the value is empty or has control characters.
    pub fn check_secret(&self) -> Result<(), RuleError> {
        self.credential.as_ref().map_or(Ok(()), check_credential)
    }

    /// Returns whether the rule restricts requests or adds a header.
    pub(super) fn inspects_requests(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty() || self.credential.is_some()
    }

    /// Returns whether the rule restricts paths.
    pub(super) fn restricts_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Returns whether the rule has the method, and some server could treat the path as one of the rule's paths.
    pub(super) fn could_allow(&self, method: &str, path: &str) -> bool {
        self.has_method(method) && self.paths.iter().any(|own| own.could_match(path))
    }

    fn has_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    pub(super) fn allows(&self, method: &str, path: &str) -> Result<(), Refusal> {
        if !self.has_method(method) {
            return Err(Refusal::Method);
        }
        if !self.paths.is_empty() && !self.paths.iter().any(|own| own.matches(path)) {
            return Err(Refusal::Path);
        }
        Ok(())
    }
}
