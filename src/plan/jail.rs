//! The prepared jail: what the zygote and its workers do to themselves.

use std::path::Path;

use super::PlanError;
use super::assess::LANDLOCK_SCOPES;
use super::cgroup::CgroupPlan;
use super::limits::ProcessCount;
use super::places::{SHM, TMP, WORK};
use super::view::View;
use super::{environment, filters, landlock, limits, root};
use crate::host::{Controller, GUEST_ID, Host, HostUser};
use crate::jail::program::{
    HostIds, Identity, LandlockRules, NetworkNamespace, ProcMount, Shown, Tmpfs, WorkerJail,
    ZygoteJail, ZygoteNamespaces,
};
use crate::policy::{Level, Policy, ProcVisibility, Quota};

/// Prepares the jail of a plan at `level`.
pub(super) fn prepare(
    policy: &Policy,
    host: &Host,
    level: Level,
    cgroup: Option<&CgroupPlan>,
) -> Result<ZygoteJail, PlanError> {
    let view = View::new(policy, host, level)?;
    let filters = filters::compile(policy, &host.machine, level, cgroup)?;
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
        filters: filters.zygote,
        env: environment::variables(policy, host, level),
        worker: WorkerJail {
            filters: filters.worker,
            ..worker(policy, host, level, cgroup, &view)
        },
    })
}

/// One empty network namespace serves every worker where Landlock keeps abstract unix sockets
/// apart, which are all that two of them could meet by; making one costs more than all the rest.
fn network(host: &Host) -> NetworkNamespace {
    match host.machine.landlock.abi() {
        Some(LANDLOCK_SCOPES..) => NetworkNamespace::SharedEmpty,
        _ => NetworkNamespace::PerWorker,
    }
}

fn identity(user: HostUser, level: Level) -> Identity {
    let drop_to = user.drop_to.map(|ids| HostIds {
        uid: ids.uid,
        gid: ids.gid,
    });
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

fn worker(
    policy: &Policy,
    host: &Host,
    level: Level,
    cgroup: Option<&CgroupPlan>,
    view: &View,
) -> WorkerJail {
    let files = policy.filesystem();
    let quota = |target: &str, quota: Quota| {
        let shows = view.shown_beneath(Path::new(target));
        Tmpfs {
            target: target.into(),
            size: quota.size,
            // What has to be made for it is not the guest's.
            inodes: quota.inodes + mount_points(&shows),
            shows,
        }
    };
    let count = match level {
        // The unprivileged user of root's is that of every other guest too.
        Level::Landlock => ProcessCount::WholeUser,
        _ if cgroup.is_some_and(|plan| plan.limits_by(Controller::Pids)) => {
            ProcessCount::OwnBehindCgroup
        }
        _ => ProcessCount::Own,
    };
    let cpu_is_capped = cgroup.is_some_and(|plan| plan.limits_by(Controller::Cpu));
    WorkerJail {
        tmpfs: match level {
            Level::Landlock => Vec::new(),
            // Shared memory is what /dev/shm is for; it gets as much as /tmp.
            _ => vec![
                quota(WORK, files.work),
                quota(TMP, files.tmp),
                quota(SHM, files.tmp),
            ],
        },
        proc: proc_mount(policy, level),
        rlimits: limits::rlimits(host, policy.limits(), count),
        data_allowance: limits::data_allowance(policy.limits()),
        process_headroom: limits::process_headroom(policy.limits(), count),
        pin_to_cores: limits::pin_to_cores(host, policy.limits()).filter(|_| !cpu_is_capped),
        filters: Vec::new(),
        cwd: WORK.into(),
    }
}

/// The most files and directories that have to be made for all of these to have a place.
fn mount_points(shows: &[Shown]) -> u64 {
    let names = shows.iter().map(|shown| match shown {
        Shown::Tree { target, .. } | Shown::Symlink { target, .. } => target.components().count(),
    });
    names.sum::<usize>() as u64
}

fn proc_mount(policy: &Policy, level: Level) -> ProcMount {
    match (level, policy.filesystem().proc) {
        (Level::Landlock, _) | (_, ProcVisibility::Absent) => ProcMount::Absent,
        (_, ProcVisibility::Own) => ProcMount::Own,
    }
}
