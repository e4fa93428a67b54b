//! Tests which host trees are shown, at which paths and in which order.

use std::path::Path;

use super::hosts::{
    host, link, machine, no_user_namespaces, unmerged_system, virtual_environment,
    virtual_environment_at,
};
use super::{builtin, plan, planned};
use crate::host::{Host, PathKind};
use crate::plan::Plan;
use sandfork_jail::program::{Access, PathAccess, Programs, RootEntry, Shown};

/// Lists the mounts in order, and marks writable ones and those from another path.
fn mounts(plan: &Plan) -> Vec<String> {
    let mount = |entry: &RootEntry| match entry {
        RootEntry::Bind {
            source,
            target,
            access,
        } => {
            let from = if source == target {
                String::new()
            } else {
                format!(" from {}", source.display())
            };
            let mark = if *access == Access::ReadWrite {
                " rw"
            } else {
                ""
            };
            Some(format!("{}{from}{mark}", target.display()))
        }
        _ => None,
    };
    plan.jail.root.iter().filter_map(mount).collect()
}

fn links(plan: &Plan) -> Vec<String> {
    let link = |entry: &RootEntry| match entry {
        RootEntry::Symlink { target, points_at } if !target.starts_with("/dev") => {
            Some(format!("{} -> {}", target.display(), points_at.display()))
        }
        _ => None,
    };
    plan.jail.root.iter().filter_map(link).collect()
}

fn allowed(plan: &Plan, path: &str) -> Option<PathAccess> {
    let rules = &plan.jail.landlock.as_ref().unwrap().paths;
    rules
        .iter()
        .find(|rule| rule.path.as_os_str() == path)
        .map(|rule| rule.allow)
}

fn plain() -> Host {
    host(machine())
}

#[test]
fn added_packages_are_shown_only_if_allowed() {
    let mut host = plain();
    host.environments = Some("/srv/data/sandfork/environments".into());
    let shown = |toml: &str| {
        let mut mounts = mounts(&planned(toml, &host));
        mounts.retain(|path| path.starts_with("/srv"));
        mounts
    };
    assert!(shown("").is_empty());
    assert_eq!(
        shown("environments.add = true"),
        ["/srv/data/sandfork/environments/added/store"]
    );
}

#[test]
fn system_trees_are_shown_once() {
    let plan = planned("", &plain());
    assert_eq!(
        mounts(&plan),
        ["/etc/alternatives", "/etc/ld.so.cache", "/usr"]
    );
    assert_eq!(
        links(&plan),
        [
            "/var/tmp -> ../tmp",
            "/bin -> usr/bin",
            "/lib -> usr/lib",
            "/lib64 -> usr/lib64",
            "/sbin -> usr/sbin"
        ]
    );
    assert_eq!(allowed(&plan, "/usr"), Some(PathAccess::ReadExecute));
    assert_eq!(allowed(&plan, "/"), Some(PathAccess::List));
}

#[test]
fn unmerged_usr_shows_the_top_level_directories() {
    let host = Host {
        system: unmerged_system(),
        ..plain()
    };
    let plan = planned("", &host);
    assert_eq!(mounts(&plan), ["/bin", "/lib", "/lib64", "/sbin", "/usr"]);
    assert_eq!(links(&plan), ["/var/tmp -> ../tmp"]);
}

#[test]
fn strict_shows_no_programs_but_the_interpreter() {
    let plan = plan(&builtin("strict"), &plain()).unwrap();
    assert_eq!(
        mounts(&plan),
        [
            "/etc/ld.so.cache",
            "/usr/bin/python3.11",
            "/usr/lib",
            "/usr/lib64",
            "/usr/local/lib",
            "/usr/share/zoneinfo",
        ]
    );
    assert_eq!(
        links(&plan),
        [
            "/var/tmp -> ../tmp",
            "/lib -> usr/lib",
            "/lib64 -> usr/lib64",
            "/usr/bin/python3 -> python3.11"
        ]
    );
    let rules = &plan.jail.landlock.as_ref().unwrap().paths;
    assert!(
        rules
            .iter()
            .all(|rule| rule.allow != PathAccess::ReadExecute),
        "{rules:?}"
    );
}

/// Lists the host's entries in each of the session's private directories.
fn shown(plan: &Plan) -> Vec<String> {
    let own = plan.jail.worker.tmpfs.iter();
    let shown = own.flat_map(|tmpfs| {
        assert!(tmpfs.shows.iter().all(|shown| match shown {
            Shown::Tree { target, .. } | Shown::Symlink { target, .. } =>
                target.starts_with(&tmpfs.target),
        }));
        &tmpfs.shows
    });
    let shown = shown.map(|shown| match shown {
        Shown::Tree { target, access } => format!("{} {access:?}", target.display()),
        Shown::Symlink { target, points_at } => {
            format!("{} -> {}", target.display(), points_at.display())
        }
    });
    shown.collect()
}

