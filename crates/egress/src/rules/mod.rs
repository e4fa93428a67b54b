//! What a policy's `network.allow` lets through: hosts, ports, requests.

mod rule;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use self::rule::{Content, Credential, Rule, RuleError, RuleText, USUAL_PORTS};

use self::rule::is_method;
use crate::address::Reach;
use crate::host::{Host, HostPattern};
use crate::refusal::Refusal;

/// All of a policy's rules.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Rules(Vec<Rule>);

/// Two rules that contradict each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Contradiction {
    /// The earlier rule.
    pub first: usize,
    /// The later one.
    pub second: usize,
    /// The key in which they differ.
    pub key: &'static str,
}

impl Rules {
    /// These rules.
    ///
    /// # Errors
    /// Two rules for one host and port of which only one is `raw`, or only one `private`.
    pub fn new(rules: Vec<Rule>) -> Result<Self, Contradiction> {
        for (second, rule) in rules.iter().enumerate() {
            for (first, other) in rules[..second].iter().enumerate() {
                let apart = other.hosts != rule.hosts || other.ports.is_disjoint(&rule.ports);
                let keys = [
                    ("raw", other.content != rule.content),
                    ("private", other.reach != rule.reach),
                ];
                let differs = keys.iter().find(|(_, differs)| !apart && *differs);
                if let Some((key, _)) = differs {
                    return Err(Contradiction { first, second, key });
                }
            }
        }
        Ok(Self(rules))
    }

    /// Each rule, in the order of the policy.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// The names that are written in full, each once, in the order of the policy.
    pub fn exact_names(&self) -> impl Iterator<Item = &str> {
        let names = self.0.iter().filter_map(|rule| match &rule.hosts {
            HostPattern::Exactly(Host::Name(name)) => Some(name.as_str()),
            _ => None,
        });
        let mut seen = BTreeSet::new();
        names.filter(move |name| seen.insert(*name))
    }

    /// The rules for a host: of all that match it, those that describe it most closely.
    fn of_host(&self, host: &Host) -> Vec<&Rule> {
        let matching = || self.0.iter().filter(|rule| rule.hosts.matches(host));
        let closest = matching().map(|rule| rule.hosts.closeness()).max();
        matching()
            .filter(|rule| Some(rule.hosts.closeness()) == closest)
            .collect()
    }

    /// Whether any port of the host is allowed.
    pub fn knows(&self, host: &Host) -> bool {
        self.0.iter().any(|rule| rule.hosts.matches(host))
    }

    /// What is allowed of a connection to this port of this host.
    ///
    /// # Errors
    /// If nothing is.
    pub fn access(&self, host: &Host, port: u16) -> Result<Access<'_>, Refusal> {
        let mut rules = self.of_host(host);
        if rules.is_empty() {
            return Err(Refusal::Host);
        }
        rules.retain(|rule| rule.ports.contains(&port));
        if rules.is_empty() {
            return Err(Refusal::Port);
        }
        Ok(Access { rules })
    }

    /// The rules of these hosts, for tests.
    ///
    /// # Panics
    /// If one is none.
    #[cfg(test)]
    pub fn of_hosts(hosts: &[&str]) -> Self {
        let rule = |host: &&str| {
            let host = (*host).to_owned();
            Rule::try_from(RuleText {
                host,
                ..RuleText::default()
            })
            .expect("a rule")
        };
        Self::new(hosts.iter().map(rule).collect()).expect("rules")
    }
}

/// What is allowed of a connection. There is at least one rule, and all agree in what holds for whole connections.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    rules: Vec<&'a Rule>,
}

impl<'a> Access<'a> {
    /// What the connection may carry.
    pub fn content(&self) -> Content {
        self.rules[0].content
    }

    /// The addresses that it may go to.
    pub fn reach(&self) -> Reach {
        self.rules[0].reach
    }

    /// Whether the policy names the address itself.
    pub fn is_named_address(&self) -> bool {
        matches!(self.rules[0].hosts, HostPattern::Exactly(Host::Address(_)))
    }

    /// Whether requests must be seen, so that TLS ends in this process.
    pub fn is_about_requests(&self) -> bool {
        self.rules.iter().any(|rule| rule.is_about_requests())
    }

    /// Judges a request by each rule. The first that allows it decides which header it gets.
    ///
    /// No other spelling of a path leads past a rule with paths: where there is one, a path that is not plain is none
    /// of any rule, and one that the host could take for a path of an earlier rule gets no credential of a later one.
    ///
    /// # Errors
    /// What the last rule requires.
    pub fn request(&self, method: &str, path: &str) -> Result<Option<&'a Credential>, Refusal> {
        let mut refusal = Refusal::Method;
        if !is_method(method) {
            return Err(refusal);
        }
        let plain = crate::path::plain(path);
        if plain.is_err() && self.rules.iter().any(|rule| rule.is_about_paths()) {
            return Err(Refusal::Path);
        }
        // Rules without paths compare none.
        let path = plain.unwrap_or_default();
        for (place, rule) in self.rules.iter().enumerate() {
            match rule.allows(method, &path) {
                Ok(()) => {
                    let credential = rule.credential.as_ref();
                    let mut earlier = self.rules[..place].iter();
                    let is_kept_off = earlier.any(|other| {
                        other.credential.as_ref() != credential && other.could_allow(method, &path)
                    });
                    if credential.is_some() && is_kept_off {
                        return Err(Refusal::Path);
                    }
                    return Ok(credential);
                }
                Err(why) => refusal = why,
            }
        }
        Err(refusal)
    }
}

#[cfg(test)]
mod tests;
