//! Everything that will be done, as plain data: [`plan`] makes it of a policy and a host.
//!
//! Pure: no system call, no file, no clock. What the kernel will be asked to do can be printed
//! ([`explain`]), compared and tested for machines that nobody has at hand.

mod assess;
mod cgroup;
mod doctor;
mod environment;
mod error;
mod explain;
mod landlock;
mod layer;
mod level;
mod limits;
mod places;
mod remedy;
mod root;
mod session_directory;
mod view;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

pub use assess::{Assessment, Obstacle, assess};
pub use cgroup::CgroupPlan;
pub use doctor::{Diagnosis, InterpreterDiagnosis, diagnose};
pub use environment::PRELOAD_ONLY;
pub use error::{Place, PlanError};
pub use explain::explain;
pub use layer::{Layer, LayerState};
pub use level::LayerPlan;
pub use session_directory::SessionFiles;

use crate::host::{GUEST_ID, Host, HostUser, Needs, UNPRIVILEGED_ID};
use crate::jail::program::{
    HostIds, Identity, LandlockRules, NetworkNamespace, ProcMount, Tmpfs, WorkerJail, ZygoteJail,
    ZygoteNamespaces,
};
use crate::policy::{Freshness, Level, Policy, Presence as PreloadPresence, ProcVisibility, Stdin};

/// What a sandbox of one policy is on one host.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Plan {
    /// Whose plan.
    pub policy: PolicyIdentity,
    /// The level that it reaches.
    pub level: Level,
    /// Each layer, and how far it holds.
    pub layers: Vec<LayerPlan>,
    /// The interpreter and what it loads.
    pub interpreter: InterpreterPlan,
    /// What the supervisor watches.
    pub supervision: Supervision,
    /// The worker's cgroup, where there is one.
    pub cgroup: Option<CgroupPlan>,
    /// Where a session's own files are.
    pub session_files: SessionFiles,
    /// What the zygote and its workers do to themselves.
    pub jail: ZygoteJail,
}

/// Which policy, as an outcome shows it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PolicyIdentity {
    /// Its name.
    pub name: String,
    /// Hash of its effect.
    pub sha256: String,
}

/// The interpreter and what it loads before any guest code.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct InterpreterPlan {
    /// What to execute.
    pub executable: PathBuf,
    /// Its version.
    pub version: (u8, u8, u8),
    /// Imported once, in this order.
    pub preload: Vec<PreloadPlan>,
    /// Added to `sys.path`, in this order.
    pub path: Vec<PathBuf>,
    /// Patterns of what the guest may import.
    pub imports: Vec<String>,
    /// Where a session's interpreter comes from.
    pub start: Start,
}

/// Where a session's interpreter comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// Forked from a warm zygote.
    Forked,
    /// A zygote of its own for each session.
    Cold,
}

/// A module to import in the zygote.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PreloadPlan {
    /// Its dotted name.
    pub module: String,
    /// Whether its absence is an error.
    pub required: bool,
}

/// What the supervisor holds a worker to, from outside.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Supervision {
    /// Time on the wall for each cell or run.
    pub wall: Duration,
    /// Processor time of the whole worker.
    pub cpu: Duration,
    /// Memory of the whole worker, bytes.
    pub memory: u64,
    /// Processes and threads of the whole worker.
    pub pids: u32,
    /// Share of the processors, thousandths of one.
    pub millicores: u32,
    /// Standard output and error together, bytes.
    pub output: u64,
    /// What the guest reads on its standard input.
    pub stdin: Stdin,
    /// What holds memory and processes together.
    pub held_by: HeldBy,
}

/// What holds a worker's memory and number of processes together.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    /// The kernel, by the worker's cgroup.
    Cgroup,
    /// The supervisor, by looking often enough.
    Watchdog,
}

/// What has to be known of a host to plan for this policy.
pub fn needs(policy: &Policy) -> Needs {
    Needs {
        paths: places::named_by(policy)
            .map(|(_, located)| located.value.clone())
            .collect(),
        variables: policy.env().pass.iter().cloned().collect(),
    }
}

/// Plans, or says why the policy cannot be kept on this host.
pub fn plan(policy: &Policy, host: &Host) -> Result<Plan, PlanError> {
    limits::check(policy, host)?;
    let level = level::choose(policy, host)?;
    let cgroup = CgroupPlan::new(policy, &host.machine.cgroup);
    let layers = level::layers(host, level, cgroup.as_ref());
    Ok(Plan {
        policy: PolicyIdentity {
            name: policy.name().to_owned(),
            sha256: policy.sha256().to_owned(),
        },
        level,
        layers,
        interpreter: interpreter(policy, host),
        supervision: supervision(policy, cgroup.as_ref()),
        session_files: SessionFiles::at(level),
        jail: jail(policy, host, level, cgroup.as_ref())?,
        cgroup,
    })
}

