//! Tests that every error names the origin, the problem and the remedy, in one sentence.

use std::path::Path;

use super::hosts::{
    ROOT, USER, host, machine, no_cgroup, no_user_namespaces, refused, virtual_environment,
};
use super::{plan, policy, refusal};
use crate::error::Error;
use crate::host::KeptKind;
use crate::host::{
    CgroupAbsence, CgroupSupport, ChainStep, Errno, HardLimits, Host, HostLimits, Machine,
    PathFact, PathKind, Reach, RefusalCause,
};

#[test]
fn unavailable_level_is_rejected() {
    let standard = "assurance.require = \"standard\"";
    let user = Machine {
        user: USER,
        namespaces: no_user_namespaces(),
        ..machine()
    };
    insta::assert_snapshot!(
        refusal(standard, &host(user)),
        @"/srv/tenant.toml:1 requires level `standard`, which this host cannot provide: layer `namespaces` cannot be enforced: could not make namespaces (unshare): EPERM (operation not permitted); allow them: `sudo sysctl -w kernel.unprivileged_userns_clone=1`; or accept the weaker level `landlock` (`--set assurance.require=landlock`)"
    );
    let ubuntu = refused(ChainStep::UidMap, 1, RefusalCause::AppArmor);
    insta::assert_snapshot!(
        refusal(standard, &host(Machine { namespaces: ubuntu, ..machine() })),
        @"/srv/tenant.toml:1 requires level `standard`, which this host cannot provide: layer `namespaces` cannot be enforced: could not write /proc/self/uid_map: EPERM (operation not permitted); allow them: `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`; or accept the weaker level `landlock` (`--set assurance.require=landlock`)"
    );
    let docker = refused(ChainStep::Unshare, 1, RefusalCause::Container);
    insta::assert_snapshot!(
        refusal(standard, &host(Machine { namespaces: docker, ..machine() })),
        @"/srv/tenant.toml:1 requires level `standard`, which this host cannot provide: layer `namespaces` cannot be enforced: could not make namespaces (unshare): EPERM (operation not permitted); start the container with `docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined`; or accept the weaker level `landlock` (`--set assurance.require=landlock`)"
    );
    let masked = refused(ChainStep::MountProc, 1, RefusalCause::Container);
    let masked = host(Machine {
        namespaces: masked,
        ..machine()
    });
    insta::assert_snapshot!(refusal(standard, &masked), @"/srv/tenant.toml:1 requires level `standard`, which this host cannot provide: layer `mounts` cannot be enforced: could not make a new /proc (fsmount): EPERM (operation not permitted); start the container with `docker run --security-opt systempaths=unconfined`; or accept the weaker level `landlock` (`--set assurance.require=landlock`)");
    let user = Machine {
        user: USER,
        cgroup: no_cgroup(),
        ..machine()
    };
    let unit = "/sys/fs/cgroup/user.slice/user-1001.slice/user@1001.service/app.slice/app.service";
    let reason = CgroupAbsence::NotWritable(unit.into());
    let service = Machine {
        cgroup: CgroupSupport::Nowhere(reason),
        ..user.clone()
    };
    insta::assert_snapshot!(refusal("[assurance]\nrequire = \"full\"", &host(service)), @"/srv/tenant.toml:2 requires level `full`, which this host cannot provide: layer `cgroup` cannot be enforced: uid 1001 may not create cgroups in /sys/fs/cgroup/user.slice/user-1001.slice/user@1001.service/app.slice/app.service; add `Delegate=yes` to its unit: `systemctl --user edit app.service`; or accept the weaker level `standard` (`--set assurance.require=standard`)");
    insta::assert_snapshot!(refusal("[assurance]\nrequire = \"full\"", &host(user)), @"/srv/tenant.toml:2 requires level `full`, which this host cannot provide: layer `cgroup` cannot be enforced: uid 1001 may not create cgroups in /sys/fs/cgroup/user.slice/session-2.scope; start the program with `systemd-run --user --scope -p Delegate=yes PROGRAM`; or accept the weaker level `standard` (`--set assurance.require=standard`)");
}

#[test]
fn too_many_preloads_are_rejected() {
    let named = |count| {
        let names: Vec<String> = (0..count).map(|it| format!("\"m{it:026}\"")).collect();
        format!("[python]\npreload = [{}]", names.join(", "))
    };
    let host = host(machine());
    plan(&policy(&named(5000)), &host).expect("it fits");
    insta::assert_snapshot!(refusal(&named(6000), &host), @"/srv/tenant.toml:2: `python.preload` is too long: its names take 180000 bytes with quotes and commas, but a zygote's report of its preloads has room for 159744: name packages without their submodules, or a module of your own that imports them");
}

