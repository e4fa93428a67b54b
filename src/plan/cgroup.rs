//! Plans a worker's cgroup: its parent directories and settings
//! (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/).

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use crate::host::{CgroupSupport, Controller, V2Entry};
use crate::policy::{Limits, Policy};

/// The parent directories and settings of a worker's cgroups.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CgroupPlan {
    /// The version of the cgroup interface.
    pub version: CgroupVersion,
    /// The hierarchies in use. Version 2 has only one.
    pub hierarchies: Vec<Hierarchy>,
}

/// The version of the cgroup interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupVersion {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy. The supervisor must perform `entry` before the first interpreter starts.
    V2 {
        /// The preparation that the directory still needs.
        entry: V2Entry,
    },
}

/// A directory in which each worker gets a cgroup.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Hierarchy {
    /// The directory.
    pub parent: PathBuf,
    /// The controllers that limit or count there.
    pub controllers: BTreeSet<Controller>,
    /// The settings to write into each new cgroup, in this order, before a process enters it.
    pub settings: Vec<Setting>,
}

/// A file and the value to write into it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Setting {
    /// The name of the file in the cgroup's directory.
    pub file: &'static str,
    /// The value to write.
    pub value: String,
    /// Whether the kernel may lack the file.
    pub presence: Presence,
}

/// Whether the file of a setting always exists.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// A missing file is an error.
    Required,
    /// The file depends on how the kernel was built or booted, as for swap accounting.
    WhereThere,
}

impl CgroupPlan {
    /// Returns whether this controller limits the worker.
    pub fn limits_by(&self, controller: Controller) -> bool {
        self.hierarchies
            .iter()
            .any(|hierarchy| hierarchy.controllers.contains(&controller))
    }

    pub(super) fn new(policy: &Policy, support: &CgroupSupport) -> Option<Self> {
        let limits = &policy.limits;
        match support {
            CgroupSupport::V1(controllers) => Some(Self {
                version: CgroupVersion::V1,
                hierarchies: controllers
                    .iter()
                    .map(|(controller, parent)| Hierarchy {
                        parent: parent.clone(),
                        controllers: BTreeSet::from([*controller]),
                        settings: settings_v1(*controller, limits),
                    })
                    .collect(),
            }),
            CgroupSupport::V2 {
                dir,
                controllers,
                entry,
            } => Some(Self {
                version: CgroupVersion::V2 { entry: *entry },
                hierarchies: vec![Hierarchy {
                    parent: dir.clone(),
                    controllers: controllers.clone(),
                    settings: controllers
                        .iter()
                        .flat_map(|c| settings_v2(*c, limits))
                        .collect(),
                }],
            }),
            CgroupSupport::Nowhere(_) => None,
        }
    }
}

fn required(file: &'static str, value: impl Into<String>) -> Setting {
    Setting {
        file,
        value: value.into(),
        presence: Presence::Required,
    }
}

fn where_there(file: &'static str, value: impl Into<String>) -> Setting {
    Setting {
        file,
        value: value.into(),
        presence: Presence::WhereThere,
    }
}

/// The period of the CPU quota: the kernel's default. Shorter periods cost more context switches.
const CPU_PERIOD_US: u64 = 100_000;

/// Returns the CPU quota in microseconds per period.
fn cpu_quota_us(limits: &Limits) -> u64 {
    limits.millicores() * CPU_PERIOD_US / 1000
}

fn settings_v1(controller: Controller, limits: &Limits) -> Vec<Setting> {
    match controller {
        Controller::Memory => vec![
            required("memory.limit_in_bytes", limits.memory().to_string()),
            // The limit on memory plus swap equals the memory limit, which disables swap. The kernel rejects a
            // value below the memory limit, so it is written after that limit.
            where_there("memory.memsw.limit_in_bytes", limits.memory().to_string()),
            where_there("memory.swappiness", "0"),
        ],
        Controller::Pids => vec![required("pids.max", limits.pids().to_string())],
        Controller::Cpu => vec![
            required("cpu.cfs_period_us", CPU_PERIOD_US.to_string()),
            required("cpu.cfs_quota_us", cpu_quota_us(limits).to_string()),
        ],
        Controller::Cpuacct => Vec::new(),
    }
}

fn settings_v2(controller: Controller, limits: &Limits) -> Vec<Setting> {
    match controller {
        Controller::Memory => vec![
            required("memory.max", limits.memory().to_string()),
            where_there("memory.swap.max", "0"),
        ],
        Controller::Pids => vec![required("pids.max", limits.pids().to_string())],
        Controller::Cpu => {
            vec![required(
                "cpu.max",
                format!("{} {CPU_PERIOD_US}", cpu_quota_us(limits)),
            )]
        }
        Controller::Cpuacct => Vec::new(),
    }
}
