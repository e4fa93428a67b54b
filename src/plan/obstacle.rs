//! Finds the layers that prevent a machine from reaching a level.

use super::assess::{Assessment, assess};
use super::layer_state::LayerState;
use super::remedy;
use super::root::DEVICES;
use crate::host::{ChainStep, Device, Machine, NamespaceSupport, Refusal, RefusalCause};
use crate::outcome::Layer;
use crate::policy::Level;

/// Formats an obstacle for an error message.
fn obstacle(layer: Layer, cause: &str, remedy: &str) -> String {
    format!("layer `{layer}` cannot be enforced: {cause}; {remedy}")
}

impl Assessment {
    /// Formats the layer as an obstacle, unless it is enforced completely.
    fn obstacle(&self) -> Option<String> {
        let remedy = self.remedy.as_ref()?;
        Some(obstacle(self.layer, &self.why, remedy))
    }
}

/// Returns the best level that the host can provide.
pub(super) fn best_level(machine: &Machine) -> Option<Level> {
    [Level::Full, Level::Standard, Level::Landlock]
        .into_iter()
        .find(|level| obstacles(machine, *level).is_empty())
}

/// Returns the obstacles between the host and a level.
pub(super) fn obstacles(machine: &Machine, level: Level) -> Vec<String> {
    let mut found: Vec<String> = assess(machine)
        .iter()
        .filter(|layer| blocks(layer, level))
        .filter_map(Assessment::obstacle)
        .collect();
    if level == Level::Landlock {
        found.extend(without_namespaces(machine));
    }
    found
}

/// Returns whether the state of a layer rules out a level.
fn blocks(assessed: &Assessment, level: Level) -> bool {
    match assessed.layer {
        Layer::Namespaces => level >= Level::Standard && assessed.state == LayerState::Absent,
        Layer::Mounts => {
            // If the cause is missing namespaces, that obstacle is in the list already.
            let is_its_own = assessed.remedy.as_deref() != Some(remedy::AS_FOR_NAMESPACES);
            level >= Level::Standard && assessed.state == LayerState::Absent && is_its_own
        }
        Layer::Landlock | Layer::Seccomp | Layer::Rlimits => assessed.state == LayerState::Absent,
        Layer::Cgroup => level == Level::Full && assessed.state != LayerState::Enforced,
        Layer::Capabilities => false,
    }
}

/// Returns the additional obstacle to level `landlock`. Without a user namespace, root must be able to drop its
/// privileges, and the host must have the devices that the Landlock rules name.
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
            "root lacks the capabilities to drop its ids and its other capabilities".to_owned(),
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