#[test]
fn occupied_cgroup_is_rejected() {
    let occupied = |user, dir: &str| {
        let reason = CgroupAbsence::Occupied(dir.into());
        let cgroup = CgroupSupport::Nowhere(reason);
        let machine = Machine {
            user,
            cgroup,
            ..machine()
        };
        refusal("assurance.require = \"full\"", &host(machine))
    };
    insta::assert_snapshot!(occupied(USER, "/sys/fs/cgroup/system.slice/app.service"), @"/srv/tenant.toml:1 requires level `full`, which this host cannot provide: layer `cgroup` cannot be enforced: other processes are in /sys/fs/cgroup/system.slice/app.service too, so the kernel does not delegate controllers from it; add `Delegate=yes` and `DelegateSubgroup=main` (systemd 254) to its unit: `sudo systemctl edit app.service`; or accept the weaker level `standard` (`--set assurance.require=standard`)");
    insta::assert_snapshot!(occupied(USER, "/sys/fs/cgroup/user.slice/session-2.scope"), @"/srv/tenant.toml:1 requires level `full`, which this host cannot provide: layer `cgroup` cannot be enforced: other processes are in /sys/fs/cgroup/user.slice/session-2.scope too, so the kernel does not delegate controllers from it; start the program with `systemd-run --user --scope -p Delegate=yes PROGRAM`; or accept the weaker level `standard` (`--set assurance.require=standard`)");
    insta::assert_snapshot!(occupied(ROOT, "/sys/fs/cgroup"), @"/srv/tenant.toml:1 requires level `full`, which this host cannot provide: layer `cgroup` cannot be enforced: other processes are in /sys/fs/cgroup too, so the kernel does not delegate controllers from it; move them into a cgroup of their own: `mkdir /sys/fs/cgroup/main && for pid in $(cat /sys/fs/cgroup/cgroup.procs); do echo $pid >/sys/fs/cgroup/main/cgroup.procs; done`; or accept the weaker level `standard` (`--set assurance.require=standard`)");
}

#[test]
fn limit_above_the_hosts_is_rejected() {
    let host = host(machine());
    insta::assert_snapshot!(refusal("[limits]\n\nmemory = \"1TiB\"", &host), @"/srv/tenant.toml:3: `limits.memory` is 1 TiB, more than this host's 16 GiB of memory: lower it (`--set limits.memory=16GiB`)");
    insta::assert_snapshot!(refusal("limits.cores = 4.5", &host), @"/srv/tenant.toml:1: `limits.cores` is 4.5, more than this host's 4 processors: lower it (`--set limits.cores=4`)");
    insta::assert_snapshot!(refusal("limits.pids = 100000", &host), @"/srv/tenant.toml:1: `limits.pids` is 100000, more than this host's 32768 processes and threads: lower it (`--set limits.pids=32768`)");
    insta::assert_snapshot!(refusal("limits.open_files = 1000000", &host), @"/srv/tenant.toml:1: `limits.open_files` is 1000000, more than this host's 524288 open files in one process: lower it (`--set limits.open_files=524288`), or raise the host's hard limit (`ulimit -Hn`)");
}

#[test]
fn limit_above_a_hard_rlimit_is_rejected() {
    let hard = HardLimits {
        cpu_seconds: 5,
        file_size: 1 << 20,
        ..machine().limits.hard
    };
    let host = host(Machine {
        limits: HostLimits {
            hard,
            ..machine().limits
        },
        ..machine()
    });
    insta::assert_snapshot!(refusal("limits.cpu = \"10s\"", &host), @"/srv/tenant.toml:1: `limits.cpu` is 10 s, more than this host's 5 s of processor time: lower it (`--set limits.cpu=5s`), or raise the host's hard limit (`ulimit -Ht`)");
    insta::assert_snapshot!(refusal("limits.cpu = \"5s\"\nlimits.file_size = \"64MiB\"", &host), @"/srv/tenant.toml:2: `limits.file_size` is 64 MiB, more than this host's 1 MiB for one file: lower it (`--set limits.file_size=1MiB`), or raise the host's hard limit (`ulimit -Hf`)");
}

