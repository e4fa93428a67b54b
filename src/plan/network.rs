//! Plans the egress process, which connects to the allowed hosts for guests, and the files and variables through which
//! guests use it.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use sandfork_egress::control::ServiceSocket;
use sandfork_egress::names::{self, PROXY_PORT, SERVICE};
use sandfork_egress::rules::{Rule, RuleText, Rules};
use sandfork_jail::loopback::NetworkSocket;
use sandfork_jail::program::{BpfProgram, HostIds, RootEntry, ZygoteJail};

use super::filters::known_arch;
use super::seccomp::egress_filter;
use super::view::View;
use crate::error::Error;
use crate::host::Host;
use crate::policy::{NetworkMode, Policy, Proxy, Reference, Resolver, Template};

/// The egress process of a sandbox.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct EgressPlan {
    /// The allowed hosts, with references in place of secrets.
    pub allow: Rules,
    /// The maximum number of connections of one worker at a time.
    pub connections: u64,
    /// The maximum number of bytes that one worker sends and receives.
    pub bytes: u64,
    /// The proxy for connections to public hosts.
    #[serde(serialize_with = "without_user")]
    pub proxy: Option<Proxy>,
    /// The resolver that replaces the resolvers of the host.
    #[serde(serialize_with = "as_text")]
    pub resolver: Option<Resolver>,
    /// Whether the caller decides on each connection.
    pub asks: bool,
    /// The sockets that it serves in each worker.
    pub sockets: Vec<ServiceSocket>,
    /// The host's certificate file, which it trusts.
    pub trust: Option<PathBuf>,
    /// The ids to which it drops, if the supervisor is root.
    pub identity: Option<HostIds>,
    /// The seccomp filter.
    pub filter: BpfProgram,
    /// The kernel's Landlock ABI.
    pub landlock_abi: u32,
}

// serde requires these signatures.
#[allow(clippy::ref_option)]
fn without_user<S: Serializer>(proxy: &Option<Proxy>, to: S) -> Result<S::Ok, S::Error> {
    let shown = proxy.as_ref().map(|it| format!("{}:{}", it.host, it.port));
    shown.serialize(to)
}

#[allow(clippy::ref_option)]
fn as_text<S: Serializer>(resolver: &Option<Resolver>, to: S) -> Result<S::Ok, S::Error> {
    resolver.map(|it| it.to_string()).serialize(to)
}

impl EgressPlan {
    /// Returns the plan for a policy with network mode `allow`, or `None` for other modes.
    ///
    /// # Errors
    /// If a secret is missing, or there are more ports than sockets.
    pub(super) fn new(policy: &Policy, host: &Host) -> Result<Option<Self>, Error> {
        let network = &policy.network;
        if network.mode.value != NetworkMode::Allow {
            return Ok(None);
        }
        check_secrets(policy, host)?;
        let rules = network.allow.iter().map(|rule| rule.value.clone());
        // Loading the policy has rejected contradictions.
        let allow = Rules::new(rules.collect()).unwrap_or_default();
        let Some(sockets) = names::sockets(&allow) else {
            return Err(Error::policy(format!(
                "{}`network.allow` has more than 36 different ports, or hosts with ports from 1024 on: remove \
                 some, or reach them through a proxy of your own (`network.proxy`)",
                network.mode.origin.lead()
            )));
        };
        let machine = &host.machine;
        Ok(Some(Self {
            allow,
            connections: policy.limits.connections(),
            bytes: policy.limits.network_bytes(),
            proxy: network.proxy.as_ref().map(|proxy| proxy.value.clone()),
            resolver: network.resolver,
            asks: network.asks,
            sockets,
            trust: host.certificates.clone(),
            identity: machine.user.drop_to,
            filter: egress_filter(known_arch(machine)?),
            landlock_abi: machine.landlock.abi().unwrap_or(0),
        }))
    }
}

impl EgressPlan {
    /// Returns the addresses of other hosts that are assigned to a worker's loopback interface.
    pub(super) fn addresses(&self) -> Vec<Ipv4Addr> {
        names::addresses(&self.allow).into_iter().collect()
    }

    /// Returns the sockets that the jail creates.
    pub(super) fn sockets_to_make(&self) -> Vec<NetworkSocket> {
        self.sockets.iter().map(|it| it.to_make()).collect()
    }
}

/// Rejects references to variables that are not set, which would otherwise fail at the first request.
fn check_secrets(policy: &Policy, host: &Host) -> Result<(), Error> {
    for template in policy.network.templates() {
        for reference in template.value.references() {
            if let Reference::Variable(name) = reference
                && host.caller_env.get(name).is_none_or(String::is_empty)
            {
                return Err(Error::host(format!(
                    "{}${{{name}}} is not set in your environment: export {name}, or remove the reference from the \
                     policy",
                    template.origin.lead()
                )));
            }
        }
    }
    Ok(())
}

/// Returns the variables and files of the policy's secrets.
pub(super) fn secrets(policy: &Policy) -> (Vec<String>, Vec<PathBuf>) {
    let templates: Vec<Template> = policy.network.templates().map(|it| it.value).collect();
    let references = templates.iter().flat_map(Template::references);
    let (mut variables, mut files) = (Vec::new(), Vec::new());
    for reference in references {
        match reference {
            Reference::Variable(name) => variables.push(name.clone()),
            Reference::File(path) => files.push(path.clone()),
        }
    }
    (variables, files)
}