#[test]
fn host_paths_in_session_directories_are_shown() {
    let mut host = plain()
        .with_directory("/work/project/data")
        .with_directory("/work/project/data/results")
        .with_directory("/tmp/lib");
    assert_eq!(shown(&planned("", &host)), [""; 0]);
    let toml = "python.path = ['/tmp/lib']\n\
                filesystem.read = ['/work/project/data']\n\
                filesystem.write = ['/work/project/data/results']";
    let plan = planned(toml, &host);
    // A mount inside another tree comes with that tree.
    assert_eq!(
        shown(&plan),
        ["/work/project/data ReadOnly", "/tmp/lib ReadOnly"]
    );
    let own = |at: &str| {
        let mut tmpfs = plan.jail.worker.tmpfs.iter();
        tmpfs
            .find(|own| own.target == Path::new(at))
            .map(|own| own.inodes)
    };
    assert!(own("/work").is_some_and(|inodes| inodes > 4096 && inodes < 4112));
    assert_eq!(own("/dev/shm"), Some(4096));
    let mounts = mounts(&plan);
    for mounted in [
        "/tmp/lib",
        "/work/project/data",
        "/work/project/data/results rw",
    ] {
        assert!(mounts.contains(&mounted.to_owned()), "{mounts:?}");
    }
    assert_eq!(
        allowed(&plan, "/work/project/data"),
        Some(PathAccess::ReadExecute)
    );

    // At level `landlock` nothing is mounted and nothing is hidden.
    host.machine.namespaces = no_user_namespaces();
    let landlock = planned(&format!("{toml}\nassurance.require = 'landlock'"), &host);
    assert_eq!(shown(&landlock), [""; 0]);
    assert_eq!(allowed(&landlock, "/tmp/lib"), Some(PathAccess::Read));
}

#[test]
fn interpreter_links_in_session_directories_are_created() {
    let mut host = plain();
    host.interpreter = virtual_environment_at("/tmp/venv");
    let strict = plan(&builtin("strict"), &host).unwrap();
    assert_eq!(
        shown(&strict),
        [
            "/tmp/venv/lib ReadOnly",
            "/tmp/venv/pyvenv.cfg ReadOnly",
            "/tmp/venv/bin/python -> /root/.pyenv/versions/3.12.1/bin/python3",
        ]
    );
    assert_eq!(shown(&planned("", &host)), ["/tmp/venv ReadOnly"]);
}

#[test]
fn virtual_environment_shows_only_its_base() {
    let mut host = plain();
    host.interpreter = virtual_environment();
    let base = "/root/.pyenv/versions/3.12.1";
    let standard = planned("", &host);
    assert_eq!(
        mounts(&standard),
        [
            "/etc/alternatives".to_owned(),
            "/etc/ld.so.cache".to_owned(),
            format!("{base}/bin"),
            format!("{base}/lib"),
            "/srv/venv".to_owned(),
            "/usr".to_owned(),
        ]
    );
    let strict = plan(&builtin("strict"), &host).unwrap();
    let shown = mounts(&strict);
    for path in [&format!("{base}/bin/python3.12"), &format!("{base}/lib")] {
        assert!(shown.contains(path), "{shown:?}");
    }
    assert!(
        shown.contains(&"/srv/venv/lib".to_owned())
            && shown.contains(&"/srv/venv/pyvenv.cfg".to_owned())
    );
    assert!(links(&strict).contains(&format!("/srv/venv/bin/python -> {base}/bin/python3")));
    assert!(links(&strict).contains(&format!("{base}/bin/python3 -> python3.12")));
}

#[test]
fn parents_precede_nested_paths() {
    let toml = r#"
        filesystem.read = ["/srv/data/deep", "/srv/data"]
        filesystem.write = ["/srv/data/out", "/usr/local/state"]
        python.path = ["/srv/data/lib", "/usr/lib/mine"]
    "#;
    let mut host = plain();
    for path in [
        "/srv/data",
        "/srv/data/deep",
        "/srv/data/out",
        "/srv/data/lib",
        "/usr/local/state",
        "/usr/lib/mine",
    ] {
        host = host.with_directory(path);
    }
    let plan = planned(toml, &host);
    assert_eq!(
        mounts(&plan),
        [
            "/etc/alternatives",
            "/etc/ld.so.cache",
            "/srv/data",
            "/srv/data/out rw",
            "/usr",
            "/usr/local/state rw",
        ]
    );
    assert_eq!(allowed(&plan, "/srv/data"), Some(PathAccess::ReadExecute));
    assert_eq!(allowed(&plan, "/srv/data/out"), Some(PathAccess::ReadWrite));
    assert_eq!(plan.interpreter.path.len(), 2);
}

