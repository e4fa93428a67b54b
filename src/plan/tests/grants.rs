//! Tests the explanations of refused operations.

use std::path::Path;

use super::super::{Explanation, Grants, PathVerdict, Want, of_connection, of_limit};
use super::hosts::{host, machine};
use super::{plan, policy};
use crate::host::Host;
use crate::outcome::{Layer, LimitName};
use crate::policy::Override;
use sandfork_egress::refusal::Refusal;

const TENANT: &str = "
    [filesystem]
    read = ['/srv/in', '/srv/in/deep']
    write = ['/srv/out']
";

fn of(toml: &str, host: &Host) -> Grants {
    let policy = policy(toml);
    let host = host
        .clone()
        .with_directory("/srv/in")
        .with_directory("/srv/in/deep")
        .with_directory("/srv/out");
    Grants::new(&policy, &plan(&policy, &host).unwrap())
}

fn grants(toml: &str) -> Grants {
    of(toml, &host(machine()))
}

/// Formats the verdict on a path with the layer and the setting, `-` for none.
fn verdict_on(grants: &Grants, path: &str, want: Want) -> String {
    let explained = |explained: Explanation| {
        let layer = explained
            .layer
            .map_or("-".into(), |layer| layer.to_string());
        let set = explained.set();
        if let Some(set) = &set {
            assert!(set.parse::<Override>().unwrap().is_valid(), "{set}");
        }
        let key = explained.key.unwrap_or("-");
        format!("{layer} {}", set.unwrap_or_else(|| key.to_owned()))
    };
    match grants.of_path(Path::new(path), want, None) {
        PathVerdict::Granted => "granted".to_owned(),
        PathVerdict::Hidden(why) => format!("hidden {}", explained(why)),
        PathVerdict::Refused(why) => format!("refused {}", explained(why)),
    }
}

#[test]
fn refused_paths_name_their_keys() {
    use Want::{Read, Run, Write};
    let standard = grants(TENANT);
    for (path, want, expected) in [
        (
            "/srv/data/x.csv",
            Read,
            "hidden mounts filesystem.read=/srv/data/x.csv",
        ),
        (
            "/srv/data/x.csv",
            Write,
            "hidden mounts filesystem.write=/srv/data/x.csv",
        ),
        (
            "/srv/../root/x",
            Read,
            "hidden mounts filesystem.read=/root/x",
        ),
        (
            "/etc/shadow",
            Read,
            "hidden mounts filesystem.read=/etc/shadow",
        ),
        // The sandbox has its own file.
        ("/etc/passwd", Read, "granted"),
        ("/srv", Read, "granted"),
        ("/srv/in/x", Read, "granted"),
        ("/srv/out/x", Write, "granted"),
        ("/work/x", Write, "granted"),
        ("/tmp/x", Write, "granted"),
        ("/var/tmp/x", Write, "granted"),
        ("/dev/shm/x", Write, "granted"),
        ("/dev/null", Write, "granted"),
        ("/bin/ls", Run, "granted"),
        ("/lib/x.so", Read, "granted"),
        ("/proc/self/status", Read, "granted"),
        // No key opens these.
        ("/dev/kvm", Read, "hidden mounts -"),
        ("/sys/kernel", Read, "hidden mounts -"),
        ("/usr/lib/x", Write, "refused mounts -"),
        ("/proc/self/oom_adj", Write, "refused mounts -"),
        // A path in one list cannot be in the other.
        ("/srv/in", Write, "refused mounts filesystem.write"),
        (
            "/srv/in/x",
            Write,
            "refused mounts filesystem.write=/srv/in/x",
        ),
        (
            "/work/made",
            Run,
            "refused mounts filesystem.work_exec=true",
        ),
        ("/tmp/made", Run, "refused mounts -"),
        // A policy cannot name these.
        ("/srv/a\u{1b}[2Jb", Read, "hidden mounts filesystem.read"),
        ("/srv/a\u{202e}b", Read, "hidden mounts filesystem.read"),
    ] {
        assert_eq!(
            verdict_on(&standard, path, want),
            expected,
            "{path} {want:?}"
        );
    }
}

