//! Tests plans for guests that connect to the hosts of their policy.

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
fn guest_gets_resolver_proxy_and_certificates() {
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
fn allowed_names_of_this_machine_use_the_proxy() {
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
        // Without `private`, the entry does not allow this machine, so the name means the guest itself.
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
fn other_modes_have_no_egress() {
    for mode in ["none", "loopback"] {
        let toml = POLICY.replace("'allow'\n", &format!("'{mode}'\n"));
        // The secrets are not needed.
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
fn variables_of_the_policy_take_precedence() {
    let toml = "env.set = { HTTPS_PROXY = 'mine' }\n".to_owned() + POLICY;
    let plan = planned(&toml.replace("proxy =", "# proxy ="), &known());
    assert!(
        plan.jail
            .env
            .contains(&("HTTPS_PROXY".into(), "mine".into()))
    );
}

#[test]
fn plan_contains_no_secrets() {
    let plan = planned(POLICY, &known());
    let explained = crate::plan::explain(&plan);
    let json = serde_json::to_string(&plan).unwrap();
    for text in [&explained, &json, &format!("{plan:?}")] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(
        explained.contains("api.example, port 80 and 443, only GET, with a credential in X-Key"),
        "{explained}"
    );
    assert!(
        explained.contains("through proxy.example:3128, unless private"),
        "{explained}"
    );
}

#[test]
fn unset_secret_is_rejected_with_its_line() {
    let message = refusal(POLICY, &host(machine())).to_string();
    let expected =
        "tenant.toml:6: ${KEY} is not set in your environment: export KEY, or remove the reference";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn too_many_ports_are_rejected() {
    let ports: Vec<String> = (1000..1050).map(|port| port.to_string()).collect();
    let toml = format!(
        "[network]\nallow = [{{ host = 'a.example', ports = [{}] }}]",
        ports.join(", ")
    );
    let message = refusal(&toml, &known()).to_string();
    assert!(
        message.contains("tenant.toml:2: `network.allow` has more than"),
        "{message}"
    );
}

#[test]
fn landlock_level_rejects_network_modes() {
    let toml = "assurance.require = 'landlock'\nnetwork.mode = 'allow'";
    let message = refusal(
        toml,
        &host(Machine {
            namespaces: no_user_namespaces(),
            ..machine()
        }),
    )
    .to_string();
    assert!(
        message.contains("`network.mode` is \"allow\", but at level `landlock`"),
        "{message}"
    );
}
