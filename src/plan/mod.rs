//! Everything that will be done, as plain data: [`plan`] computes it from a policy and a host.
//!
//! Pure: no system call, no file, no clock. The kernel operations of a plan can be printed
//! ([`explain()`]), compared and tested for machines that are not at hand.

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
mod places;
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
pub use places::quota_of;
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
    /// The level that it reaches.
    pub level: Level,
    /// Each layer, and how far it holds.
    pub layers: Vec<LayerPlan>,
    /// The interpreter and what it loads.
    pub interpreter: InterpreterPlan,
    /// The limits that the supervisor watches.
    pub supervision: Supervision,
    /// The worker's cgroup, if it has one.
    pub cgroup: Option<CgroupPlan>,
    /// Where a session's own files are.
    pub session_files: SessionFiles,
    /// How guests reach the hosts of the policy, if it has any.
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
    /// Its version.
    pub version: (u8, u8, u8),
    /// The environment whose packages can be imported: `sys.prefix`.
    pub environment: PathBuf,
    /// Modules to import once, in this order.
    pub preload: Vec<PreloadPlan>,
    /// Directories added to `sys.path`, in this order.
    pub path: Vec<PathBuf>,
    /// The directory of a program of several files, first in `sys.path`.
    pub project: Option<PathBuf>,
    /// Patterns of the modules that the guest may import.
    pub imports: Vec<String>,
    /// Where a session's interpreter comes from.
    pub start: Start,
}

/// The limits that the supervisor enforces on a worker from outside.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Supervision {
    /// The policy's limits. Those that the jail enforces stand in its steps.
    #[serde(flatten, serialize_with = "supervised")]
    pub limits: Limits,
    /// What the limit on processor time is of a cell that has a wall time of its own.
    #[serde(skip)]
    pub cpu_rule: CpuRule,
    /// What the guest reads on its standard input.
    pub stdin: Stdin,
    /// How long a session may wait for its next cell; `None` means forever.
    #[serde(rename = "session_idle_ms", serialize_with = "milliseconds")]
    pub session_idle: Option<Duration>,
    /// How long a session may live; `None` means forever.
    #[serde(rename = "session_age_ms", serialize_with = "milliseconds")]
    pub session_age: Option<Duration>,
    /// How long a session is unused before it is paused; `None` means forever.
    #[serde(rename = "session_pause_after_ms", serialize_with = "milliseconds")]
    pub session_pause_after: Option<Duration>,
    /// What enforces the limits on memory and processes.
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

/// What enforces the limits on a worker's memory and number of processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    /// The kernel enforces them by the worker's cgroup.
    Cgroup,
    /// The supervisor enforces them by frequent sampling.
    Watchdog,
}

/// The facts about a host that a plan for this policy needs.
pub fn needs(policy: &Policy) -> Needs {
    let (variables, files) = network::secrets(policy);
    let certificates: &[&str] = match policy.network.mode.value {
        NetworkMode::Allow => &network::HOST_CERTIFICATES,
        NetworkMode::None | NetworkMode::Loopback => &[],
    };
    Needs {
        certificates: certificates.iter().map(PathBuf::from).collect(),
        paths: places::named_by(policy)
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

/// The interpreter that a policy names, unless an environment with a name brings its own.
fn host_interpreter(policy: &Policy) -> Option<String> {
    let python = &policy.python;
    let is_named = python.environment.is_some();
    (!is_named).then(|| python.interpreter.value.clone())
}

/// Makes the plan, or reports why the policy cannot be enforced on this host.
///
/// # Errors
///
/// If the host lacks the level that the policy requires, a limit is above what the host has, a path
/// is missing or may not be shown, or a system call cannot be allowed or denied. The error has the
/// line of the policy, the cause and the remedy.
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

/// The level, the limits and the paths of a policy that a host refuses. [`plan()`] refuses the first, and names what else is wrong
/// only once none is left.
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
