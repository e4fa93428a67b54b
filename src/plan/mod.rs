//! Computes from a policy and a host everything that a sandbox will do, as plain data ([`plan`]).
//!
//! This module is pure: it makes no system call, reads no file and uses no clock. The kernel operations of
//! a plan can therefore be printed ([`explain()`]), compared, and tested for machines that are not available.

mod assess;
mod cgroup;
mod doctor;
mod environment;
mod error;
mod explain;
mod filters;
mod grants;
mod jail;
mod kept;
mod landlock;
mod layer_state;
mod level;
mod limits;
mod network;
mod obstacle;
mod paths;
mod preload;
mod remedy;
mod root;
pub mod seccomp;
mod session_directory;
mod view;
mod wanted;
mod words;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::error::Error;
pub use crate::outcome::{Layer, PolicyIdentity};
pub use crate::policy::Start;
pub use assess::assess;
pub use cgroup::{CgroupPlan, CgroupVersion, Hierarchy, Presence, Setting};
pub use doctor::{CopiedPages, DirectoryFound, PreloadDiagnosis, Usability, diagnose};
pub use environment::{PRELOAD_ONLY, preload_env};
pub use explain::explain;
pub use filters::check_syscalls;
pub use grants::{
    DENIED_CALLS, Explanation, Grants, PathVerdict, RUNS_PROGRAMS, Want, of_connection, of_limit,
};
pub(crate) use grants::{harmless, is_deceptive};
pub use kept::check_imports;
pub use layer_state::LayerState;
pub use level::LayerPlan;
pub use network::EgressPlan;
pub(crate) use network::trust;
pub use paths::quota_of;
pub use preload::{LeftToGuest, PreloadPlan};
pub use session_directory::{FileQuota, SessionFiles};
pub(crate) use words::bytes;

use crate::host::{Controller, Host, KeptNeeds, Machine, Needs, PathFact};
use crate::outcome::{CpuRule, LimitName, Limits, Scope, Unit};
use crate::policy::{self, Level, NetworkMode, Policy, Stdin};
use sandfork_jail::program::ZygoteJail;

/// The sandbox of one policy on one host.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Plan {
    /// The identity of the policy.
    pub policy: PolicyIdentity,
    /// The level of protection.
    pub level: Level,
    /// The state of each layer.
    pub layers: Vec<LayerPlan>,
    /// The interpreter and what it loads.
    pub interpreter: InterpreterPlan,
    /// The limits that the supervisor watches.
    pub supervision: Supervision,
    /// The worker's cgroup, if it has one.
    pub cgroup: Option<CgroupPlan>,
    /// The location of a session's own files.
    pub session_files: SessionFiles,
    /// The egress process, if the policy allows hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressPlan>,
    /// The steps that the zygote and its workers apply to themselves.
    pub jail: ZygoteJail,
}

/// The interpreter and what it loads before any guest code.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct InterpreterPlan {
    /// The path to execute.
    pub executable: PathBuf,
    /// The version: major, minor, patch.
    pub version: (u8, u8, u8),
    /// The environment whose packages can be imported: `sys.prefix`.
    pub environment: PathBuf,
    /// The modules to import once, in this order.
    pub preload: Vec<PreloadPlan>,
    /// The directories to add to `sys.path`, in this order.
    pub path: Vec<PathBuf>,
    /// The directory of a program of several files, first in `sys.path`.
    pub project: Option<PathBuf>,
    /// The patterns of the modules that the guest may import.
    pub imports: Vec<String>,
    /// Where a session's interpreter comes from.
    pub start: Start,
}

/// The limits that the supervisor enforces on a worker from outside.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Supervision {
    /// The policy's limits. Limits that the jail enforces are serialized with the jail instead.
    #[serde(flatten, serialize_with = "supervised")]
    pub limits: Limits,
    /// The rule for the CPU limit of a cell that sets its own wall time.
    #[serde(skip)]
    pub cpu_rule: CpuRule,
    /// The guest's standard input.
    pub stdin: Stdin,
    /// The time without a cell after which a session ends. `None` means never.
    #[serde(rename = "session_idle_ms", serialize_with = "milliseconds")]
    pub session_idle: Option<Duration>,
    /// The time after which a session ends. `None` means never.
    #[serde(rename = "session_age_ms", serialize_with = "milliseconds")]
    pub session_age: Option<Duration>,
    /// The time without use after which a session is paused. `None` means never.
    #[serde(rename = "session_pause_after_ms", serialize_with = "milliseconds")]
    pub session_pause_after: Option<Duration>,
    /// The mechanism that enforces the limits on memory and processes.
    pub held_by: HeldBy,
}

fn supervised<S: Serializer>(limits: &Limits, to: S) -> Result<S::Ok, S::Error> {
    let supervised = LimitName::ALL.into_iter().filter(|name| {
        !matches!(
            name.spec().scope,
            Scope::Jail | Scope::Network | Scope::Snapshot
        )
    });
    to.collect_map(supervised.map(|name| {
        let (_, short) = name.key().split_once('.').unwrap_or_default();
        let field = match name.spec().unit {
            Unit::Duration => format!("{short}_ms"),
            Unit::Cores => "millicores".to_owned(),
            Unit::Size | Unit::Count => short.to_owned(),
        };
        (field, limits.amount(name))
    }))
}

