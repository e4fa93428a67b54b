//! The rules of a policy's `network.allow`: which hosts, ports and requests are allowed.

mod rule;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use self::rule::{Content, Credential, DEFAULT_PORTS, Rule, RuleError, RuleText};

use self::rule::is_method;
use crate::address::Reach;
use crate::host::{Host, HostPattern};
use crate::refusal::Refusal;

/// The rules of a policy.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Rules(Vec<Rule>);

/// Two rules that contradict each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Contradiction {
    /// The index of the earlier rule.
    pub first: usize,
    /// The index of the later rule.
    pub second: usize,
    /// The key in which the rules differ.
    pub key: &'static str,
}

impl Rules {
    /// Checks that the rules are consistent.
    ///
    /// # Errors
    /// Returns two rules for the same host and port that differ in `raw` or `private`.
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

    /// Returns the rules, in the order of the policy.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// Returns the names that are written without a wildcard, each once, in the order of the policy.
    pub fn exact_names(&self) -> impl Iterator<Item = &str> {
        let names = self.0.iter().filter_map(|rule| match &rule.hosts {
            HostPattern::Exactly(Host::Name(name)) => Some(name.as_str()),
            _ => None,
        });
        let mut seen = BTreeSet::new();
        names.filter(move |name| seen.insert(*name))
    }

    /// Returns the rules for a host: those with the most specific of the matching patterns.
    fn for_host(&self, host: &Host) -> Vec<&Rule> {
        let matching = || self.0.iter().filter(|rule| rule.hosts.matches(host));
        let highest = matching().map(|rule| rule.hosts.specificity()).max();
        matching()
            .filter(|rule| Some(rule.hosts.specificity()) == highest)
            .collect()
    }

    /// Returns whether some port of the host is allowed.
    pub fn knows(&self, host: &Host) -> bool {
        self.0.iter().any(|rule| rule.hosts.matches(host))
    }

    /// Returns what is allowed on a connection to a port of a host.
    ///
    /// # Errors
    /// Returns the reason if the connection is not allowed.
    pub fn access(&self, host: &Host, port: u16) -> Result<Access<'_>, Refusal> {
        let mut rules = self.for_host(host);
        if rules.is_empty() {
            return Err(Refusal::Host);
        }
        rules.retain(|rule| rule.ports.contains(&port));
        if rules.is_empty() {
            return Err(Refusal::Port);
        }
        Ok(Access { rules })
    }

    /// Builds rules for these hosts in tests.
    ///
    /// # Panics
    /// Panics if a host is invalid.
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

/// The rules of a connection: at least one, all with the same `private` and `raw`.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    rules: Vec<&'a Rule>,
}

impl<'a> Access<'a> {
    /// Returns what the connection may carry.
    pub fn content(&self) -> Content {
        self.rules[0].content
    }

    /// Returns the addresses that the connection may use.
    pub fn reach(&self) -> Reach {
        self.rules[0].reach
    }

    /// Returns whether the policy contains the address itself.
    pub fn is_named_address(&self) -> bool {
        matches!(self.rules[0].hosts, HostPattern::Exactly(Host::Address(_)))
    }

    /// Returns whether requests must be checked, which requires terminating TLS.
    pub fn inspects_requests(&self) -> bool {
        self.rules.iter().any(|rule| rule.inspects_requests())
    }

    /// Checks a request. Returns the credential of the first rule that allows it.
    ///
    /// No alternative spelling of a path bypasses a rule with paths: if there is such a rule, a path that is not plain
    /// is refused, and a path that the host could treat as a path of an earlier rule gets no credential of a later
    /// rule.
    ///
    /// # Errors
    /// Returns [`Refusal::Method`] for a method that no rule can allow, [`Refusal::Path`] for an ambiguous path, and
    /// otherwise the reason for which the last rule refuses the request.
    pub fn request(&self, method: &str, path: &str) -> Result<Option<&'a Credential>, Refusal> {
        let mut refusal = Refusal::Method;
        if !is_method(method) {
            return Err(refusal);
        }
        let plain = crate::path::plain(path);
        if plain.is_err() && self.rules.iter().any(|rule| rule.restricts_paths()) {
            return Err(Refusal::Path);
        }
        // Rules without paths do not compare the path.
        let path = plain.unwrap_or_default();
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.allows(method, &path) {
                Ok(()) => {
                    let credential = rule.credential.as_ref();
                    let mut earlier = self.rules[..index].iter();
                    let is_ambiguous = earlier.any(|other| {
                        other.credential.as_ref() != credential && other.could_allow(method, &path)
                    });
                    if credential.is_some() && is_ambiguous {
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
