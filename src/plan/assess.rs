//! Assesses each layer on a host, independent of the policy.

use std::collections::BTreeSet;

use serde::Serialize;

use super::layer_state::LayerState;
use super::remedy;
use crate::host::{
    CgroupSupport, Controller, LandlockSupport, Machine, NamespaceSupport, Refusal, SeccompSupport,
};
use crate::outcome::Layer;
use sandfork_jail::DATA;

/// The ABI from which Landlock scopes signals and abstract Unix sockets. No later ABI adds protection that
/// matters here.
pub(super) const LANDLOCK_SCOPES: u32 = 6;

/// The assessment of a layer on a machine.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Assessment {
    /// The layer.
    pub layer: Layer,
    /// The state that the layer can reach.
    pub state: LayerState,
    /// The reason for the state.
    pub why: String,
    /// The remedy. `None` if the layer is enforced completely.
    pub remedy: Option<String>,
}

/// The state of a layer, the reason and the remedy.
type Finding = (LayerState, String, Option<String>);

fn enforced(why: impl Into<String>) -> Finding {
    (LayerState::Enforced, why.into(), None)
}

fn degraded(why: impl Into<String>, remedy: impl Into<String>) -> Finding {
    (LayerState::Degraded, why.into(), Some(remedy.into()))
}

fn absent(why: impl Into<String>, remedy: impl Into<String>) -> Finding {
    (LayerState::Absent, why.into(), Some(remedy.into()))
}

/// Assesses every layer, in the order of [`Layer::ALL`].
pub fn assess(machine: &Machine) -> Vec<Assessment> {
    let assessed = |layer| {
        let (state, why, remedy) = assess_layer(machine, layer);
        Assessment {
            layer,
            state,
            why,
            remedy,
        }
    };
    Layer::ALL.map(assessed).into()
}

fn assess_layer(machine: &Machine, layer: Layer) -> Finding {
    match layer {
        Layer::Namespaces => namespaces(machine),
        Layer::Mounts => mounts(machine),
        Layer::Landlock => landlock(machine),
        Layer::Seccomp => seccomp(machine),
        Layer::Capabilities => enforced("every set is emptied, and the bounding set"),
        Layer::Rlimits => rlimits(machine),
        Layer::Cgroup => cgroup(machine),
    }
}

fn refused(machine: &Machine, refusal: &Refusal) -> Finding {
    absent(
        format!("could not {}: {}", refusal.step, refusal.errno),
        remedy::namespaces(machine.user, refusal),
    )
}

fn namespaces(machine: &Machine) -> Finding {
    match &machine.namespaces {
        NamespaceSupport::Refused(refusal) if !refusal.step.is_of_mounts() => {
            refused(machine, refusal)
        }
        _ => enforced("all of them can be created and entered"),
    }
}

fn mounts(machine: &Machine) -> Finding {
    match &machine.namespaces {
        NamespaceSupport::Available => enforced("a private root can be built and entered"),
        NamespaceSupport::Refused(refusal) if refusal.step.is_of_mounts() => {
            refused(machine, refusal)
        }
        NamespaceSupport::Refused(_) => absent(
            "without namespaces nothing can be mounted",
            remedy::AS_FOR_NAMESPACES,
        ),
    }
}

fn landlock(machine: &Machine) -> Finding {
    match machine.landlock {
        LandlockSupport::Abi(abi) if abi >= LANDLOCK_SCOPES => enforced(format!("ABI {abi}")),
        LandlockSupport::Abi(abi) => {
            let missing = missing_in_landlock(abi);
            let why = format!("ABI {abi} of {LANDLOCK_SCOPES}: {missing}");
            degraded(why, "run Linux 6.12 or later")
        }
        LandlockSupport::NotEnabled => absent(
            "Landlock is in this kernel but not among the modules chosen at boot",
            remedy::LANDLOCK_NOT_ENABLED,
        ),
        LandlockSupport::Filtered => filtered("Landlock's calls"),
        LandlockSupport::NotBuilt => {
            let why = format!("kernel {} has no Landlock system calls", machine.kernel);
            absent(why, remedy::LANDLOCK_NOT_BUILT)
        }
    }
}