// serde requires this signature.
#[allow(clippy::ref_option)]
fn milliseconds<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    duration.map(milliseconds).serialize(to)
}

/// The mechanism that enforces the limits on a worker's memory and number of processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    /// The kernel enforces the limits by the worker's cgroup.
    Cgroup,
    /// The supervisor enforces the limits by frequent sampling.
    Watchdog,
}

/// Returns which facts about a host a plan for this policy needs.
pub fn needs(policy: &Policy) -> Needs {
    let (variables, files) = network::secrets(policy);
    let certificates: &[&str] = match policy.network.mode.value {
        NetworkMode::Allow => &network::HOST_CERTIFICATES,
        NetworkMode::None | NetworkMode::Loopback => &[],
    };
    Needs {
        certificates: certificates.iter().map(PathBuf::from).collect(),
        paths: paths::named_by(policy)
            .map(|(_, located)| located.value.clone())
            .chain(policy.python.script.clone())
            .chain(files.iter().cloned())
            .collect(),
        script: policy.python.script.clone(),
        variables: policy.env.pass.iter().cloned().chain(variables).collect(),
        kept: (!policy.filesystem.write.is_empty()).then(|| KeptNeeds {
            policies: policy.files.clone(),
            secrets: files,
            interpreter: host_interpreter(policy),
        }),
    }
}

/// Returns the interpreter that a policy names, unless a named environment includes one.
fn host_interpreter(policy: &Policy) -> Option<String> {
    let python = &policy.python;
    let is_named = python.environment.is_some();
    (!is_named).then(|| python.interpreter.value.clone())
}

/// Computes the plan of a policy on a host.
///
/// # Errors
///
/// If the host lacks the level that the policy requires, a limit exceeds the host's resources, a path is
/// missing or may not be shown, or a system call cannot be allowed or denied. The error names the line of
/// the policy, the cause and the remedy.
pub fn plan(policy: &Policy, host: &Host) -> Result<Plan, Error> {
    let level = level::choose(policy, &host.machine)?;
    level::check_network(policy, level)?;
    if let Some(refused) = limits::refused(policy, &host.machine).next() {
        return Err(refused);
    }
    let cgroup = CgroupPlan::new(policy, &host.machine.cgroup);
    let layers = level::layers(host, level);
    let egress = EgressPlan::new(policy, host)?;
    Ok(Plan {
        policy: PolicyIdentity {
            name: policy.name().to_owned(),
            sha256: policy.sha256().to_owned(),
        },
        level,
        layers,
        interpreter: interpreter(policy, host)?,
        supervision: supervision(policy, cgroup.as_ref()),
        session_files: SessionFiles::of(policy, level),
        jail: jail::prepare(policy, host, level, cgroup.as_ref(), egress.as_ref())?,
        cgroup,
        egress,
    })
}

/// Returns an error for the level and for each limit and path of a policy that a host cannot provide. [`plan()`]
/// returns only the first of these errors, and checks the rest of the policy once there are none.
pub fn refused<'a>(
    policy: &'a Policy,
    machine: &'a Machine,
    paths: &'a BTreeMap<PathBuf, PathFact>,
) -> impl Iterator<Item = Error> + 'a {
    let level = level::choose(policy, machine);
    let level = level
        .and_then(|level| level::check_network(policy, level))
        .err();
    let values =
        limits::refused(policy, machine).chain(wanted::refused_paths(policy, machine.user, paths));
    level.into_iter().chain(values)
}

fn interpreter(policy: &Policy, host: &Host) -> Result<InterpreterPlan, Error> {
    let python = &policy.python;
    preload::check_length(&python.preload)?;
    Ok(InterpreterPlan {
        executable: host.interpreter.executable.clone(),
        version: host.interpreter.version,
        environment: host.interpreter.prefix.clone(),
        preload: python
            .preload
            .iter()
            .map(|preload| PreloadPlan {
                module: preload.value.module().to_owned(),
                required: preload.value.presence() == policy::Presence::Required,
                left_to_guest: None,
            })
            .collect(),
        path: python.path.iter().map(|path| path.value.clone()).collect(),
        project: python.project.as_ref().map(|path| path.value.clone()),
        imports: policy
            .imports
            .allow
            .iter()
            .map(ToString::to_string)
            .collect(),
        start: python.start,
    })
}

fn supervision(policy: &Policy, cgroup: Option<&CgroupPlan>) -> Supervision {
    let held = cgroup.is_some_and(|cgroup| {
        cgroup.limits_by(Controller::Memory) && cgroup.limits_by(Controller::Pids)
    });
    Supervision {
        limits: policy.limits,
        cpu_rule: policy.cpu_rule,
        stdin: policy.stdin,
        session_idle: policy.session.idle,
        session_age: policy.session.age,
        session_pause_after: policy.session.pause_after,
        held_by: if held {
            HeldBy::Cgroup
        } else {
            HeldBy::Watchdog
        },
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{sample, sample_grants};
