//! Prepares the jail: the steps that the zygote and its workers apply to themselves.

use std::path::Path;

use super::cgroup::CgroupPlan;
use super::filters::WorkerUids;
use super::limits::ProcessCount;
use super::network::EgressPlan;
use super::paths::{PTS, SHM, TMP, WORK};
use super::view::View;
use super::{environment, filters, landlock, limits, root};
use crate::error::Error;
use crate::host::{Controller, GUEST_ID, Host, HostUser, TimeNamespaces};
use crate::outcome::Limits;
use crate::policy::{Level, Located, NetworkMode, Policy, ProcVisibility, SystemFiles, WorkExec};
use sandfork_jail::machine_files::Machine;
use sandfork_jail::program::{
    Clock, HostIds, Identity, LandlockRules, Network, ProcMount, Programs, Ptys, Shown, Tmpfs,
    UidRange, WorkerJail, ZygoteJail, ZygoteNamespaces,
};

/// The maximum number of pseudoterminals of a worker. All mount namespaces but the initial one share 3,072
/// (`kernel.pty.max` minus `kernel.pty.reserve`), and each takes up to 128 KiB that no cgroup counts.
const MAX_PTYS: u32 = 16;

/// Prepares the jail of a plan at `level`.
pub(super) fn prepare(
    policy: &Policy,
    host: &Host,
    level: Level,
    cgroup: Option<&CgroupPlan>,
    egress: Option<&EgressPlan>,
) -> Result<ZygoteJail, Error> {
    check_work_exec(policy, level)?;
    let view = View::new(policy, host, level)?;
    let namespaces = (level > Level::Landlock).then(|| ZygoteNamespaces {
        worker_uids: worker_uids(policy, host.machine.user),
        network: match policy.network.mode.value {
            NetworkMode::None => Network::None,
            NetworkMode::Loopback | NetworkMode::Allow => Network::Loopback,
        },
        clock: match host.machine.time_namespaces {
            TimeNamespaces::Available => Clock::Zygote,
            TimeNamespaces::Unavailable => Clock::Host,
        },
    });
    let uids = match namespaces.and_then(|it| it.worker_uids) {
        Some(_) => WorkerUids::Separate,
        None => WorkerUids::Shared,
    };
    let filters = filters::compile(policy, &host.machine, level, cgroup, uids)?;
    Ok(ZygoteJail {
        identity: identity(host.machine.user, level),
        namespaces,
        root: root::entries(policy, host, level, cgroup, &view),
        hostname: root::HOSTNAME.to_owned(),
        machine: namespaces.map(|_| machine(&policy.limits, host)),
        landlock: host.machine.landlock.abi().map(|abi| LandlockRules {
            abi,
            paths: landlock::rules(policy, level, cgroup, &view),
        }),
        filters: filters.zygote,
        env: environment::variables(policy, host, level, &view),
        worker: WorkerJail {
            filters: filters.worker,
            sockets: egress.map_or_else(Vec::new, EgressPlan::sockets_to_make),
            addresses: egress.map_or_else(Vec::new, EgressPlan::addresses),
            ..worker(policy, host, level, cgroup, &view)
        },
    })
}

/// Rejects `filesystem.work_exec` without mounts. The work directory is then a host directory, so others could run a
/// program that a guest leaves there, and the filters refuse the calls with which compilers make files executable.
fn check_work_exec(policy: &Policy, level: Level) -> Result<(), Error> {
    let Located { value, origin } = &policy.filesystem.work_exec;
    match (level, value) {
        (Level::Landlock, WorkExec::Allowed) => Err(Error::host(format!(
            "{}`filesystem.work_exec` is not available at level `landlock`, where the work directory is a \
             directory of the host: set it to false, or run on a host with level `standard`",
            origin.lead()
        ))),
        _ => Ok(()),
    }
}

/// Returns the range of uids for the workers. If the policy has writable host paths, all workers share one uid
/// instead: files that a guest writes there belong to its uid, and later guests must own them too.
fn worker_uids(policy: &Policy, user: HostUser) -> Option<UidRange> {
    let leaves_nothing = policy.filesystem.write.is_empty();
    user.worker_uids.filter(|_| leaves_nothing)
}