#[test]
fn path_that_cannot_be_shown_is_rejected() {
    let read =
        |path: &str, host: Host| refusal(&format!("[filesystem]\nread = [\"{path}\"]"), &host);
    let plain = || host(machine());
    let mut missing = plain();
    missing
        .paths
        .insert("/srv/data".into(), PathFact::Unreachable(Errno(2)));
    insta::assert_snapshot!(read("/srv/data", missing), @"/srv/tenant.toml:2: filesystem.read: /srv/data cannot be found (ENOENT (no such file or directory)): create it, or remove it from the policy");
    insta::assert_snapshot!(
        read("/run/docker.sock", plain().with_path("/run/docker.sock", PathKind::Special, "/run/docker.sock")),
        @"/srv/tenant.toml:2: filesystem.read: /run/docker.sock is a device, a socket or a FIFO, but must be a directory or a regular file"
    );
    for own in ["/etc", "/etc/passwd"] {
        let error = read(own, plain().with_directory(own)).to_string();
        assert!(
            error.starts_with(&format!("/srv/tenant.toml:2: {own} cannot be shown")),
            "{error}"
        );
    }
    insta::assert_snapshot!(read("/etc", plain().with_directory("/etc")), @"/srv/tenant.toml:2: /etc cannot be shown, because the sandbox has its own /etc: name another path, or copy what is needed to one");
    insta::assert_snapshot!(
        refusal("python.path = [\"lib.zip\"]", &plain().with_path("/srv/lib.zip", PathKind::File, "/srv/lib.zip")),
        @"/srv/tenant.toml:1: python.path: /srv/lib.zip is a file, but must be a directory of modules"
    );
    let mut closed = plain().with_directory("/srv/lib");
    if let Some(PathFact::Found { reach, .. }) = closed.paths.get_mut(Path::new("/srv/lib")) {
        *reach = Reach::Root;
    }
    insta::assert_snapshot!(
        refusal("python.path = [\"lib\"]", &closed),
        @"/srv/tenant.toml:1: python.path: /srv/lib is accessible only to root, but root's guests run as another user: make it and its contents readable, for example by `chmod -R go+rX /srv/lib`"
    );
}

#[test]
fn link_into_a_sandbox_directory_is_rejected() {
    let host = host(machine()).with_path("/usr/share/x", PathKind::Directory, "/dev/x");
    insta::assert_snapshot!(refusal("filesystem.read = [\"/usr/share/x\"]", &host), @"/srv/tenant.toml:1: /dev/x cannot be shown, because the sandbox has its own /dev: name another path, or copy what is needed to one");
}

#[test]
fn writable_code_is_rejected() {
    let host = host(machine()).with_directory("/usr");
    insta::assert_snapshot!(refusal("filesystem.write = [\"/usr\"]", &host), @"/srv/tenant.toml:1: /usr contains code to run, so it cannot be writable: name a data directory in `filesystem.write`");
}

/// Returns a host where later starts find a kept file through these links.
fn keeping(what: KeptKind, path: &str, links: &[(&str, &str)]) -> Host {
    host(machine()).with_kept(what, path, links)
}

fn write_refused(path: &str, host: Host) -> Error {
    let toml = format!("filesystem.write = [\"{path}\"]");
    refusal(&toml, &host.with_directory(path))
}

#[test]
fn writable_parent_of_the_cache_is_rejected() {
    for user in [USER, ROOT] {
        let host = host(Machine { user, ..machine() });
        let host = host.with_kept(KeptKind::Cache, "/srv/kept/sandfork", &[]);
        for path in ["/srv", "/srv/kept/sandfork"] {
            assert_eq!(
                write_refused(path, host.clone()).to_string(),
                format!(
                    "/srv/tenant.toml:1: {path} cannot be writable, because guests could replace /srv/kept/sandfork, \
                     through which later starts find Sandfork's cache: make only a data directory in it writable, or \
                     move Sandfork's cache out of it"
                )
            );
        }
        insta::allow_duplicates! {
            insta::assert_snapshot!(write_refused("/srv/kept/sandfork/new", host), @"/srv/tenant.toml:1: /srv/kept/sandfork/new cannot be writable, because it is in /srv/kept/sandfork, where later starts find Sandfork's cache: name a data directory outside of it in `filesystem.write`");
        }
    }
}