/// Adds a certificate (PEM) to those that the guest's programs trust.
pub(crate) fn trust(jail: &mut ZygoteJail, certificate: &str) {
    for entry in &mut jail.root {
        if let RootEntry::Certificates { others, .. } = entry {
            others.push_str(certificate);
        }
    }
}

/// The usual file of trusted certificates.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The file of trusted certificates if the policy shows the host's file at [`CERTIFICATES`].
const OTHER_CERTIFICATES: &str = "/etc/sandfork-certificates.crt";

/// Returns the file with the certificates that guests trust.
fn certificates(view: &View) -> &'static str {
    if view.touches(CERTIFICATES) {
        OTHER_CERTIFICATES
    } else {
        CERTIFICATES
    }
}

/// Returns the files with which the guest's programs resolve names and verify hosts. The certificate authority of the
/// egress process is added once that process runs.
pub(super) fn root_entries(policy: &Policy, host: &Host, view: &View) -> Vec<RootEntry> {
    if policy.network.mode.value != NetworkMode::Allow {
        return Vec::new();
    }
    let resolver = format!("nameserver {SERVICE}\noptions timeout:3 attempts:2\n");
    let mut entries = vec![RootEntry::Certificates {
        target: certificates(view).into(),
        of_host: host.certificates.clone(),
        others: String::new(),
    }];
    if !view.touches(RESOLVER) {
        entries.push(RootEntry::File {
            target: RESOLVER.into(),
            contents: resolver,
        });
    }
    entries
}

/// The configuration of the name service switch (nsswitch.conf(5)).
pub(super) const NAME_SERVICE: &str = "/etc/nsswitch.conf";

/// Returns the path and contents of the name service configuration.
pub(super) fn name_service(policy: &Policy) -> (&'static str, &'static str) {
    let contents = match policy.network.mode.value {
        NetworkMode::None | NetworkMode::Loopback => {
            "passwd: files\ngroup: files\nhosts: files\nprotocols: files\nservices: files\n"
        }
        NetworkMode::Allow => {
            "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n"
        }
    };
    (NAME_SERVICE, contents)
}

/// The resolver configuration (resolv.conf(5)).
const RESOLVER: &str = "/etc/resolv.conf";

/// Variables that name the file of trusted certificates, for OpenSSL and for programs that ship their own certificates.
const TRUST_VARIABLES: [&str; 6] = [
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
];

/// Variables that name a proxy. There is none for SOCKS, because clients without a SOCKS package would refuse to start.
const PROXY_VARIABLES: [&str; 4] = ["HTTPS_PROXY", "HTTP_PROXY", "http_proxy", "https_proxy"];

/// Variables that list the hosts to reach without the proxy.
const NO_PROXY_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The names of the guest itself.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Returns the hosts to reach without the proxy: the names of the guest itself. A name by which the policy allows this
/// machine is left out, because a connection without the proxy would stay in the guest's own network. Clients do not
/// support ports in this list.
fn without_proxy(policy: &Policy) -> String {
    let allow = &policy.network.allow;
    let leads_out = |name: &str| {
        allow.iter().any(|rule| {
            let RuleText { private, .. } = rule.value.clone().into();
            private && rule.value.hosts().to_string() == name
        })
    };
    let own = OWN_NAMES.into_iter().filter(|name| !leads_out(name));
    own.collect::<Vec<_>>().join(",")
}

/// Returns the network variables of a guest.
pub(super) fn variables(policy: &Policy, view: &View) -> BTreeMap<String, String> {
    if policy.network.mode.value != NetworkMode::Allow {
        return BTreeMap::new();
    }
    let proxy = format!("http://{SERVICE}:{PROXY_PORT}");
    let trust = TRUST_VARIABLES.map(|name| (name, certificates(view).to_owned()));
    let proxies = PROXY_VARIABLES.map(|name| (name, proxy.clone()));
    let none = NO_PROXY_VARIABLES.map(|name| (name, without_proxy(policy)));
    let all = trust.into_iter().chain(proxies).chain(none);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The files of trusted certificates in the usual distributions.
pub(super) const HOST_CERTIFICATES: [&str; 5] = [
    // Debian, Ubuntu, Arch, Gentoo
    "/etc/ssl/certs/ca-certificates.crt",
    // Fedora, RHEL
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    // SUSE
    "/etc/ssl/ca-bundle.pem",
    // Alpine
    "/etc/ssl/cert.pem",
];

/// Describes an entry of the policy for `sandfork plan`.
pub(super) fn describe(rule: &Rule) -> String {
    let RuleText {
        host,
        methods,
        paths,
        credential,
        private,
        raw,
        ..
    } = rule.clone().into();
    let ports: Vec<String> = rule.ports().map(|port| port.to_string()).collect();
    let mut text = format!("{host}, port {}", ports.join(" and "));
    for conditions in [methods, paths].iter().filter(|it| !it.is_empty()) {
        text += ", only ";
        text += &conditions.join(" ");
    }
    if let Some(credential) = credential {
        text += ", with a credential in ";
        text += &credential.header;
    }
    if private {
        text += ", also on a private network";
    }
    if raw {
        text += ", any bytes";
    }
    text
}