fn identity(user: HostUser, level: Level) -> Identity {
    let drop_to = user.drop_to;
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

/// Returns the machine that guests see, derived from the limits.
fn machine(limits: &Limits, host: &Host) -> Machine {
    Machine {
        kernel: host.machine.kernel.release.clone(),
        processors: limits.processors(),
        processor_kind: host.machine.processors.kind.clone(),
        processors_possible: host.machine.processors.possible.clone(),
        millicores: u32::try_from(limits.millicores()).unwrap_or(u32::MAX),
        memory: limits.memory(),
        memory_available: limits.memory_allowance(),
        pids: limits.pids(),
    }
}

fn worker(
    policy: &Policy,
    host: &Host,
    level: Level,
    cgroup: Option<&CgroupPlan>,
    view: &View,
) -> WorkerJail {
    let limits = &policy.limits;
    let quota = |target: &str, size, inodes, programs| {
        let shows = view.shown_beneath(Path::new(target));
        Tmpfs {
            target: target.into(),
            size,
            // The inodes of the mount points do not count towards the guest's quota.
            inodes: inodes + mount_points(&shows),
            programs,
            shows,
        }
    };
    let count = match level {
        // All guests share one user of the host.
        Level::Landlock => ProcessCount::WholeUser,
        _ if cgroup.is_some_and(|plan| plan.limits_by(Controller::Pids)) => {
            ProcessCount::OwnBehindCgroup
        }
        _ => ProcessCount::Own,
    };
    let programs = match policy.filesystem.work_exec.value {
        WorkExec::Allowed => Programs::Run,
        WorkExec::Denied => Programs::Refused,
    };
    let cpu_is_capped = cgroup.is_some_and(|plan| plan.limits_by(Controller::Cpu));
    WorkerJail {
        tmpfs: match level {
            Level::Landlock => Vec::new(),
            // /dev/shm holds shared memory and gets the same quota as /tmp.
            _ => vec![
                quota(WORK, limits.work_size(), limits.work_inodes(), programs),
                quota(
                    TMP,
                    limits.tmp_size(),
                    limits.tmp_inodes(),
                    Programs::Refused,
                ),
                quota(
                    SHM,
                    limits.tmp_size(),
                    limits.tmp_inodes(),
                    Programs::Refused,
                ),
            ],
        },
        proc: proc_mount(policy, level),
        ptys: has_ptys(policy, level).then(|| Ptys {
            target: PTS.into(),
            most: MAX_PTYS,
        }),
        sockets: Vec::new(),
        addresses: Vec::new(),
        rlimits: limits::rlimits(host, limits, count),
        memory: limits::process_memory(policy, cgroup),
        process_headroom: limits::process_headroom(limits, count),
        pin_to_cores: limits::pin_to_cores(host, limits).filter(|_| !cpu_is_capped),
        filters: Vec::new(),
        cwd: WORK.into(),
    }
}

/// Returns an upper bound on the number of files and directories that are created as mount points for these trees.
fn mount_points(shows: &[Shown]) -> u64 {
    let names = shows.iter().map(|shown| match shown {
        Shown::Tree { target, .. } | Shown::Symlink { target, .. } => target.components().count(),
    });
    names.sum::<usize>() as u64
}

/// Returns whether workers have pseudoterminals. Only programs need them, and the mount takes each worker about 25
/// microseconds. Without a private mount, `/dev/pts` would be the host's.
pub(super) fn has_ptys(policy: &Policy, level: Level) -> bool {
    level > Level::Landlock && policy.filesystem.system == SystemFiles::Programs
}

fn proc_mount(policy: &Policy, level: Level) -> ProcMount {
    match (level, policy.filesystem.proc) {
        (Level::Landlock, _) | (_, ProcVisibility::Absent) => ProcMount::Absent,
        (_, ProcVisibility::Own) => ProcMount::Own,
    }
}