fn interpreter(policy: &Policy, host: &Host) -> InterpreterPlan {
    let python = policy.python();
    InterpreterPlan {
        executable: host.interpreter.executable.clone(),
        version: host.interpreter.version,
        preload: python
            .preload
            .iter()
            .map(|preload| PreloadPlan {
                module: preload.value.module().to_owned(),
                required: preload.value.presence() == PreloadPresence::Required,
            })
            .collect(),
        path: python.path.iter().map(|path| path.value.clone()).collect(),
        imports: policy
            .imports()
            .allow
            .iter()
            .map(ToString::to_string)
            .collect(),
        start: match python.freshness {
            Freshness::Forked => Start::Forked,
            Freshness::Cold => Start::Cold,
        },
    }
}

fn supervision(policy: &Policy, cgroup: Option<&CgroupPlan>) -> Supervision {
    use crate::host::Controller::{Memory, Pids};
    let limits = policy.limits();
    let held = cgroup.is_some_and(|cgroup| cgroup.limits_by(Memory) && cgroup.limits_by(Pids));
    Supervision {
        wall: limits.wall,
        cpu: limits.cpu,
        memory: limits.memory,
        pids: limits.pids,
        millicores: limits.cores.millicores(),
        output: limits.output,
        stdin: policy.stdin(),
        held_by: if held {
            HeldBy::Cgroup
        } else {
            HeldBy::Watchdog
        },
    }
}

fn jail(
    policy: &Policy,
    host: &Host,
    level: Level,
    cgroup: Option<&CgroupPlan>,
) -> Result<ZygoteJail, PlanError> {
    let view = view::View::new(policy, host, level)?;
    let namespaces = (level > Level::Landlock).then(|| ZygoteNamespaces {
        network: network(host),
    });
    Ok(ZygoteJail {
        identity: identity(host.machine.user, level),
        namespaces,
        root: root::entries(policy, level, &view),
        hostname: root::HOSTNAME.to_owned(),
        landlock: host.machine.landlock.abi().map(|abi| LandlockRules {
            abi,
            paths: landlock::rules(policy, level, &view),
        }),
        filters: Vec::new(),
        env: environment::variables(policy, host, level),
        worker: worker(policy, host, level, cgroup),
    })
}

/// One empty network namespace serves every worker where Landlock keeps abstract unix sockets
/// apart, which are all that two of them could meet by; making one costs more than all the rest.
fn network(host: &Host) -> NetworkNamespace {
    match host.machine.landlock.abi() {
        Some(assess::LANDLOCK_SCOPES..) => NetworkNamespace::SharedEmpty,
        _ => NetworkNamespace::PerWorker,
    }
}

fn identity(user: HostUser, level: Level) -> Identity {
    let unprivileged = HostIds {
        uid: UNPRIVILEGED_ID,
        gid: UNPRIVILEGED_ID,
    };
    let drop_to = user.is_root().then_some(unprivileged);
    let inside = match level {
        Level::Full | Level::Standard => HostIds {
            uid: GUEST_ID,
            gid: GUEST_ID,
        },
        Level::Landlock => drop_to.unwrap_or(HostIds {
            uid: user.uid,
            gid: user.gid,
        }),
    };
    Identity { drop_to, inside }
}

fn worker(policy: &Policy, host: &Host, level: Level, cgroup: Option<&CgroupPlan>) -> WorkerJail {
    let files = policy.filesystem();
    let quota = |target: &str, quota: crate::policy::Quota| Tmpfs {
        target: target.into(),
        size: quota.size,
        inodes: quota.inodes,
    };
    let count = match level {
        Level::Landlock if !host.machine.user.is_root() => limits::ProcessCount::WholeUser,
        _ => limits::ProcessCount::Own,
    };
    let cpu_is_capped = cgroup.is_some_and(|plan| plan.limits_by(crate::host::Controller::Cpu));
    WorkerJail {
        tmpfs: match level {
            Level::Landlock => Vec::new(),
            // Shared memory is what /dev/shm is for; it gets as much as /tmp.
            _ => vec![
                quota(places::WORK, files.work),
                quota(places::TMP, files.tmp),
                quota(places::SHM, files.tmp),
            ],
        },
        proc: proc_mount(policy, level),
        rlimits: limits::rlimits(host, policy.limits(), count),
        data_allowance: limits::data_allowance(policy.limits()),
        pin_to_cores: match cpu_is_capped {
            true => None,
            false => limits::pin_to_cores(host, policy.limits()),
        },
        filters: Vec::new(),
        cwd: places::WORK.into(),
    }
}

fn proc_mount(policy: &Policy, level: Level) -> ProcMount {
    match (level, policy.filesystem().proc) {
        (Level::Landlock, _) | (_, ProcVisibility::Absent) => ProcMount::Absent,
        (_, ProcVisibility::Own) => ProcMount::Own,
    }
}