#[test]
fn overlong_and_relative_paths_are_not_explained() {
    let long = format!("/{}", "x".repeat(5000));
    assert_eq!(verdict_on(&grants(""), &long, Want::Read), "granted");
    assert_eq!(verdict_on(&grants(""), "relative", Want::Read), "granted");
}

#[test]
fn strict_hides_programs_and_proc() {
    use Want::{Read, Run};
    let strict = grants("extends = 'strict'");
    for (path, want, expected) in [
        ("/bin/sh", Read, "hidden mounts filesystem.system=programs"),
        (
            "/usr/bin/git",
            Run,
            "hidden mounts filesystem.system=programs",
        ),
        (
            "/usr/share/dict",
            Read,
            "hidden mounts filesystem.read=/usr/share/dict",
        ),
        (
            "/proc/self/status",
            Read,
            "hidden mounts filesystem.proc=true",
        ),
    ] {
        assert_eq!(verdict_on(&strict, path, want), expected, "{path}");
    }
}

/// A policy can show host files in `/work` and `/tmp`, but not in `/dev/shm`.
#[test]
fn own_directories_differ_from_trees_shown_in_them() {
    let shown = of(
        "[filesystem]\nread = ['/tmp/shown']",
        &host(machine()).with_directory("/tmp/shown"),
    );
    let set = |path: &str| {
        let explained = shown.of_own_directory(Path::new(path), Want::Read)?;
        Some(explained.set().unwrap_or_default())
    };
    for (path, expected) in [
        ("/work/x", Some("filesystem.read=/work/x")),
        ("/tmp/d/x", Some("filesystem.read=/tmp/d/x")),
        ("/tmp/shown/x", None),
        ("/srv/x", None),
        ("/proc/x", None),
        ("/dev/shm/x", Some("")),
    ] {
        assert_eq!(set(path).as_deref(), expected, "{path}");
    }
    assert_eq!(
        verdict_on(&shown, "/tmp/shown/x", Want::Write),
        "refused mounts filesystem.write=/tmp/shown/x"
    );
}

/// With the suggested setting, the same path is granted.
#[test]
fn suggested_setting_grants_the_path() {
    for path in [
        "/srv/data",
        "/root/x",
        "/etc/hosts.equiv",
        "/opt/it's here/a b",
    ] {
        for want in [Want::Read, Want::Write] {
            let PathVerdict::Hidden(why) = grants("").of_path(Path::new(path), want, None) else {
                panic!("{path} is hidden");
            };
            let set: Override = why.set().unwrap().parse().unwrap();
            let policy =
                crate::policy::Policy::load("standard", &[set], &crate::policy::BuiltInsOnly)
                    .unwrap();
            let host = host(machine()).with_directory(path);
            let granted = Grants::new(&policy, &plan(&policy, &host).unwrap());
            assert_eq!(
                granted.of_path(Path::new(path), want, None),
                PathVerdict::Granted
            );
        }
    }
}

#[test]
fn landlock_level_hides_paths_by_landlock() {
    let without = crate::host::Machine {
        namespaces: super::hosts::no_user_namespaces(),
        ..machine()
    };
    let landlock = of(
        "[assurance]\nrequire = 'landlock'\n[filesystem]\nread = ['/srv/in']",
        &host(without),
    );
    assert_eq!(verdict_on(&landlock, "/srv/in/x", Want::Read), "granted");
    assert_eq!(
        verdict_on(&landlock, "/root", Want::Read),
        "hidden landlock filesystem.read=/root"
    );
    assert_eq!(
        verdict_on(&landlock, "/dev/kvm", Want::Read),
        "hidden landlock -"
    );
    let own = Path::new("/tmp/sandfork-1");
    let verdict = |path| landlock.of_path(Path::new(path), Want::Write, Some(own));
    assert_eq!(verdict("/tmp/sandfork-1/x"), PathVerdict::Granted);
    assert!(matches!(
        verdict("/tmp/sandfork-2/x"),
        PathVerdict::Hidden(_)
    ));
    // Its guests are in the host's network namespace and get no sockets.
    for refused in [landlock.of_socket(), landlock.of_host("a.example:443")] {
        let refused = refused.unwrap();
        assert_eq!((refused.layer, refused.key), (Some(Layer::Seccomp), None));
    }
}

