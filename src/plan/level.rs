//! The level that a plan reaches, and what each layer is at that level.

use serde::Serialize;

use super::assess::{assess, best_level, obstacles};
use super::cgroup::CgroupPlan;
use super::error::PlanError;
use super::layer::{Layer, LayerState};
use crate::host::Host;
use crate::policy::{Level, Policy};

/// A layer of a plan.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct LayerPlan {
    /// Which.
    pub layer: Layer,
    /// How far it will hold.
    pub state: LayerState,
    /// What it is made of, or why it does not hold.
    pub detail: String,
}

/// The best level of the host, where that is enough for the policy.
pub(super) fn choose(policy: &Policy, host: &Host) -> Result<Level, PlanError> {
    let required = policy.require();
    let available = best_level(&host.machine);
    match available.filter(|best| *best >= required) {
        Some(best) => Ok(best),
        None => Err(PlanError::LevelUnavailable {
            required,
            origin: policy.require_origin().clone(),
            obstacles: obstacles(&host.machine, required),
            available,
        }),
    }
}

/// Each layer as planned.
pub(super) fn layers(host: &Host, level: Level, cgroup: Option<&CgroupPlan>) -> Vec<LayerPlan> {
    assess(&host.machine)
        .into_iter()
        .map(|assessed| match assessed.layer {
            layer @ (Layer::Namespaces | Layer::Mounts) if level == Level::Landlock => {
                // Namespaces without mounts would be of no use, so they are not made.
                let detail = match assessed.state {
                    LayerState::Enforced => "not made, because nothing can be mounted".to_owned(),
                    _ => assessed.why,
                };
                LayerPlan {
                    layer,
                    state: LayerState::Absent,
                    detail,
                }
            }
            Layer::Cgroup if cgroup.is_none() => LayerPlan {
                layer: Layer::Cgroup,
                state: LayerState::Absent,
                detail: assessed.why,
            },
            layer => LayerPlan {
                layer,
                state: assessed.state,
                detail: assessed.why,
            },
        })
        .collect()
}
