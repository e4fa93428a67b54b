//! What each layer can be on a host, whatever the policy.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::layer::{Layer, LayerState};
use super::remedy;
use crate::host::{
    CgroupSupport, ChainStep, Controller, LandlockSupport, Machine, NamespaceSupport, Refusal,
    SeccompSupport,
};
use crate::policy::Level;

/// The ABI from which Landlock keeps signals and abstract unix sockets inside: the last that adds
/// a wall.
pub(super) const LANDLOCK_SCOPES: u32 = 6;

/// A layer on this machine.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Assessment {
    /// Which.
    pub layer: Layer,
    /// How far it can hold.
    pub state: LayerState,
    /// Why.
    pub why: String,
    /// What mends it; `None` where there is nothing to mend.
    pub remedy: Option<String>,
}

/// A layer that does not hold, as part of an error.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Obstacle {
    /// Which.
    pub layer: Layer,
    /// Why it does not.
    pub cause: String,
    /// What mends it.
    pub remedy: String,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "layer `{}` cannot be enforced: {}; {}",
            self.layer, self.cause, self.remedy
        )
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
            remedy: Some(remedy),
        }
    }

    fn absent(layer: Layer, why: String, remedy: String) -> Self {
        Self {
            layer,
            state: LayerState::Absent,
            why,
            remedy: Some(remedy),
        }
    }

    /// The layer as an obstacle, unless it holds whole.
    fn obstacle(&self) -> Option<Obstacle> {
        let remedy = self.remedy.clone()?;
        Some(Obstacle {
            layer: self.layer,
            cause: self.why.clone(),
            remedy,
        })
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

/// The layers that need namespaces say so with one remedy, which stands at the namespaces.
const AS_NAMESPACES: &str = "as for `namespaces`";

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
            Assessment::absent(layer, why, AS_NAMESPACES.to_owned())
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

/// What an ABI below 6 leaves to the other layers.
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

/// The controllers that limit something and cannot be had.
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

/// The best level that the host can give.
pub(super) fn best_level(machine: &Machine) -> Option<Level> {
    [Level::Full, Level::Standard, Level::Landlock]
        .into_iter()
        .find(|level| obstacles(machine, *level).is_empty())
}

/// What stands between the host and a level.
pub(super) fn obstacles(machine: &Machine, level: Level) -> Vec<Obstacle> {
    let mut found: Vec<Obstacle> = assess(machine)
        .iter()
        .filter(|layer| hinders(layer, level))
        .filter_map(Assessment::obstacle)
        .collect();
    if level == Level::Landlock {
        found.extend(without_namespaces(machine));
    }
    found
}

fn hinders(assessed: &Assessment, level: Level) -> bool {
    match assessed.layer {
        Layer::Namespaces => level >= Level::Standard && assessed.state == LayerState::Absent,
        Layer::Mounts => {
            // What follows from the namespaces is said there.
            let of_its_own = assessed.remedy.as_deref() != Some(AS_NAMESPACES);
            level >= Level::Standard && assessed.state == LayerState::Absent && of_its_own
        }
        Layer::Landlock | Layer::Seccomp => assessed.state == LayerState::Absent,
        Layer::Cgroup => level == Level::Full && assessed.state != LayerState::Enforced,
        Layer::Capabilities | Layer::Rlimits => false,
    }
}

/// What level `landlock` needs because no user namespace takes root's privileges from the guest.
fn without_namespaces(machine: &Machine) -> Option<Obstacle> {
    let NamespaceSupport::Refused(Refusal { step, errno, .. }) = &machine.namespaces else {
        return None;
    };
    let root_stays = [
        ChainStep::DropGroups,
        ChainStep::DropGid,
        ChainStep::DropUid,
    ]
    .contains(step);
    root_stays.then(|| Obstacle {
        layer: Layer::Capabilities,
        cause: format!("could not {step}: {errno}"),
        remedy: "run as an ordinary user, or as root with CAP_SETUID and CAP_SETGID".to_owned(),
    })
}
