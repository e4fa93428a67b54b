//! Guests that reach the hosts of their policy.

use std::path::Path;

use super::hosts::{host, machine, no_user_namespaces};
use super::*;
use crate::host::Machine;
use crate::policy::NetworkMode;
use sandfork_jail::loopback::Transport;
use sandfork_jail::program::{Network, RootEntry};

const POLICY: &str = "\
[network]
mode = 'allow'
allow = [
    'a.example',
    { host = 'db.example', ports = [5432], private = true, raw = true },
    { host = 'api.example', methods = ['GET'], credential = { header = 'X-Key', value = 'k ${KEY}' } },
]
proxy = 'http://me:${PASSWORD}@proxy.example:3128'
";

fn known() -> Host {
    let mut host = host(machine());
    for name in ["KEY", "PASSWORD"] {
        host.caller_env.insert(name.to_owned(), "s3cret".to_owned());
    }
    host.certificates = Some("/etc/ssl/certs/ca-certificates.crt".into());
    host
}

fn contents(plan: &Plan, path: &str) -> Option<String> {
    plan.jail.root.iter().find_map(|entry| match entry {
        RootEntry::File { target, contents } if target == Path::new(path) => Some(contents.clone()),
        _ => None,
    })
}

#[test]
fn the_guest_finds_its_resolver_its_proxy_and_the_certificates() {
    let plan = planned(POLICY, &known());
    assert_eq!(plan.jail.network(), Network::Loopback);
    let resolver = contents(&plan, "/etc/resolv.conf").unwrap();
    assert!(resolver.starts_with("nameserver 127.1.0.1\n"), "{resolver}");
    let services = contents(&plan, "/etc/nsswitch.conf").unwrap();
    assert!(services.contains("hosts: files dns\n"), "{services}");
    let certificates = plan.jail.root.iter().find_map(|entry| match entry {
        RootEntry::Certificates {
            target, of_host, ..
        } => Some((target, of_host)),
        _ => None,
    });
    let (target, of_host) = certificates.unwrap();
    assert_eq!(*of_host, known().certificates);
    let variable = |name: &str| {
        let mut all = plan.jail.env.iter();
        all.find(|(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(variable("SSL_CERT_FILE"), target.to_str());
    assert_eq!(variable("https_proxy"), Some("http://127.1.0.1:3128"));
    let sockets = &plan.jail.worker.sockets;
    let shown: Vec<String> = sockets.iter().map(|it| it.address.to_string()).collect();
    let expected = [
        "127.1.0.1:53",
        "0.0.0.0:80",
        "0.0.0.0:443",
        "127.1.0.1:3128",
        "127.1.0.3:5432",
    ];
    assert_eq!(shown, expected);
    assert_eq!(sockets[0].transport, Transport::Udp);
}

#[test]
fn an_allowed_name_of_this_machine_needs_the_proxy() {
    let without_proxy = |hosts: &str| {
        let plan = planned(&format!("network.allow = [{hosts}]"), &known());
        let of = |name: &str| {
            let mut all = plan.jail.env.iter();
            all.find(|(own, _)| own == name)
                .map(|(_, value)| value.clone())
        };
        assert_eq!(of("NO_PROXY"), of("no_proxy"));
        of("NO_PROXY").unwrap()
    };
    for (hosts, expected) in [
        ("'a.example'", "localhost,127.0.0.1,::1"),
        ("{ host = 'Localhost', private = true }", "127.0.0.1,::1"),
        (
            "{ host = '127.0.0.1', ports = [8080], private = true }, { host = '[::1]', private = true }",
            "localhost",
        ),
        // The entry does not reach this machine, and the guest's own server is meant.
        ("'localhost'", "localhost,127.0.0.1,::1"),
        (
            "{ host = '127.0.0.2', private = true }",
            "localhost,127.0.0.1,::1",
        ),
    ] {
        assert_eq!(without_proxy(hosts), expected, "{hosts}");
    }
}

#[test]
fn other_modes_have_nothing_of_it() {
    for mode in ["none", "loopback"] {
        let toml = POLICY.replace("'allow'\n", &format!("'{mode}'\n"));
        // Without secrets too.
        let plan = planned(&toml, &host(machine()));
        assert_eq!(plan.egress, None);
        assert_eq!(contents(&plan, "/etc/resolv.conf"), None);
        assert!(plan.jail.worker.sockets.is_empty());
        let names = plan.jail.env.iter().map(|(name, _)| name.to_lowercase());
        assert_eq!(
            names
                .filter(|name| name.contains("proxy") || name.contains("cert"))
                .count(),
            0
        );
    }
    assert_eq!(policy(POLICY).network.mode.value, NetworkMode::Allow);
}

#[test]
fn what_the_policy_shows_or_sets_comes_first() {
    let toml = "env.set = { HTTPS_PROXY = 'mine' }\n".to_owned() + POLICY;
    let plan = planned(&toml.replace("proxy =", "# proxy ="), &known());
    assert!(
        plan.jail
            .env
            .contains(&("HTTPS_PROXY".into(), "mine".into()))
    );
}

#[test]
fn no_secret_is_in_a_plan() {
    let plan = planned(POLICY, &known());
    let explained = crate::plan::explain(&plan);
    let json = serde_json::to_string(&plan).unwrap();
    for text in [&explained, &json, &format!("{plan:?}")] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(
        explained
            .contains("api.example, port 80 and 443, only GET, with a value of its own for X-Key"),
        "{explained}"
    );
    assert!(
        explained.contains("through proxy.example:3128, unless private"),
        "{explained}"
    );
}

#[test]
fn a_secret_that_is_not_set_is_named_with_its_line() {
    let said = refusal(POLICY, &host(machine())).to_string();
    let expected =
        "tenant.toml:6: ${KEY} is not set in your environment: export KEY, or remove the reference";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn too_many_ports_are_refused() {
    let ports: Vec<String> = (1000..1050).map(|port| port.to_string()).collect();
    let toml = format!(
        "[network]\nallow = [{{ host = 'a.example', ports = [{}] }}]",
        ports.join(", ")
    );
    let said = refusal(&toml, &known()).to_string();
    assert!(
        said.contains("tenant.toml:2: `network.allow` has more than"),
        "{said}"
    );
}

#[test]
fn level_landlock_has_no_network_to_reach_hosts_from() {
    let toml = "assurance.require = 'landlock'\nnetwork.mode = 'allow'";
    let said = refusal(
        toml,
        &host(Machine {
            namespaces: no_user_namespaces(),
            ..machine()
        }),
    )
    .to_string();
    assert!(
        said.contains("`network.mode` is \"allow\", and at level `landlock`"),
        "{said}"
    );
}
