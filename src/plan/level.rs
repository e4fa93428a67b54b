//! The level that a plan reaches, and what each layer is at that level.

use serde::Serialize;

use super::assess::{Assessment, assess};
use super::layer_state::LayerState;
use super::obstacle::{best_level, obstacles};
use crate::error::Error;
use crate::host::{Host, Machine};
use crate::outcome::Layer;
use crate::policy::{Level, NetworkMode, Policy};

/// A layer of a plan.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct LayerPlan {
    /// The layer.
    pub layer: Layer,
    /// How far it will hold.
    pub state: LayerState,
    /// What it consists of, or why it does not hold.
    pub detail: String,
}

/// The best level of the host, if it is enough for the policy.
pub(super) fn choose(policy: &Policy, machine: &Machine) -> Result<Level, Error> {
    let required = policy.require();
    let available = best_level(machine);
    available.filter(|best| *best >= required).ok_or_else(|| {
        let accept = |level| {
            format!("; or accept the weaker level `{level}` (`--set assurance.require={level}`)")
        };
        Error::host(format!(
            "{} requires level `{required}`, which this host cannot give: {}{}",
            policy.require_origin(),
            obstacles(machine, required).join("; "),
            available.map(accept).unwrap_or_default()
        ))
    })
}

/// Refuses a network that the level has no namespace for.
pub(super) fn check_network(policy: &Policy, level: Level) -> Result<(), Error> {
    let mode = &policy.network.mode;
    if mode.value == NetworkMode::None || level > Level::Landlock {
        return Ok(());
    }
    Err(Error::host(format!(
        "{}`network.mode` is \"{}\", and at level `landlock`, the best of this host, the only loopback interface \
         is the host's own: allow user namespaces (`sandfork doctor` tells how), or do without a network (`--set \
         network.mode=none`)",
        mode.origin.lead(),
        mode.value
    )))
}

/// Each layer as planned.
pub(super) fn layers(host: &Host, level: Level) -> Vec<LayerPlan> {
    let as_assessed = |assessed: Assessment| LayerPlan {
        layer: assessed.layer,
        state: assessed.state,
        detail: assessed.why,
    };
    assess(&host.machine)
        .into_iter()
        .map(as_assessed)
        .map(|layer| {
            if level == Level::Landlock {
                without_namespaces(layer)
            } else {
                layer
            }
        })
        .collect()
}

/// The state of a layer at level `landlock`.
fn without_namespaces(layer: LayerPlan) -> LayerPlan {
    match layer.layer {
        // Namespaces without mounts have no use, so none are created.
        Layer::Namespaces | Layer::Mounts if layer.state == LayerState::Enforced => LayerPlan {
            state: LayerState::Absent,
            detail: "not made, because nothing can be mounted".to_owned(),
            ..layer
        },
        Layer::Capabilities => LayerPlan {
            state: LayerState::Degraded,
            detail: "every set is emptied; the bounding set stays, because emptying it takes a \
                     privilege, and no_new_privs keeps it from mattering"
                .to_owned(),
            ..layer
        },
        _ => layer,
    }
}
