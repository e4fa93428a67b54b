//! Compares whole plans with snapshots, as data and as text.

use super::hosts::{
    KERNELS, USER, cgroup_v2, host, machine, no_cgroup, no_user_namespaces, virtual_environment,
    with_kernel,
};
use super::{builtin, plan, planned};
use crate::error::{Error, ErrorKind};
use crate::host::{
    CgroupAbsence, CgroupSupport, ChainStep, Controller, Host, LandlockSupport, Machine,
    NamespaceSupport, RefusalCause,
};
use crate::plan::{DirectoryFound, Plan, Usability, diagnose, explain};

/// Returns a plan as JSON, with each filter replaced by its number of instructions.
fn as_data(plan: &Plan) -> serde_json::Value {
    let mut data = serde_json::to_value(plan).unwrap();
    for pointer in ["/jail/filters", "/jail/worker/filters"] {
        let filters = data.pointer_mut(pointer).unwrap().as_array_mut().unwrap();
        for filter in filters {
            let instructions = filter.as_array().unwrap().len();
            assert!(instructions > 0, "an empty filter is no filter");
            *filter = format!("{instructions} instructions").into();
        }
    }
    data
}

#[test]
fn standard_on_linux_6_18_as_root_with_cgroup_v1() {
    let plan = plan(&builtin("standard"), &host(machine())).unwrap();
    insta::assert_json_snapshot!(as_data(&plan));
}

#[test]
fn strict_on_linux_6_12_as_user_with_cgroup_v2() {
    let machine = Machine {
        user: USER,
        cgroup: cgroup_v2(&Controller::LIMITING),
        ..with_kernel(KERNELS[2], machine())
    };
    let plan = plan(&builtin("strict"), &host(machine)).unwrap();
    insta::assert_json_snapshot!(as_data(&plan));
}

#[test]
fn standard_on_linux_5_15_as_user_without_cgroups() {
    let machine = Machine {
        user: USER,
        cgroup: no_cgroup(),
        ..with_kernel(KERNELS[0], machine())
    };
    let plan = plan(&builtin("standard"), &host(machine)).unwrap();
    insta::assert_json_snapshot!(as_data(&plan));
}

#[test]
fn landlock_on_linux_6_1_without_user_namespaces() {
    let machine = Machine {
        user: USER,
        cgroup: no_cgroup(),
        namespaces: no_user_namespaces(),
        ..with_kernel(KERNELS[1], machine())
    };
    let plan = planned("assurance.require = \"landlock\"", &host(machine));
    insta::assert_json_snapshot!(as_data(&plan));
}

#[test]
fn explained() {
    let data_science = plan(&builtin("data-science"), &host(machine())).unwrap();
    insta::assert_snapshot!(
        "explain_data_science",
        explained_without_hash(&data_science)
    );

    let user = Machine {
        user: USER,
        cgroup: no_cgroup(),
        ..with_kernel(KERNELS[0], machine())
    };
    let venv = Host {
        interpreter: virtual_environment(),
        ..host(user)
    };
    let strict = plan(&builtin("strict"), &venv).unwrap();
    insta::assert_snapshot!("explain_strict", explained_without_hash(&strict));

    let user = Machine {
        user: USER,
        namespaces: no_user_namespaces(),
        ..machine()
    };
    let bare = planned("assurance.require = \"landlock\"", &host(user));
    insta::assert_snapshot!("explain_landlock", explained_without_hash(&bare));
}

/// Explains a plan without the policy's hash, which changes with every key. Other tests check the hash.
fn explained_without_hash(plan: &Plan) -> String {
    explain(plan).replace(&plan.policy.sha256, "sha256")
}

#[test]
fn diagnosed() {
    let fine = host(machine());
    insta::assert_snapshot!(
        "doctor_root",
        diagnose(&fine.machine, Ok(&fine.interpreter))
    );

    let missing = Error::new(
        ErrorKind::Interpreter,
        "there is no `python3` on PATH (/usr/bin:/bin): install CPython 3.9 or later, or set `python.interpreter` to the \
         path of one",
    );
    let debian = Machine {
        user: USER,
        cgroup: no_cgroup(),
        namespaces: no_user_namespaces(),
        ..with_kernel(KERNELS[1], machine())
    };
    insta::assert_snapshot!("doctor_debian_user", diagnose(&debian, Err(&missing)));

    let container = Machine {
        namespaces: super::hosts::refused(ChainStep::Unshare, 1, RefusalCause::Container),
        cgroup: CgroupSupport::Nowhere(CgroupAbsence::NotWritable("/sys/fs/cgroup".into())),
        ..machine()
    };
    let mut with_cache = diagnose(&container, Ok(&fine.interpreter));
    with_cache.cache = Some(Usability::Usable(DirectoryFound {
        directory: "/root/.cache/sandfork".into(),
    }));
    with_cache.environments = Some(Usability::Usable(DirectoryFound {
        directory: "/var/lib/sandfork/environments".into(),
    }));
    with_cache.snapshots = Some(Usability::of(Err(
        "the sandbox is of level `landlock`; a snapshot needs level `standard`",
    )));
    insta::assert_snapshot!("doctor_container", with_cache);

    let old = Machine {
        landlock: LandlockSupport::NotEnabled,
        namespaces: NamespaceSupport::Available,
        cgroup: CgroupSupport::Nowhere(CgroupAbsence::NotMounted),
        ..machine()
    };
    insta::assert_snapshot!("doctor_no_landlock", diagnose(&old, Ok(&fine.interpreter)));
}
