//! Chooses the level of a plan, and describes the layers at that level.

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
    /// The state of the layer.
    pub state: LayerState,
    /// What the layer consists of, or why it does not hold.
    pub detail: String,
}

/// Returns the best level of the host, if it satisfies the policy.
pub(super) fn choose(policy: &Policy, machine: &Machine) -> Result<Level, Error> {
    let required = policy.require();
    let available = best_level(machine);
    available.filter(|best| *best >= required).ok_or_else(|| {
        let accept = |level| {
            format!("; or accept the weaker level `{level}` (`--set assurance.require={level}`)")
        };
        Error::host(format!(
            "{} requires level `{required}`, which this host cannot provide: {}{}",
            policy.require_origin(),
            obstacles(machine, required).join("; "),
            available.map(accept).unwrap_or_default()
        ))
    })
}

/// Rejects a network mode that needs a network namespace at a level without namespaces.
pub(super) fn check_network(policy: &Policy, level: Level) -> Result<(), Error> {
    let mode = &policy.network.mode;
    if mode.value == NetworkMode::None || level > Level::Landlock {
        return Ok(());
    }
    Err(Error::host(format!(
        "{}`network.mode` is \"{}\", but at level `landlock`, the best of this host, the only loopback interface \
         is that of the host: allow user namespaces (see `sandfork doctor`), or disable the network (`--set \
         network.mode=none`)",
        mode.origin.lead(),
        mode.value
    )))
}

/// Returns the planned layers.
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

/// Adjusts a layer to level `landlock`.
fn without_namespaces(layer: LayerPlan) -> LayerPlan {
    match layer.layer {
        // Namespaces without mounts are useless, so none are created.
        Layer::Namespaces | Layer::Mounts if layer.state == LayerState::Enforced => LayerPlan {
            state: LayerState::Absent,
            detail: "not created, because nothing can be mounted".to_owned(),
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
