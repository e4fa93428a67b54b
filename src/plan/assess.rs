//! What each layer can be on a host, whatever the policy.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::layer::{Layer, LayerState};
use super::remedy;
use crate::host::{
    CgroupSupport, ChainStep, Controller, Host, LandlockSupport, NamespaceSupport, Refusal,
    SeccompSupport,
};
use crate::policy::Level;

/// The ABI from which Landlock keeps signals and abstract unix sockets inside. Where there are no
/// namespaces nothing else does, so level `landlock` needs it.
pub(super) const LANDLOCK_SCOPES: u32 = 6;

/// A layer on this host.
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
pub fn assess(host: &Host) -> Vec<Assessment> {
    Layer::ALL
        .into_iter()
        .map(|layer| assess_layer(host, layer))
        .collect()
}

fn assess_layer(host: &Host, layer: Layer) -> Assessment {
    match layer {
        Layer::Namespaces => namespaces(host, layer, "every step of the jail's chain succeeds"),
        Layer::Mounts => namespaces(host, layer, "a root of its own can be built and entered"),
        Layer::Landlock => landlock(host),
        Layer::Seccomp => seccomp(host),
        Layer::Capabilities => {
            Assessment::enforced(layer, "every set is emptied, and the bounding set")
        }
        Layer::Rlimits => rlimits(host),
        Layer::Cgroup => cgroup(host),
    }
}

fn namespaces(host: &Host, layer: Layer, fine: &str) -> Assessment {
    match &host.namespaces {
        NamespaceSupport::Available => Assessment::enforced(layer, fine),
        NamespaceSupport::Refused(refusal) => {
            let why = format!("could not {}: {}", refusal.step, refusal.errno);
            Assessment::absent(layer, why, remedy::namespaces(host.user, refusal))
        }
    }
}

fn landlock(host: &Host) -> Assessment {
    let layer = Layer::Landlock;
    match host.landlock {
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
            let why = format!("kernel {} answers no Landlock call", host.kernel);
            Assessment::absent(layer, why, remedy::LANDLOCK_NOT_BUILT.to_owned())
        }
    }
}

/// What an ABI below 6 leaves to the other layers.
fn missing_in_landlock(abi: u32) -> &'static str {
    match abi {
        ..2 => {
            "files do not move between directories; truncation, devices, tcp and signals are \
                held by mounts, namespaces and seccomp alone"
        }
        2 => {
            "truncation, devices, tcp and signals are held by mounts, namespaces and seccomp alone"
        }
        3 => "devices, tcp and signals are held by mounts, namespaces and seccomp alone",
        4 => "devices and signals are held by mounts, namespaces and seccomp alone",
        _ => "signals and abstract sockets are held by namespaces alone",
    }
}

fn seccomp(host: &Host) -> Assessment {
    let layer = Layer::Seccomp;
    match (host.seccomp, host.arch) {
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
            format!("kernel {} has no seccomp filters", host.kernel),
            "run a kernel built with CONFIG_SECCOMP_FILTER=y".to_owned(),
        ),
    }
}

fn rlimits(host: &Host) -> Assessment {
    match &host.namespaces {
        NamespaceSupport::Available => {
            Assessment::enforced(Layer::Rlimits, "each worker has counts of its own")
        }
        NamespaceSupport::Refused(refusal) => Assessment::degraded(
            Layer::Rlimits,
            "without a user namespace the number of processes counts all of a user's".to_owned(),
            remedy::namespaces(host.user, refusal),
        ),
    }
}

fn cgroup(host: &Host) -> Assessment {
    let layer = Layer::Cgroup;
    let missing: Vec<&str> = missing_controllers(&host.cgroup)
        .map(Controller::name)
        .collect();
    match &host.cgroup {
        CgroupSupport::Nowhere { reason } => {
            let (why, mend) = remedy::cgroup_absence(host.user, reason);
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
pub(super) fn best_level(host: &Host) -> Option<Level> {
    [Level::Full, Level::Standard, Level::Landlock]
        .into_iter()
        .find(|level| obstacles(host, *level).is_empty())
}

/// What stands between the host and a level.
pub(super) fn obstacles(host: &Host, level: Level) -> Vec<Obstacle> {
    let mut found: Vec<Obstacle> = assess(host)
        .iter()
        .filter(|layer| hinders(layer, level))
        .filter_map(Assessment::obstacle)
        .collect();
    if level == Level::Landlock {
        found.extend(without_namespaces(host));
    }
    found
}

fn hinders(assessed: &Assessment, level: Level) -> bool {
    match assessed.layer {
        Layer::Namespaces => level >= Level::Standard && assessed.state == LayerState::Absent,
        Layer::Landlock | Layer::Seccomp => assessed.state == LayerState::Absent,
        Layer::Cgroup => level == Level::Full && assessed.state != LayerState::Enforced,
        // Mounts fail for the reason that namespaces fail for, which is said once; the others
        // never fail.
        Layer::Mounts | Layer::Capabilities | Layer::Rlimits => false,
    }
}

/// What level `landlock` needs because nothing stands behind it.
fn without_namespaces(host: &Host) -> Option<Obstacle> {
    if let NamespaceSupport::Refused(Refusal { step, errno, .. }) = &host.namespaces
        && matches!(
            step,
            ChainStep::DropGroups | ChainStep::DropGid | ChainStep::DropUid
        )
    {
        return Some(Obstacle {
            layer: Layer::Capabilities,
            cause: format!("could not {step}: {errno}"),
            remedy: "run as an ordinary user, or as root with CAP_SETUID and CAP_SETGID".to_owned(),
        });
    }
    let abi = host.landlock.abi().filter(|abi| *abi < LANDLOCK_SCOPES)?;
    Some(Obstacle {
        layer: Layer::Landlock,
        cause: format!(
            "ABI {abi} does not hold signals and abstract unix sockets, which without namespaces \
             nothing else would"
        ),
        remedy: "run Linux 6.12 or later, or allow user namespaces".to_owned(),
    })
}