#[test]
fn path_through_a_system_link_is_resolved() {
    let host = plain().with_path("/lib/mine", PathKind::Directory, "/usr/lib/mine");
    let plan = planned("filesystem.write = [\"/lib/mine\"]", &host);
    assert_eq!(
        mounts(&plan),
        [
            "/etc/alternatives",
            "/etc/ld.so.cache",
            "/usr",
            "/usr/lib/mine rw"
        ]
    );
}

#[test]
fn target_of_a_link_in_a_shown_tree_is_shown() {
    let host = plain()
        .with_path("/usr/share/corpus", PathKind::Directory, "/mnt/disk/corpus")
        .with_path("/mnt/disk/corpus/more", PathKind::Directory, "/mnt/more");
    let toml = "filesystem.read = [\"/usr/share/corpus\", \"/mnt/disk/corpus/more\"]";
    let plan = planned(toml, &host);
    assert_eq!(
        mounts(&plan),
        [
            "/etc/alternatives",
            "/etc/ld.so.cache",
            "/mnt/disk/corpus",
            "/mnt/more",
            "/usr"
        ]
    );
    assert_eq!(
        allowed(&plan, "/mnt/disk/corpus"),
        Some(PathAccess::ReadExecute)
    );
}

#[test]
fn link_outside_shown_trees_is_mounted_at_its_path() {
    let host = plain().with_path("/srv/current", PathKind::Directory, "/mnt/disk/v7");
    let plan = planned("filesystem.read = [\"/srv/current\"]", &host);
    assert!(mounts(&plan).contains(&"/srv/current from /mnt/disk/v7".to_owned()));
    assert!(!mounts(&plan).contains(&"/mnt/disk/v7".to_owned()));
}

#[test]
fn absolute_system_link_is_resolved() {
    let mut host = plain().with_path("/lib/mine", PathKind::Directory, "/usr/lib/mine");
    host.system.retain(|path| path.path.as_os_str() != "/lib");
    host.system.push(link("/lib", "/usr/lib"));
    let plan = planned("filesystem.read = [\"/lib/mine\"]", &host);
    assert_eq!(
        mounts(&plan),
        ["/etc/alternatives", "/etc/ld.so.cache", "/usr"]
    );
}

#[test]
fn jail_without_proc_never_mentions_it() {
    let plan = planned("filesystem.proc = false", &plain());
    let json = serde_json::to_string(&plan.jail).unwrap();
    assert!(!json.contains("/proc"), "{json}");
}

#[test]
fn set_variables_override_passed_ones() {
    let mut host = plain();
    host.caller_env.insert("TOKEN".into(), "s3cret".into());
    host.caller_env.insert("PATH".into(), "/home/me/bin".into());
    let toml = "env.pass = [\"TOKEN\", \"UNSET\"]\nenv.set = { HOME = \"/srv\" }";
    let plan = planned(toml, &host);
    let value = |name: &str| {
        plan.jail
            .env
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    };
    assert_eq!(value("TOKEN"), Some("s3cret"));
    assert_eq!(value("UNSET"), None);
    assert_eq!(value("HOME"), Some("/srv"));
    assert_eq!(value("PATH"), Some("/usr/bin:/usr/local/bin:/bin"));
    assert!(!crate::plan::explain(&plan).contains("s3cret"));
}

#[test]
fn work_exec_applies_only_to_work() {
    let plan = planned("filesystem.work_exec = true", &plain());
    let runs = |plan: &Plan| -> Vec<String> {
        let tmpfs = plan.jail.worker.tmpfs.iter();
        let runs = tmpfs.filter(|tmpfs| tmpfs.programs == Programs::Run);
        runs.map(|tmpfs| tmpfs.target.display().to_string())
            .collect()
    };
    assert_eq!(runs(&plan), ["/work"]);
    assert_eq!(allowed(&plan, "/work"), Some(PathAccess::ReadWriteExecute));
    assert_eq!(allowed(&plan, "/tmp"), Some(PathAccess::ReadWrite));
    let explained = crate::plan::explain(&plan);
    assert!(explained.contains("the guest runs and loads programs that it makes there"));
    let without = planned("", &plain());
    assert!(runs(&without).is_empty());
    assert_eq!(allowed(&without, "/work"), Some(PathAccess::ReadWrite));
}

#[test]
fn unreadable_script_is_copied_outside_session_directories() {
    for (script, is_copied) in [("/srv/a.py", true), ("/tmp/a.py", false)] {
        let mut host = plain().with_path(script, PathKind::File, script);
        host.closed_script = Some("pass".to_owned());
        let plan = plan(&builtin("standard").with_script(script.into()), &host).unwrap();
        assert_eq!(mounts(&plan).contains(&script.to_owned()), !is_copied);
        assert!(allowed(&plan, script).is_some() || !is_copied);
    }
}
