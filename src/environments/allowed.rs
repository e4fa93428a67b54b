//! Decides which hosts on private networks an installation may reach, by the caller's own settings and not by a
//! requirements file. Pure.

use sandfork_egress::address::AddressClass;
use sandfork_egress::host::{Authority, Host};

use super::place::Place;
use crate::host::PipConfig;

/// What the caller itself allows.
pub struct Allowed<'a> {
    /// The places in the caller's configuration.
    own: Vec<Place>,
    /// The hosts of `--allow-host`, with their ports.
    pub hosts: Vec<(Host, Vec<u16>)>,
    /// The hosts that are reached through a proxy.
    pub proxied: Proxied<'a>,
}

impl<'a> Allowed<'a> {
    /// Collects what the caller allows.
    ///
    /// # Errors
    /// If an argument of `--allow-host` is invalid.
    pub fn new(own: &PipConfig, proxied: Proxied<'a>, allowed: &[String]) -> Result<Self, String> {
        let options = ["index-url", "extra-index-url", "find-links"];
        let urls = options.map(|option| own.values(option).iter().map(move |url| (option, url)));
        // An invalid URL causes an error where it is used.
        let own = urls
            .into_iter()
            .flatten()
            .filter_map(|(option, url)| Place::read(option, url).ok());
        let hosts = allowed.iter().map(|text| {
            let read: Result<Authority, _> = text.parse();
            let authority = read.map_err(|error| format!("`--allow-host {text}`: {error}"))?;
            let ports = authority.port.map_or(vec![80, 443], |port| vec![port]);
            Ok::<_, String>((authority.host, ports))
        });
        Ok(Self {
            own: own.collect(),
            hosts: hosts.collect::<Result<_, _>>()?,
            proxied,
        })
    }

    /// Returns whether a place may be on a private network. A caller that configures such an index means it, but a
    /// requirements file may be from someone else, who could use it to reach that network.
    ///
    /// # Errors
    /// If the place is a private address that only a requirements file names.
    pub fn is_private(&self, place: &Place) -> Result<bool, String> {
        if self.proxied.applies_to(&place.host.to_string()) {
            return Ok(false);
        }
        let is_own = |own: &Place| own.host == place.host && own.port == place.port;
        let is_allowed =
            |(host, ports): &(Host, Vec<u16>)| *host == place.host && ports.contains(&place.port);
        if self.own.iter().any(is_own) || self.hosts.iter().any(is_allowed) {
            return Ok(true);
        }
        let is_public = match place.host {
            Host::Name(_) => true,
            Host::Address(address) => AddressClass::of(address) == AddressClass::Public,
        };
        let authority = Authority {
            host: place.host.clone(),
            port: Some(place.port),
        };
        is_public.then_some(false).ok_or_else(|| {
            format!(
                "only a requirements file names {authority}, which is on a private network: `--allow-host {authority}` lets \
                 the installation reach it"
            )
        })
    }
}

/// Which hosts are reached through a proxy.
#[derive(Clone, Copy, Debug)]
pub enum Proxied<'a> {
    /// None.
    Nothing,
    /// All but these, in the format of `NO_PROXY`.
    But(&'a str),
}

impl Proxied<'_> {
    /// Returns whether a host is reached through the proxy.
    pub fn applies_to(self, host: &str) -> bool {
        let Self::But(others) = self else {
            return false;
        };
        !others.split(',').map(str::trim).any(|other| {
            let domain = other.trim_start_matches('.');
            let is_beneath = host
                .strip_suffix(domain)
                .is_some_and(|rest| rest.ends_with('.'));
            other == "*" || (!domain.is_empty() && (host == domain || is_beneath))
        })
    }
}