fn filtered(calls: &str) -> Finding {
    let why = format!("a seccomp filter on this process refuses {calls}");
    absent(why, remedy::FILTERED)
}

/// Describes what Landlock with an ABI below 6 leaves to the other layers.
fn missing_in_landlock(abi: u32) -> &'static str {
    match abi {
        ..2 => {
            "files cannot move between directories, and truncation, devices, tcp, signals and \
             abstract sockets are left to the other layers"
        }
        2 => "truncation, devices, tcp, signals and abstract sockets are left to the other layers",
        3 => "devices, tcp, signals and abstract sockets are left to the other layers",
        4 => "devices, signals and abstract sockets are left to the other layers",
        _ => "signals and abstract sockets are left to the other layers",
    }
}

fn seccomp(machine: &Machine) -> Finding {
    match (machine.seccomp, machine.arch) {
        (SeccompSupport::Available, Some(_)) => enforced("filters can be loaded and may kill"),
        (SeccompSupport::Available, None) => absent(
            "Sandfork has no system call table for this processor",
            "run on x86_64 or aarch64",
        ),
        (SeccompSupport::Filtered, _) => filtered("seccomp(2)"),
        (SeccompSupport::Missing, _) => absent(
            format!("kernel {} has no seccomp filters", machine.kernel),
            "run a kernel built with CONFIG_SECCOMP_FILTER=y",
        ),
    }
}

fn rlimits(machine: &Machine) -> Finding {
    let open_files = machine.limits.hard.open_files;
    // Descriptor numbers must be below the limit.
    if open_files <= u64::from(DATA.unsigned_abs()) {
        return absent(
            format!(
                "the hard limit on open files is {open_files}, but a worker needs descriptor {DATA} for its data socket"
            ),
            remedy::open_files(),
        );
    }
    match &machine.namespaces {
        NamespaceSupport::Available => enforced("each worker has its own counts"),
        NamespaceSupport::Refused(_) => degraded(
            "without a user namespace a limit on processes would count all of the user's",
            "as for `namespaces` and `mounts`",
        ),
    }
}

fn cgroup(machine: &Machine) -> Finding {
    let missing: Vec<&str> = missing_controllers(&machine.cgroup)
        .map(Controller::name)
        .collect();
    match &machine.cgroup {
        CgroupSupport::Nowhere(reason) => {
            let (why, remedy) = remedy::cgroup_absence(machine.user, reason);
            absent(why, remedy)
        }
        support if missing.is_empty() => enforced(describe_cgroup(support)),
        support => {
            let (described, names) = (describe_cgroup(support), missing.join(", "));
            degraded(
                format!("{described}, but not for {names}"),
                remedy::controllers(support, &missing.join(" ")),
            )
        }
    }
}

/// Returns the limiting controllers that are not available.
pub(super) fn missing_controllers(cgroup: &CgroupSupport) -> impl Iterator<Item = Controller> {
    let available: BTreeSet<Controller> = match cgroup {
        CgroupSupport::V1(controllers) => controllers.keys().copied().collect(),
        CgroupSupport::V2 { controllers, .. } => controllers.clone(),
        CgroupSupport::Nowhere(_) => BTreeSet::new(),
    };
    Controller::LIMITING
        .into_iter()
        .filter(move |controller| !available.contains(controller))
}

fn describe_cgroup(cgroup: &CgroupSupport) -> String {
    match cgroup {
        CgroupSupport::V1(_) => "version 1, cgroups can be created".to_owned(),
        CgroupSupport::V2 { dir, .. } => {
            format!("version 2, cgroups can be created in {}", dir.display())
        }
        CgroupSupport::Nowhere(_) => "no cgroups".to_owned(),
    }
}
