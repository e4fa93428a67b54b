//! One entry of `network.allow`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::address::{AddressClass, Reach};
use crate::host::{Host, HostPattern};
use crate::path::{PathPattern, PatternError};
use crate::refusal::Refusal;

/// The ports of a rule that names none.
pub const USUAL_PORTS: [u16; 2] = [80, 443];

/// One entry of `network.allow`.
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
    /// TLS or HTTP for the host that the rule names.
    #[default]
    Checked,
    /// Any bytes.
    Raw,
}

/// A header that every request of a rule gets, in place of the guest's own.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The name of the header.
    pub header: String,
    /// Its value. In a policy it has references in place of secrets.
    pub value: String,
}

/// Shows no value, which may be a secret.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Credential");
        shown.field("header", &self.header).finish_non_exhaustive()
    }
}

/// A rule as a policy writes it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleText {
    /// A name, an address, or `*.` and a domain.
    pub host: String,
    /// Its ports; 80 and 443 if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<u16>>,
    /// The methods of requests; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// The paths of requests; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// A header that requests get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// Whether the host may be one of a private network, or this machine.
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

/// Why a rule is refused.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum RuleError {
    /// The host is none.
    #[error(transparent)]
    Host(#[from] crate::host::PatternError),
    /// The whole of a top-level domain.
    #[error(
        "\"{0}\" has every name of a top-level domain: name a domain, as in \"*.example.org\", or write `private = true` \
         for a network of your own"
    )]
    TopLevel(String),
    /// An address that needs `private`.
    #[error("\"{address}\" is {}: write `private = true` to allow it", class.as_words())]
    NotPublic {
        /// The address.
        address: String,
        /// What it is.
        class: AddressClass,
    },
    /// An address that nothing allows.
    #[error("\"{0}\" is not the address of one host: remove it")]
    Unusable(String),
    /// An empty list of ports, or port 0.
    #[error(
        "a port is a number of 1 to 65535: write `ports = [443]`, or leave `ports` out for 80 and 443"
    )]
    Port,
    /// Not a method.
    #[error("\"{0}\" is not a method of HTTP: write methods such as [\"GET\", \"POST\"]")]
    Method(String),
    /// Not a pattern of paths.
    #[error(transparent)]
    Path(#[from] PatternError),
    /// Not a header that can be set.
    #[error("\"{0}\" is not a header that can be set: write one such as \"Authorization\"")]
    Header(String),
    /// A value that no header has.
    #[error("the value of a header has no control characters: write one line of text")]
    Value,
    /// `raw` with what only requests have.
    #[error(
        "`raw = true` lets any bytes through, so nothing can be required of requests: remove `raw` or `{0}`"
    )]
    Raw(&'static str),
}

/// Headers that belong to the connection or to the length of the message.
const NOT_SET: [&str; 9] = [
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

/// Whether a text is a token of HTTP (RFC 9110, 5.6.2).
fn is_token(text: &str) -> bool {
    let is_token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !text.is_empty() && text.bytes().all(is_token)
}

/// The first mistake is enough for what no person wrote.
impl TryFrom<RuleText> for Rule {
    type Error = RuleError;

    fn try_from(text: RuleText) -> Result<Self, RuleError> {
        Self::new(text).map_err(|mut errors| errors.swap_remove(0))
    }
}

impl Rule {
    /// The rule of a text.
    ///
    /// # Errors
    /// Each of its mistakes: one at least.
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
        let ports = text.ports.unwrap_or_else(|| USUAL_PORTS.to_vec());
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

/// `CONNECT` asks for a connection to another host, and `TRACE` shows the request with its credential.
pub(super) fn is_method(text: &str) -> bool {
    is_token(text)
        && !text.bytes().any(|it| it.is_ascii_lowercase())
        && !matches!(text, "CONNECT" | "TRACE")
}

fn check_credential(credential: &Credential) -> Result<(), RuleError> {
    let Credential { header, value } = credential;
    let is_set = is_token(header) && !NOT_SET.iter().any(|name| name.eq_ignore_ascii_case(header));
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
        let is_usual = rule.ports.iter().eq(&USUAL_PORTS);
        Self {
            host: rule.hosts.to_string(),
            ports: (!is_usual).then(|| rule.ports.into_iter().collect()),
            methods: rule.methods.into_iter().collect(),
            paths: rule.paths.iter().map(ToString::to_string).collect(),
            credential: rule.credential,
            private: rule.reach == Reach::Private,
            raw: rule.content == Content::Raw,
        }
    }
}

/// The host alone if nothing else is said, or else JSON.
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
    /// Its hosts.
    pub fn hosts(&self) -> &HostPattern {
        &self.hosts
    }

    /// Its ports, in ascending order.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().copied()
    }

    /// The header that its requests get.
    pub fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// The rule with another value of its credential.
    #[must_use]
    pub fn with_secret(mut self, value: String) -> Self {
        if let Some(credential) = &mut self.credential {
            credential.value = value;
        }
        self
    }

    /// Whether the value of a credential can be one of a header.
    ///
    /// # Errors
    /// If it has control characters, or nothing.
    pub fn check_secret(&self) -> Result<(), RuleError> {
        self.credential.as_ref().map_or(Ok(()), check_credential)
    }

    /// Whether only some requests are allowed, or get a header.
    pub(super) fn is_about_requests(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty() || self.credential.is_some()
    }

    /// Whether paths select its requests.
    pub(super) fn is_about_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Whether its host could take a request that it does not allow for one that it does.
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
