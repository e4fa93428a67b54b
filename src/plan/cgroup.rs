//! A worker's cgroup: where it is made and what it limits.

use serde::Serialize;

use super::assess::missing_controllers;
use crate::host::{CgroupSupport, Controller};
use crate::policy::Policy;

/// Where each worker gets a cgroup, and its limits.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CgroupPlan {
    /// Where; never [`CgroupSupport::Nowhere`].
    pub place: CgroupSupport,
    /// All processes together, the session's files included, bytes. There is no swap beyond it.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Thousandths of a processor.
    pub millicores: u32,
}

impl CgroupPlan {
    pub(super) fn new(policy: &Policy, place: &CgroupSupport) -> Option<Self> {
        let limits = policy.limits();
        let somewhere = !matches!(place, CgroupSupport::Nowhere { .. });
        somewhere.then(|| Self {
            place: place.clone(),
            memory: limits.memory,
            pids: limits.pids,
            millicores: limits.cores.millicores(),
        })
    }

    /// Whether the kernel holds this controller's limit.
    pub fn limits_by(&self, controller: Controller) -> bool {
        missing_controllers(&self.place).all(|missing| missing != controller)
    }
}
