//! The network policy: the mode, the allowed hosts, and the proxy and resolver for them.

use core::net::{IpAddr, SocketAddr};
use std::fmt;
use std::str::FromStr;

use sandfork_egress::host::Host;
use sandfork_egress::rules::Rule;

use super::keyword::NetworkMode;
use super::origin::Located;
use super::secret::Template;

/// The guest's network access.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct NetworkPolicy {
    /// The mode.
    pub mode: Located<NetworkMode>,
    /// The rule by which the mode was chosen.
    pub(crate) mode_rule: ModeRule,
    /// The hosts to which the guest may connect in mode `allow`. Secrets are references.
    pub allow: Vec<Located<Rule>>,
    /// The proxy for connections to public hosts.
    pub proxy: Option<Located<Proxy>>,
    /// The resolver that replaces the resolvers of the host.
    pub resolver: Option<Resolver>,
    /// Whether the caller decides on each connection that `allow` permits.
    pub asks: bool,
}

/// The rule for the network mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ModeRule {
    /// The user set `network.mode`.
    OfPolicy,
    /// The user did not set `network.mode`: it is `allow` if the user names hosts.
    FollowsHosts,
}

impl NetworkPolicy {
    /// Returns each template of a credential and of the proxy's user with its origin. Returns none if the mode is not
    /// `allow`.
    pub(crate) fn templates(&self) -> impl Iterator<Item = Located<Template>> {
        let is_used = self.mode.value == NetworkMode::Allow;
        let credentials = self.allow.iter().filter_map(|rule| {
            let template = rule.value.credential()?.value.parse().ok()?;
            Some(Located::new(template, rule.origin.clone()))
        });
        let user = self.proxy.iter().filter_map(|proxy| {
            let template = proxy.value.user.clone()?;
            Some(Located::new(template, proxy.origin.clone()))
        });
        credentials.chain(user).filter(move |_| is_used)
    }
}

/// The URL of an HTTP proxy: `http://user:password@proxy.example.org:3128`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Proxy {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// The user and password, with references in place of secrets.
    pub user: Option<Template>,
    text: String,
}

/// The default port of an `http` URL.
const HTTP: u16 = 80;

impl FromStr for Proxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "\"{}\" is not the URL of a proxy: write one such as \"http://proxy.example.org:3128\"",
                // The part after the last `@` has no password.
                text.rsplit('@').next().unwrap_or_default()
            )
        };
        let rest = text.strip_prefix("http://").ok_or_else(refused)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, authority) = match rest.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, rest),
        };
        let authority: sandfork_egress::host::Authority =
            authority.parse().map_err(|_| refused())?;
        let user = user.map(str::parse).transpose()?;
        Ok(Self {
            host: authority.host,
            port: authority.port.unwrap_or(HTTP),
            user,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The address of a resolver: `10.0.0.53`, `10.0.0.53:5353`, `[::1]:53`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Resolver(pub SocketAddr);

/// The default port of a resolver.
const DOMAIN: u16 = 53;

impl FromStr for Resolver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.parse::<IpAddr>().map(|it| SocketAddr::new(it, DOMAIN));
        let address = address.or_else(|_| text.parse());
        address.map(Self).map_err(|_| {
            format!("\"{text}\" is not the address of a resolver: write one such as \"10.0.0.53\" or \"[::1]:53\"")
        })
    }
}

impl fmt::Display for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.port() == DOMAIN {
            return self.0.ip().fmt(f);
        }
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_may_have_a_user_and_password() {
        let read = |text: &str| text.parse::<Proxy>();
        let plain = read("http://proxy.example:3128/").expect("a proxy");
        assert_eq!(
            (plain.host.to_string().as_str(), plain.port),
            ("proxy.example", 3128)
        );
        assert_eq!(plain.user, None);
        let user = read("http://${USER}:p@${PASSWORD}@10.0.0.1").expect("a proxy");
        assert_eq!(
            (user.host.to_string().as_str(), user.port),
            ("10.0.0.1", 80)
        );
        assert_eq!(user.user.expect("a user").references().count(), 2);
        for text in [
            "proxy:3128",
            "https://proxy",
            "socks5://proxy",
            "http://",
            "http://a b",
            "http://a/b",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let message = read("http://u:secret@a b").expect_err("no host");
        assert!(!message.contains("secret"), "{message}");
    }

    #[test]
    fn resolver_must_be_an_address() {
        for (text, shown) in [
            ("10.0.0.53", "10.0.0.53"),
            ("10.0.0.53:53", "10.0.0.53"),
            ("10.0.0.53:5353", "10.0.0.53:5353"),
            ("::1", "::1"),
            ("[::1]:5353", "[::1]:5353"),
        ] {
            let read: Resolver = text.parse().expect("an address");
            assert_eq!(read.to_string(), shown);
        }
        for text in ["dns.example", "10.0.0", "10.0.0.1:x", "0x7f.1"] {
            assert!(text.parse::<Resolver>().is_err(), "{text}");
        }
    }
}