#[test]
fn writable_link_to_the_interpreter_is_rejected() {
    let links = [("/opt/py", "/share/cur"), ("/share/cur", "base")];
    let host = keeping(KeptKind::Interpreter, "/opt/py/bin/python3", &links);
    insta::assert_snapshot!(write_refused("/share", host.clone()), @"/srv/tenant.toml:1: /share cannot be writable, because guests could replace /share/base/bin/python3, through which later starts find the interpreter: make only a data directory in it writable, or move the interpreter out of it");
    for path in ["/share/base", "/share/base/bin", "/opt"] {
        let refused = write_refused(path, host.clone()).to_string();
        assert!(
            refused.contains("later starts find the interpreter"),
            "{refused}"
        );
    }
    super::planned(
        "filesystem.write = [\"/share/data\"]",
        &host.with_directory("/share/data"),
    );
}

#[test]
fn writable_parent_of_the_policy_is_rejected() {
    let host = keeping(KeptKind::Policy, "/srv/tenant.toml", &[]);
    insta::assert_snapshot!(write_refused("/srv", host.clone()), @"/srv/tenant.toml:1: /srv cannot be writable, because guests could replace /srv/tenant.toml, through which later starts find the policy: make only a data directory in it writable, or move the policy out of it");
    super::planned(
        "filesystem.write = [\"/srv/out\"]",
        &host.with_directory("/srv/out"),
    );
}

#[test]
fn writable_link_to_a_parent_of_the_venv_is_rejected() {
    let host = keeping(KeptKind::VirtualEnvironment, "/srv/venv", &[]);
    let host = host.with_path("/home/link", PathKind::Directory, "/srv");
    insta::assert_snapshot!(refusal("filesystem.write = [\"/home/link\"]", &host), @"/srv/tenant.toml:1: /home/link cannot be writable, because guests could replace /srv/venv, through which later starts find the virtual environment: make only a data directory in it writable, or move the virtual environment out of it");
}

#[test]
fn data_directories_of_common_layouts_may_be_writable() {
    type Links = &'static [(&'static str, &'static str)];
    let layouts: [(&str, Links, &str); 6] = [
        (
            "/usr/bin/python3",
            &[("/usr/bin/python3", "python3.11")],
            "/usr/share/data",
        ),
        ("/lib/python3.11", &[("/lib", "usr/lib")], "/usr/share/data"),
        (
            "/home/user/project/.venv/bin/python",
            &[("/home/user/project/.venv/bin/python", "/usr/bin/python3")],
            "/home/user/project/out",
        ),
        (
            "/home/user/.pyenv/shims/python3",
            &[("/home", "/disk/home")],
            "/disk/home/user/out",
        ),
        (
            "/tmp/venv/bin/python",
            &[("/tmp", "/private/tmp")],
            "/private/tmp/out",
        ),
        (
            "/opt/conda/envs/science/bin/python3",
            &[("/opt/conda/envs/science/bin/python3", "python3.12")],
            "/opt/conda-data",
        ),
    ];
    for (path, links, data) in layouts {
        let host = keeping(KeptKind::Interpreter, path, links).with_directory(data);
        super::planned(&format!("filesystem.write = [\"{data}\"]"), &host);
    }
}

#[test]
fn path_through_a_link_in_a_writable_tree_is_rejected() {
    let host = host(machine()).with_directory("/srv/out").with_path(
        "/srv/out/a/in",
        PathKind::Directory,
        "/home/user/.ssh",
    );
    let both = "filesystem.write = [\"/srv/out\", \"/srv/out/a/in\"]";
    insta::assert_snapshot!(refusal(both, &host), @"/srv/tenant.toml:1: /srv/out/a/in leads to /home/user/.ssh through a symbolic link in a directory where `filesystem.write` lets guests create links: name /home/user/.ssh if the sandbox should show it");
    super::planned(both, &host.with_directory("/srv/out/a/in"));
}

