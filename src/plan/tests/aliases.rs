//! Tests plans that show one directory of the host at two paths.

use super::hosts::{USER, host, machine, no_user_namespaces};
use super::planned;
use crate::host::{Machine, PathKind};
use sandfork_jail::program::{Access, RootEntry};

const BOTH: &str = "filesystem.write = [\"/al/link\", \"/al/out/a/in\"]";

#[test]
fn aliases_are_mounted_from_their_real_paths() {
    let host = host(machine())
        .with_path("/al/link", PathKind::Directory, "/al/out")
        .with_directory("/al/out/a/in");
    let plan = planned(BOTH, &host);
    let source = |entry: &RootEntry| match entry {
        RootEntry::Bind {
            source,
            access: Access::ReadWrite,
            ..
        } => Some(source.display().to_string()),
        _ => None,
    };
    let sources: Vec<String> = plan.jail.root.iter().filter_map(source).collect();
    assert_eq!(sources, ["/al/out", "/al/out/a/in"]);
}

/// Without mounts, a rule for one path also covers the other.
#[test]
fn aliases_share_one_landlock_rule() {
    let machine = Machine {
        namespaces: no_user_namespaces(),
        user: USER,
        ..machine()
    };
    let host = host(machine)
        .with_path("/al/link", PathKind::Directory, "/al/out")
        .with_directory("/al/out/a/in");
    let plan = planned(&format!("assurance.require = \"landlock\"\n{BOTH}"), &host);
    let rules = plan.jail.landlock.unwrap().paths;
    let rules: Vec<String> = rules
        .iter()
        .map(|rule| rule.path.display().to_string())
        .filter(|path| path.starts_with("/al"))
        .collect();
    assert_eq!(rules, ["/al/link"]);
}
