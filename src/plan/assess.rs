//! What each layer can be on a host, independent of the policy.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Serialize, Serializer};

use super::layer_state::LayerState;
use super::remedy;
use crate::host::{
    CgroupSupport, Controller, LandlockSupport, Machine, NamespaceSupport, SeccompSupport,
};
use crate::outcome::Layer;

/// The ABI from which Landlock scopes signals and abstract unix sockets: the last ABI that adds a
/// wall.
pub(super) const LANDLOCK_SCOPES: u32 = 6;

/// A layer on this machine.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Assessment {
    /// The layer.
    pub layer: Layer,
    /// How far it can hold.
    pub state: LayerState,
    /// The reason for the state.
    pub why: String,
    /// The remedy, unless the layer holds.
    pub remedy: Option<Remedy>,
}

/// What makes a layer hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Remedy {
    /// An instruction to the user.
    Do(String),
    /// The remedy of the namespaces, which this layer needs.
    AsForNamespaces,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Do(instruction) => instruction,
            Self::AsForNamespaces => "as for `namespaces`",
        })
    }
}

impl Serialize for Remedy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Assessment {
    fn enforced(layer: Layer, why: impl Into<String>) -> Self {
        Self {
            layer,
            state: LayerState::Enforced,
            why: why.into(),
            remedy: None,
        }
    }

    fn degraded(layer: Layer, why: String, remedy: String) -> Self {
        Self {
            layer,
            state: LayerState::Degraded,
            why,
            remedy: Some(Remedy::Do(remedy)),
        }
    }

    fn absent(layer: Layer, why: String, remedy: String) -> Self {
        Self {
            layer,
            state: LayerState::Absent,
            why,
            remedy: Some(Remedy::Do(remedy)),
        }
    }
}

/// Every layer, in the order of [`Layer::ALL`].
pub fn assess(machine: &Machine) -> Vec<Assessment> {
    Layer::ALL
        .into_iter()
        .map(|layer| assess_layer(machine, layer))
        .collect()
}

fn assess_layer(machine: &Machine, layer: Layer) -> Assessment {
    match layer {
        Layer::Namespaces => namespaces(machine),
        Layer::Mounts => mounts(machine),
        Layer::Landlock => landlock(machine),
        Layer::Seccomp => seccomp(machine),
        Layer::Capabilities => {
            Assessment::enforced(layer, "every set is emptied, and the bounding set")
        }
        Layer::Rlimits => rlimits(machine),
        Layer::Cgroup => cgroup(machine),
    }
}

fn namespaces(machine: &Machine) -> Assessment {
    let layer = Layer::Namespaces;
    match &machine.namespaces {
        NamespaceSupport::Refused(refusal) if !refusal.step.is_of_mounts() => {
            let why = format!("could not {}: {}", refusal.step, refusal.errno);
            Assessment::absent(layer, why, remedy::namespaces(machine.user, refusal))
        }
        _ => Assessment::enforced(layer, "all of them can be made and entered"),
    }
}

fn mounts(machine: &Machine) -> Assessment {
    let layer = Layer::Mounts;
    match &machine.namespaces {
        NamespaceSupport::Available => {
            Assessment::enforced(layer, "a root of its own can be built and entered")
        }
        NamespaceSupport::Refused(refusal) if refusal.step.is_of_mounts() => {
            let why = format!("could not {}: {}", refusal.step, refusal.errno);
            Assessment::absent(layer, why, remedy::namespaces(machine.user, refusal))
        }
        NamespaceSupport::Refused(_) => {
            let why = "without namespaces nothing can be mounted".to_owned();
            Assessment {
                layer,
                state: LayerState::Absent,
                why,
                remedy: Some(Remedy::AsForNamespaces),
            }
        }
    }
}

