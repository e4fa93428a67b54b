//! Tests the level of each host, and the differences between levels.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::hosts::{
    KERNELS, ROOT, USER, cgroup_v1, cgroup_v2, host, machine, no_cgroup, no_user_namespaces,
    refused, with_kernel,
};
use super::{plan, planned, policy, refusal};
use crate::error::{Error, ErrorKind};
use crate::host::{
    ChainStep, Controller, DEVICES, LandlockSupport, Machine, RefusalCause, SeccompSupport,
};
use crate::plan::{HeldBy, Layer, LayerState, diagnose};
use crate::policy::Level;
use sandfork_jail::program::{RlimitResource, RootEntry};

/// Summarizes in one line the parts of a plan that depend only on the machine.
fn summary(machine: Machine) -> String {
    let host = host(machine);
    let plan = match plan(&policy(r#"assurance.require = "landlock""#), &host) {
        Ok(plan) => plan,
        Err(error) => return error.to_string(),
    };
    let uids = plan
        .jail
        .namespaces
        .map(|namespaces| namespaces.worker_uids);
    format!(
        "{:<9} uids {:<12} inside {:<11} dropped {:<5} abi {} memory by {:<9} pinned {:<7} degraded {}",
        plan.level.to_string(),
        uids.map_or("none", |uids| uids.map_or("one", |_| "each its own")),
        plan.jail.identity.inside.uid,
        plan.jail.identity.drop_to.is_some(),
        plan.jail.landlock.map_or(0, |rules| rules.abi),
        format!("{:?}", plan.supervision.held_by),
        format!("{:?}", plan.jail.worker.pin_to_cores),
        plan.layers
            .iter()
            .filter(|layer| layer.state == LayerState::Degraded)
            .map(|layer| layer.layer.as_str())
            .collect::<Vec<_>>()
            .join(" "),
    )
}

#[test]
fn every_kind_of_host() {
    let cgroups = [
        ("v1", cgroup_v1()),
        ("v2", cgroup_v2(&Controller::LIMITING)),
        (
            "v2 without cpu",
            cgroup_v2(&[Controller::Memory, Controller::Pids]),
        ),
        ("none", no_cgroup()),
    ];
    let namespaces = [
        ("namespaces", crate::host::NamespaceSupport::Available),
        ("no namespaces", no_user_namespaces()),
    ];
    let mut table = String::new();
    for kernel in KERNELS {
        for (name, user) in [("root", ROOT), ("user", USER)] {
            for (cgroup_name, cgroup) in &cgroups {
                for (namespaces_name, namespaces) in &namespaces {
                    let machine = Machine {
                        user,
                        cgroup: cgroup.clone(),
                        namespaces: namespaces.clone(),
                        ..with_kernel(kernel, machine())
                    };
                    writeln!(
                        table,
                        "{:<14} {name} {cgroup_name:<14} {namespaces_name:<13} | {}",
                        kernel.0,
                        summary(machine)
                    )
                    .unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn work_exec_without_mounts_is_rejected() {
    let host = host(Machine {
        namespaces: no_user_namespaces(),
        ..machine()
    });
    let text = "assurance.require = \"landlock\"\nfilesystem.work_exec = true";
    insta::assert_snapshot!(refusal(text, &host), @"/srv/tenant.toml:2: `filesystem.work_exec` is not available at level `landlock`, where the work directory is a directory of the host: set it to false, or run on a host with level `standard`");
}

#[test]
fn full_level_requires_every_controller() {
    let two = cgroup_v2(&[Controller::Memory, Controller::Pids]);
    let host = host(Machine {
        cgroup: two,
        ..machine()
    });
    let plan = planned("", &host);
    assert_eq!(plan.level, Level::Standard);
    // The plan still uses the controllers that are available.
    assert_eq!(plan.supervision.held_by, HeldBy::Cgroup);
    assert_eq!(plan.jail.worker.pin_to_cores, Some(1));
    insta::assert_snapshot!(
        refusal("assurance.require = \"full\"", &host),
        @"/srv/tenant.toml:1 requires level `full`, which this host cannot provide: layer `cgroup` cannot be enforced: version 2, cgroups can be created in /sys/fs/cgroup/user.slice/run-1.scope, but not for cpu; delegate them: add `cpu` to the controllers of `Delegate=` in the unit user@.service (`sudo systemctl edit user@.service`) and log in again; or accept the weaker level `standard` (`--set assurance.require=standard`)"
    );
}

#[test]
fn cgroup_enforces_limits_of_its_controllers() {
    let held = |controllers: &[Controller]| -> Vec<String> {
        let cgroup = cgroup_v2(controllers);
        let host = host(Machine {
            cgroup,
            ..machine()
        });
        let explained = crate::plan::explain(&planned("", &host));
        let lines = explained.lines().filter_map(|line| {
            let (label, holder) = line.trim().split_once(' ')?;
            let is_held = ["memory", "processes"].contains(&label);
            is_held.then(|| holder.rsplit(", ").next().unwrap_or_default().to_owned())
        });
        lines.collect()
    };
    let by_cgroup = "held by the cgroup";
    let [watched, by_rlimit] = ["watched by the supervisor", "held by a resource limit"];
    assert_eq!(held(&[Controller::Pids]), [watched, by_cgroup]);
    assert_eq!(held(&[Controller::Memory]), [by_cgroup, by_rlimit]);
}

/// Returns a machine with this hard limit on open files.
fn with_open_files(open_files: u64) -> Machine {
    let mut machine = machine();
    machine.limits.hard.open_files = open_files;
    machine
}

#[test]
fn hard_limit_below_the_data_socket_is_rejected() {
    let few = host(with_open_files(1023));
    let text = "assurance.require = \"standard\"\nlimits.open_files = 4096";
    insta::assert_snapshot!(refusal(text, &few), @"/srv/tenant.toml:1 requires level `standard`, which this host cannot provide: layer `rlimits` cannot be enforced: the hard limit on open files is 1023, but a worker needs descriptor 1023 for its data socket; raise it to 1024 or more (`ulimit -Hn`, `LimitNOFILE=` of a unit, or `docker run --ulimit nofile=1024`)");
    assert_eq!(diagnose(&few.machine, Ok(&few.interpreter)).level, None);
    let enough = host(with_open_files(1024));
    assert_eq!(planned("", &enough).level, Level::Full);
}

#[test]
fn seccomp_filter_on_the_supervisor_is_named() {
    let machine = Machine {
        landlock: LandlockSupport::Filtered,
        seccomp: SeccompSupport::Filtered,
        namespaces: refused(ChainStep::PrivateMounts, 1, RefusalCause::Filter),
        ..machine()
    };
    let error = refusal("assurance.require = \"landlock\"", &host(machine)).to_string();
    for refused in ["refuses Landlock's calls", "refuses seccomp(2)"] {
        assert!(
            error.contains(refused) && error.contains("add `@sandbox`"),
            "{error}"
        );
    }
}

#[test]
fn missing_landlock_or_seccomp_is_rejected() {
    for landlock in [
        LandlockSupport::NotEnabled,
        LandlockSupport::Filtered,
        LandlockSupport::NotBuilt,
    ] {
        let machine = Machine {
            landlock,
            ..machine()
        };
        assert_eq!(diagnose(&machine, Err(&no_interpreter())).level, None);
        let error = refusal("assurance.require = \"landlock\"", &host(machine)).to_string();
        assert!(
            error.contains("layer `landlock` cannot be enforced"),
            "{error}"
        );
    }
    let machine = Machine {
        arch: None,
        ..machine()
    };
    let error = refusal("assurance.require = \"landlock\"", &host(machine)).to_string();
    assert!(
        error.contains("no system call table for this processor; run on x86_64"),
        "{error}"
    );
}

fn no_interpreter() -> Error {
    Error::new(ErrorKind::Interpreter, "there is no `python3` on PATH")
}

#[test]
fn root_that_cannot_drop_its_ids_is_rejected() {
    let namespaces = refused(ChainStep::DropGroups, 1, RefusalCause::Container);
    let host = host(Machine {
        namespaces,
        ..machine()
    });
    insta::assert_snapshot!(
        refusal("assurance.require = \"landlock\"", &host),
        @"/srv/tenant.toml:1 requires level `landlock`, which this host cannot provide: layer `capabilities` cannot be enforced: could not give up root's groups (setgroups): EPERM (operation not permitted); run as an ordinary user, or as root with CAP_SETUID and CAP_SETGID"
    );
}

#[test]
fn missing_root_capabilities_are_named() {
    let without = |cause| {
        host(Machine {
            namespaces: refused(ChainStep::OpenTree, 1, cause),
            ..machine()
        })
    };
    let bare = without(RefusalCause::RootWithoutCapabilities);
    insta::assert_snapshot!(
        refusal("assurance.require = \"landlock\"", &bare),
        @"/srv/tenant.toml:1 requires level `landlock`, which this host cannot provide: layer `capabilities` cannot be enforced: root lacks the capabilities to drop its ids and its other capabilities; run as an ordinary user, or as root with CAP_SETUID, CAP_SETGID and CAP_SETPCAP"
    );
    let of_container = without(RefusalCause::RootWithoutSysAdmin);
    insta::assert_snapshot!(
        refusal("assurance.require = \"standard\"", &of_container),
        @"/srv/tenant.toml:1 requires level `standard`, which this host cannot provide: layer `mounts` cannot be enforced: could not copy a mount of the host (open_tree): EPERM (operation not permitted); run as an ordinary user, or as root with CAP_SYS_ADMIN (in a container: `docker run --user 1000`, or `--cap-add SYS_ADMIN`); or accept the weaker level `landlock` (`--set assurance.require=landlock`)"
    );
}

#[test]
fn missing_device_is_named() {
    let shown = planned("", &host(machine())).jail.root;
    let shown = shown.into_iter().filter_map(|entry| match entry {
        RootEntry::Device { name } => Some(format!("/dev/{name}")),
        _ => None,
    });
    let shown: BTreeSet<String> = shown.collect();
    assert_eq!(shown, DEVICES.map(|it| it.path.to_owned()).into());
    let refusal_of = |device| refused(ChainStep::OpenTree, 2, RefusalCause::NoDevice(device));
    let without = host(Machine {
        namespaces: refusal_of(DEVICES[1]),
        ..machine()
    });
    insta::assert_snapshot!(
        refusal("assurance.require = \"standard\"", &without),
        @"/srv/tenant.toml:1 requires level `standard`, which this host cannot provide: layer `mounts` cannot be enforced: could not copy a mount of the host (open_tree): ENOENT (no such file or directory); make /dev/zero, which sandboxes show: `sudo mknod -m 666 /dev/zero c 1 5`"
    );
    assert_eq!(
        diagnose(&without.machine, Ok(&without.interpreter)).level,
        None
    );
    // Only a sandbox with mounts has pseudoterminals.
    let machine = Machine {
        namespaces: refusal_of(DEVICES[5]),
        ..machine()
    };
    assert_eq!(DEVICES[5].path, "/dev/tty");
    assert_eq!(
        diagnose(&machine, Ok(&without.interpreter)).level,
        Some(Level::Landlock)
    );
}

#[test]
fn other_processes_of_the_user_do_not_count() {
    let limited = |user, namespaces| {
        let machine = Machine {
            user,
            namespaces,
            cgroup: no_cgroup(),
            ..machine()
        };
        let plan = planned("assurance.require = \"landlock\"", &host(machine));
        let worker = plan.jail.worker;
        let own = worker
            .rlimits
            .iter()
            .find(|limit| limit.resource == RlimitResource::Processes)
            .map(|limit| limit.value);
        (own, worker.process_headroom)
    };
    for user in [ROOT, USER] {
        let available = crate::host::NamespaceSupport::Available;
        assert_eq!(limited(user, available), (Some(64), None));
        let (own, ceiling) = limited(user, no_user_namespaces());
        assert_eq!(own, None);
        assert!(ceiling.is_some_and(|headroom| headroom > 1000));
    }
}

#[test]
fn process_rlimit_is_capped_at_the_hosts_limit() {
    let behind_cgroup = |pids| {
        let mut machine = machine();
        machine.limits.pids = pids;
        let rlimits = planned("", &host(machine)).jail.worker.rlimits;
        let found = rlimits
            .into_iter()
            .find(|limit| limit.resource == RlimitResource::Processes);
        found.map(|limit| limit.value)
    };
    assert_eq!(behind_cgroup(32_768), Some(128));
    assert_eq!(behind_cgroup(100), Some(100));
}

#[test]
fn layers_are_listed_once_and_in_order() {
    let plan = planned("", &host(machine()));
    let layers: Vec<Layer> = plan.layers.iter().map(|layer| layer.layer).collect();
    assert_eq!(layers, Layer::ALL);
    assert!(
        plan.layers
            .iter()
            .all(|layer| layer.state == LayerState::Enforced)
    );
}

#[test]
fn thread_count_variables_follow_the_cores() {
    let count = |toml: &str, name: &str| {
        let env = planned(toml, &host(machine())).jail.env;
        let found = env.into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    };
    let cores = "[limits]\ncores = 1.5";
    for name in ["OMP_NUM_THREADS", "POLARS_MAX_THREADS"] {
        assert_eq!(count(cores, name).as_deref(), Some("2"));
    }
    let chosen = "[env]\nset = { OMP_NUM_THREADS = \"7\" }";
    assert_eq!(count(chosen, "OMP_NUM_THREADS").as_deref(), Some("7"));
}