#[test]
fn link_in_an_alias_of_a_writable_tree_is_rejected() {
    let links = [("/al/link", "/al/out")];
    let host = host(machine()).behind("/al/link", PathKind::Directory, &links);
    let both = "filesystem.write = [\"/al/link\", \"/al/out/a/in\"]";
    let turned = [("/al/out/a/in", "/al/secret")];
    let exchanged = host
        .clone()
        .behind("/al/out/a/in", PathKind::Directory, &turned);
    insta::assert_snapshot!(refusal(both, &exchanged), @"/srv/tenant.toml:1: /al/out/a/in leads to /al/secret through a symbolic link in a directory where `filesystem.write` lets guests create links: name /al/secret if the sandbox should show it");
    let turned = [("/al/out/a", "/al")];
    let exchanged = host
        .clone()
        .behind("/al/out/a/in", PathKind::Directory, &turned);
    insta::assert_snapshot!(refusal(both, &exchanged), @"/srv/tenant.toml:1: /al/out/a/in leads to /al/in through a symbolic link in a directory where `filesystem.write` lets guests create links: name /al/in if the sandbox should show it");
    super::planned(both, &host.with_directory("/al/out/a/in"));
    // A writable path that is a link to its own parent directory.
    let within = [("/srv/out/up", "/srv")];
    let itself = super::hosts::host(machine()).behind("/srv/out/up", PathKind::Directory, &within);
    insta::assert_snapshot!(refusal("filesystem.write = [\"/srv/out/up\"]", &itself), @"/srv/tenant.toml:1: /srv/out/up leads to /srv through a symbolic link in a directory where `filesystem.write` lets guests create links: name /srv if the sandbox should show it");
}

#[test]
fn read_only_path_in_a_linked_writable_tree_is_rejected() {
    let host = host(machine())
        .with_path("/data", PathKind::Directory, "/srv/data")
        .with_directory("/srv/data/lib");
    let toml = "filesystem.write = [\"/data\"]\npython.path = [\"/srv/data/lib\"]";
    insta::assert_snapshot!(refusal(toml, &host), @"/srv/tenant.toml:2: /srv/data/lib is to be read-only, but is in /srv/data, which `filesystem.write` makes writable: remove one of the two");
}

#[test]
fn writable_parent_of_code_without_mounts_is_rejected() {
    let mut host = host(Machine {
        user: USER,
        namespaces: no_user_namespaces(),
        ..machine()
    })
    .with_directory("/srv");
    host.interpreter = virtual_environment();
    let toml = "assurance.require = \"landlock\"\nfilesystem.write = [\"/srv\"]";
    insta::assert_snapshot!(refusal(toml, &host), @"/srv/tenant.toml:2: /srv/venv contains code to run, so it cannot be writable: name a data directory in `filesystem.write`");
}

#[test]
fn interpreter_in_a_sandbox_directory_is_rejected() {
    let mut host = host(machine());
    host.interpreter.venv = Some("/tmp".into());
    insta::assert_snapshot!(refusal("", &host), @"the interpreter: /tmp cannot be shown, because the sandbox has its own /tmp: name another path, or copy what is needed to one");
    host.interpreter.venv = None;
    host.interpreter.programs = vec!["/dev/shm/python/bin".into()];
    insta::assert_snapshot!(refusal("", &host), @"the interpreter: /dev/shm/python/bin cannot be shown, because the sandbox has its own /dev: name another path, or copy what is needed to one");
}

#[test]
fn interpreter_in_roots_home_without_mounts_is_rejected() {
    let mut host = host(Machine {
        namespaces: no_user_namespaces(),
        ..machine()
    });
    host.interpreter = virtual_environment();
    insta::assert_snapshot!(refusal("assurance.require = \"landlock\"", &host), @"the interpreter /root/.pyenv/versions/3.12.1/bin/python3.12 cannot be reached by the unprivileged user that the guest runs as at level `landlock`: install one where every user can run it, such as /usr/bin/python3");
}

#[test]
fn shown_tree_that_hides_the_interpreter_is_rejected() {
    let mut host = host(machine()).with_directory("/root");
    host.interpreter = virtual_environment();
    let toml = "[filesystem]\nread = [\"/root\"]";
    insta::assert_snapshot!(refusal(toml, &host), @"/srv/tenant.toml:2: /root contains the interpreter behind /root, which the unprivileged user that the guest runs as cannot enter: name only the paths in /root that the guest needs");
}

#[test]
fn unchangeable_system_calls_are_rejected() {
    let host = host(machine());
    insta::assert_snapshot!(refusal("[syscalls]\nallow = [\"openat9\"]", &host), @"/srv/tenant.toml:2: `openat9` is not a system call: names are those of syscalls(2), without `sys_`");
    insta::assert_snapshot!(refusal("[syscalls]\ndeny = [\n\"read\"]", &host), @"/srv/tenant.toml:3: `read` cannot be denied, because the interpreter needs it: remove it from `deny`");
    insta::assert_snapshot!(refusal("[syscalls]\nallow = [\"mount\"]", &host), @"/srv/tenant.toml:2: `mount` cannot be allowed (changes or lists mounts): remove it from `allow`");
}
