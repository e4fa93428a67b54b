//! Tests of changes to inherited lists, and of settings that follow other settings: CPU limit and network mode.

use insta::assert_snapshot;
use sandfork::internals::policy::{NetworkMode, PolicySettings as _};
use sandfork::{LimitName, Policy};

use crate::support::{Files, load, refusal, set};

fn preload(policy: &Policy) -> Vec<String> {
    let modules = policy.python().preload.iter();
    modules.map(|module| module.value.to_string()).collect()
}

#[test]
fn an_inherited_item_can_be_removed() {
    let policy = load("extends = 'data-science'\npython.preload.remove = ['pandas']").unwrap();
    assert_eq!(preload(&policy), ["numpy?"]);
}

#[test]
fn an_item_can_be_removed_and_another_added() {
    let change = "[python]\npreload = { remove = ['numpy', 'pandas?'], add = ['polars'] }";
    let policy = load(&format!("extends = 'data-science'\n{change}")).unwrap();
    assert_eq!(preload(&policy), ["polars"]);
}

#[test]
fn an_item_can_be_removed_and_added_again() {
    let change = "python.preload = { remove = ['numpy?'], add = ['numpy'] }";
    let policy = load(&format!("extends = 'data-science'\n{change}")).unwrap();
    assert_eq!(preload(&policy), ["pandas?", "numpy"]);
}

#[test]
fn each_list_can_be_changed() {
    let base = "[python]\npackages = ['a']\npreload = ['a']\npath = ['/srv/lib']\n[imports]\nallow = ['a']\n\
        [filesystem]\nread = ['/srv/a']\nwrite = ['/srv/b']\n[env]\npass = ['A']\n\
        [syscalls]\nallow = ['ptrace']\ndeny = ['bpf']\n\
        [network]\nallow = [{ host = 'a.example', ports = [443] }]\n";
    let change = "extends = 'base.toml'\n[python]\npackages.remove = ['a']\npreload.remove = ['a']\npath.remove = ['/srv/lib']\n\
        [imports]\nallow.remove = ['a']\n[filesystem]\nread.remove = ['/srv/a']\nwrite.remove = ['/srv/b']\n\
        [env]\npass.remove = ['A']\n[syscalls]\nallow.remove = ['ptrace']\ndeny.remove = ['bpf']\n\
        [network]\nallow.remove = ['a.example']\n";
    let files = Files::new([("base.toml", base), ("own.toml", change)]);
    let text = |name| Policy::load(name, &[], &files).unwrap().to_toml();
    assert_eq!(text("base.toml").matches(" = []").count(), 0);
    assert_eq!(text("own.toml").matches(" = []").count(), 10);
}

#[test]
fn an_override_changes_a_list() {
    let policy = set(&["python.preload=a", "python.preload={ remove = ['a'] }"]).unwrap();
    assert!(preload(&policy).is_empty());
}

#[test]
fn an_import_list_without_its_items_allows_nothing() {
    let policy = set(&["imports.allow=math", "imports.allow={ remove = ['math'] }"]).unwrap();
    assert!(policy.imports().allow.is_empty());
}

#[test]
fn an_item_that_no_base_has_cannot_be_removed() {
    assert_snapshot!(refusal("extends = 'data-science'\npython.preload.remove = ['pandsa']"), @r#"tenant.toml:2: python.preload: no policy that this one builds on has "pandsa" in this list: did you mean "pandas?"?"#);
    assert_snapshot!(refusal("python.preload = { remove = ['a'], add = ['a'] }"), @r#"tenant.toml:1: python.preload: no policy that this one builds on has "a" in this list: remove it from `remove`"#);
    assert_snapshot!(refusal("imports.allow.remove = ['math']"), @r#"tenant.toml:1: imports.allow: no policy that this one builds on has "math" in this list: remove it from `remove`"#);
}

#[test]
fn unknown_list_change_is_rejected() {
    assert_snapshot!(refusal("python.preload = { replace = ['a'] }"), @"tenant.toml:1: python.preload.replace: unknown key: the keys that change a list are `remove` and `add`");
    assert_snapshot!(refusal("python.preload.remove = 'a'"), @r#"tenant.toml:1: python.preload.remove: string "a" is the wrong type: write a list in brackets, such as ["a", "b"]"#);
    assert_snapshot!(refusal("env.pass.remove = ['1']"), @r#"tenant.toml:1: env.pass.remove: "1" is not the name of a variable: use letters, digits and `_`, and no digit first"#);
}

fn mode(text: &str) -> NetworkMode {
    load(text).unwrap().network().mode.value
}

#[test]
fn network_allow_implies_the_mode_unless_it_is_set() {
    assert_eq!(mode(""), NetworkMode::None);
    assert_eq!(mode("network.allow = ['a.example']"), NetworkMode::Allow);
    for mode_of_user in [NetworkMode::None, NetworkMode::Loopback] {
        let text = format!("network = {{ mode = '{mode_of_user}', allow = ['a.example'] }}");
        assert_eq!(mode(&text), mode_of_user);
    }
    let files = Files::new([
        ("base.toml", "network.mode = 'none'"),
        ("own.toml", "extends = 'base.toml'"),
    ]);
    let host = ["network.allow=a.example".parse().unwrap()];
    let policy = Policy::load("own.toml", &host, &files).unwrap();
    assert_eq!(policy.network().mode.value, NetworkMode::None);
}

fn cpu(text: &str) -> String {
    load(text).unwrap().limits().text(LimitName::Cpu)
}

#[test]
fn wall_limit_raises_the_cpu_limit() {
    assert_eq!(cpu("limits.wall = '40s'"), "40s");
    assert_eq!(cpu("limits = { wall = '40s', cores = 2.5 }"), "2m");
    assert_eq!(cpu("extends = 'data-science'\nlimits.wall = '10m'"), "20m");
}

#[test]
fn short_wall_limit_keeps_the_cpu_limit() {
    assert_eq!(cpu(""), "10s");
    assert_eq!(cpu("limits.wall = '2s'"), "10s");
    assert_eq!(cpu("limits.cores = 2.0"), "10s");
}

#[test]
fn explicit_cpu_limit_wins() {
    assert_eq!(cpu("limits = { wall = '40s', cpu = '3s' }"), "3s");
    let files = Files::new([
        ("base.toml", "limits.cpu = '3s'"),
        ("own.toml", "extends = 'base.toml'"),
    ]);
    let longer = ["limits.wall=40s".parse().unwrap()];
    let policy = Policy::load("own.toml", &longer, &files).unwrap();
    assert_eq!(policy.limits().text(LimitName::Cpu), "3s");
}

#[test]
fn longest_wall_limit_fits_the_cpu_limit() {
    assert_eq!(cpu("limits = { wall = '720h', cores = 8 }"), "720h");
}