#[test]
fn refused_socket_names_the_network_mode() {
    let set = |toml| Some(grants(toml).of_socket()?.set());
    assert_eq!(set(""), Some(Some("network.mode=loopback".to_owned())));
    assert_eq!(set("[network]\nmode = 'loopback'"), None);
}

#[test]
fn refused_host_names_the_allow_entry() {
    let set =
        |toml: &str, target: &str| Some(grants(toml).of_host(target)?.set().unwrap_or_default());
    for (target, expected) in [
        ("a.example:443", "network.allow=a.example"),
        ("a.example", "network.allow=a.example"),
        (
            "a.example:5432",
            "network.allow={ host = \"a.example\", ports = [5432] }",
        ),
        ("[2606:4700::1]:443", "network.allow=[2606:4700::1]"),
        ("[2606:4700::1]", "network.allow=[2606:4700::1]"),
        ("localhost:80", "network.mode=loopback"),
        ("127.0.0.1:80", "network.mode=loopback"),
    ] {
        assert_eq!(set("", target).as_deref(), Some(expected), "{target}");
    }
    // A hostile guest chooses the text.
    for target in [
        "a b:1",
        "a.example:0",
        "a.example:99999",
        "",
        "x\", y",
        "*:80",
    ] {
        assert_eq!(set("", target), None, "{target}");
    }
    // If the policy sets the mode, the suggestion is to change it.
    for mode in ["none", "loopback"] {
        let toml = format!("[network]\nmode = '{mode}'");
        let expected = Some("network.mode=allow".to_owned());
        assert_eq!(set(&toml, "a.example:443"), expected);
    }
    // The egress process reports these.
    assert_eq!(
        set("[network]\nallow = ['b.example']", "a.example:443"),
        None
    );
}

#[test]
fn refused_imports_and_limits_name_their_settings() {
    assert_eq!(grants("").of_import("os"), None);
    let listed = grants("[imports]\nallow = ['math']");
    let set = |module| listed.of_import(module).unwrap().set();
    assert_eq!(set("os.path").as_deref(), Some("imports.allow=os.path"));
    // A hostile guest chooses the name.
    assert_eq!(set("os\"]\n[syscalls]"), None);
    let limits = policy("").limits;
    let of = |name| of_limit(name, &limits, None).set();
    assert_eq!(of(LimitName::Wall).as_deref(), Some("limits.wall=1m"));
    assert_eq!(of(LimitName::Cores).as_deref(), Some("limits.cores=2"));
}

#[test]
fn refused_connection_names_its_setting() {
    let standard = plan(&policy(""), &host(machine()));
    let limits = standard.unwrap().supervision.limits;
    for (refusal, place, port, expected) in [
        (Refusal::Host, "a.example", None, "network.allow=a.example"),
        (
            Refusal::Host,
            "a.example",
            Some(443),
            "network.allow=a.example",
        ),
        (
            Refusal::Port,
            "a.example",
            Some(80),
            "network.allow={ host = \"a.example\", ports = [80] }",
        ),
        (
            Refusal::Host,
            "1.1.1.1",
            Some(53),
            "network.allow={ host = \"1.1.1.1\", ports = [53] }",
        ),
        // Not a value that a policy may have.
        (Refusal::Host, "10.0.0.1", Some(80), "network.allow"),
        (Refusal::Host, "", None, "network.allow"),
        (Refusal::Method, "a.example", Some(443), "network.allow"),
        (
            Refusal::PrivateAddress,
            "a.example",
            Some(443),
            "network.allow",
        ),
        (Refusal::Connections, "", None, "network.connections=128"),
        (
            Refusal::Bytes,
            "a.example",
            Some(443),
            "network.bytes=200MiB",
        ),
        (Refusal::Malformed, "", None, "-"),
    ] {
        let explained = of_connection(refusal, place, port, &limits);
        let set = explained.set();
        if let Some(set) = &set {
            assert!(set.parse::<Override>().unwrap().is_valid(), "{set}");
        }
        let suggestion = set.or(explained.key.map(str::to_owned));
        assert_eq!(
            suggestion.as_deref().unwrap_or("-"),
            expected,
            "{refusal:?}"
        );
    }
}
