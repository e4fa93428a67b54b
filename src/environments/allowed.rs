//! The hosts that a caller allows an installation, which a requirements file cannot. Pure.

use sandfork_egress::address::AddressClass;
use sandfork_egress::host::{Authority, Host};

use super::place::Place;
use crate::host::PipConfig;

/// What the caller itself says of hosts.
pub struct Allowed<'a> {
    /// Those of its configuration.
    own: Vec<Place>,
    /// Those of `--allow-host`, with their ports.
    pub hosts: Vec<(Host, Vec<u16>)>,
    /// Those that a proxy leads to.
    pub proxied: Proxied<'a>,
}

impl<'a> Allowed<'a> {
    /// What it says.
    ///
    /// # Errors
    /// If one of `--allow-host` is none.
    pub fn new(own: &PipConfig, proxied: Proxied<'a>, allowed: &[String]) -> Result<Self, String> {
        let options = ["index-url", "extra-index-url", "find-links"];
        let urls = options.map(|option| own.values(option).iter().map(move |url| (option, url)));
        // One that is none is an error where it is used.
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

    /// Whether a place may be on a private network: who configures an index there means it, but a requirements file may
    /// be another person's, who could so reach that network.
    ///
    /// # Errors
    /// If it is an address there that only a requirements file names.
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

/// The hosts that a proxy leads to.
#[derive(Clone, Copy, Debug)]
pub enum Proxied<'a> {
    /// There is none.
    Nothing,
    /// All but these, as `NO_PROXY` has them.
    But(&'a str),
}

impl Proxied<'_> {
    /// Whether it leads to this one.
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
