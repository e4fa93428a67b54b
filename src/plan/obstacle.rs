//! The layers that keep a machine from reaching a level.

use super::assess::{Assessment, assess};
use super::layer_state::LayerState;
use super::remedy;
use super::root::DEVICES;
use crate::host::{ChainStep, Device, Machine, NamespaceSupport, Refusal, RefusalCause};
use crate::outcome::Layer;
use crate::policy::Level;

/// A layer that does not hold, as part of an error.
fn obstacle(layer: Layer, cause: &str, remedy: &str) -> String {
    format!("layer `{layer}` cannot be enforced: {cause}; {remedy}")
}

impl Assessment {
    /// The layer as an obstacle, unless it holds completely.
    fn obstacle(&self) -> Option<String> {
        let remedy = self.remedy.as_ref()?;
        Some(obstacle(self.layer, &self.why, remedy))
    }
}

/// The best level that the host can give.
pub(super) fn best_level(machine: &Machine) -> Option<Level> {
    [Level::Full, Level::Standard, Level::Landlock]
        .into_iter()
        .find(|level| obstacles(machine, *level).is_empty())
}

/// The obstacles between the host and a level.
pub(super) fn obstacles(machine: &Machine, level: Level) -> Vec<String> {
    let mut found: Vec<String> = assess(machine)
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
            // The namespaces' own obstacle is already in the list, once.
            let is_its_own = assessed.remedy.as_deref() != Some(remedy::AS_FOR_NAMESPACES);
            level >= Level::Standard && assessed.state == LayerState::Absent && is_its_own
        }
        Layer::Landlock | Layer::Seccomp | Layer::Rlimits => assessed.state == LayerState::Absent,
        Layer::Cgroup => level == Level::Full && assessed.state != LayerState::Enforced,
        Layer::Capabilities => false,
    }
}

/// What level `landlock` needs besides: no user namespace takes root's privileges from the guest, and the rules name
/// devices of the host.
fn without_namespaces(machine: &Machine) -> Option<String> {
    let NamespaceSupport::Refused(refusal) = &machine.namespaces else {
        return None;
    };
    let Refusal { step, errno, cause } = refusal;
    let root_stays = [
        ChainStep::DropGroups,
        ChainStep::DropGid,
        ChainStep::DropUid,
    ]
    .contains(step);
    let is_in_rules = |device: &Device| {
        DEVICES
            .iter()
            .any(|name| device.path.ends_with(&format!("/{name}")))
    };
    let (layer, cause, remedy) = match cause {
        RefusalCause::RootWithoutCapabilities => (
            Layer::Capabilities,
            "root lacks capabilities by which it gives up its ids and the others".to_owned(),
            "run as an ordinary user, or as root with CAP_SETUID, CAP_SETGID and CAP_SETPCAP"
                .to_owned(),
        ),
        RefusalCause::NoDevice(device) if is_in_rules(device) => (
            Layer::Landlock,
            format!("the host has no {}, which the rules name", device.path),
            remedy::namespaces(machine.user, refusal),
        ),
        _ if root_stays => (
            Layer::Capabilities,
            format!("could not {step}: {errno}"),
            "run as an ordinary user, or as root with CAP_SETUID and CAP_SETGID".to_owned(),
        ),
        _ => return None,
    };
    Some(obstacle(layer, &cause, &remedy))
}