fn landlock(machine: &Machine) -> Assessment {
    let layer = Layer::Landlock;
    match machine.landlock {
        LandlockSupport::Abi { abi } if abi >= LANDLOCK_SCOPES => {
            Assessment::enforced(layer, format!("ABI {abi}"))
        }
        LandlockSupport::Abi { abi } => {
            let why = format!(
                "ABI {abi} of {LANDLOCK_SCOPES}: {}",
                missing_in_landlock(abi)
            );
            Assessment::degraded(layer, why, "run Linux 6.12 or later".to_owned())
        }
        LandlockSupport::NotEnabled => {
            let why = "Landlock is in this kernel but not among the modules chosen at boot";
            Assessment::absent(
                layer,
                why.to_owned(),
                remedy::LANDLOCK_NOT_ENABLED.to_owned(),
            )
        }
        LandlockSupport::NotBuilt => {
            let why = format!("kernel {} answers no Landlock call", machine.kernel);
            Assessment::absent(layer, why, remedy::LANDLOCK_NOT_BUILT.to_owned())
        }
    }
}

/// What Landlock with an ABI below 6 leaves to the other layers.
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

fn seccomp(machine: &Machine) -> Assessment {
    let layer = Layer::Seccomp;
    match (machine.seccomp, machine.arch) {
        (SeccompSupport::Available, Some(_)) => {
            Assessment::enforced(layer, "filters can be loaded and may kill")
        }
        (SeccompSupport::Available, None) => Assessment::absent(
            layer,
            "Sandfork has no system call table for this processor".to_owned(),
            "run on x86_64 or aarch64".to_owned(),
        ),
        (SeccompSupport::Missing, _) => Assessment::absent(
            layer,
            format!("kernel {} has no seccomp filters", machine.kernel),
            "run a kernel built with CONFIG_SECCOMP_FILTER=y".to_owned(),
        ),
    }
}

fn rlimits(machine: &Machine) -> Assessment {
    let layer = Layer::Rlimits;
    match &machine.namespaces {
        NamespaceSupport::Available => {
            Assessment::enforced(layer, "each worker has its own counts")
        }
        NamespaceSupport::Refused(_) => Assessment::degraded(
            layer,
            "without a user namespace a limit on processes would count all of the user's"
                .to_owned(),
            "as for `namespaces` and `mounts`".to_owned(),
        ),
    }
}

fn cgroup(machine: &Machine) -> Assessment {
    let layer = Layer::Cgroup;
    let missing: Vec<&str> = missing_controllers(&machine.cgroup)
        .map(Controller::name)
        .collect();
    match &machine.cgroup {
        CgroupSupport::Nowhere { reason } => {
            let (why, mend) = remedy::cgroup_absence(machine.user, reason);
            Assessment::absent(layer, why, mend)
        }
        support if missing.is_empty() => Assessment::enforced(layer, describe_cgroup(support)),
        support => {
            let why = format!(
                "{}, but not for {}",
                describe_cgroup(support),
                missing.join(", ")
            );
            Assessment::degraded(layer, why, remedy::controllers(support, &missing.join(" ")))
        }
    }
}

/// The limiting controllers that are not available.
pub(super) fn missing_controllers(cgroup: &CgroupSupport) -> impl Iterator<Item = Controller> {
    let there: BTreeSet<Controller> = match cgroup {
        CgroupSupport::V1 { controllers } => controllers.keys().copied().collect(),
        CgroupSupport::V2 { controllers, .. } => controllers.clone(),
        CgroupSupport::Nowhere { .. } => BTreeSet::new(),
    };
    Controller::LIMITING
        .into_iter()
        .filter(move |controller| !there.contains(controller))
}

fn describe_cgroup(cgroup: &CgroupSupport) -> String {
    match cgroup {
        CgroupSupport::V1 { .. } => "version 1, cgroups can be made".to_owned(),
        CgroupSupport::V2 { dir, .. } => {
            format!("version 2, cgroups can be made in {}", dir.display())
        }
        CgroupSupport::Nowhere { .. } => "no cgroups".to_owned(),
    }
}
