//! The worker's jail, entered once by each, between the fork and its first cell.

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, setsid};

use super::control::CpuSpan;
use super::failure::{Failure, InStep, Step, encode_report};
use super::program::{ZygoteJail, ZygoteNamespaces};
use super::timing::{Part, Stopwatch, Timing};
use super::zygote::Zygote;
use super::{DATA, capabilities, cgroup, identity, landlock, limits, namespaces, root, witness};
use crate::sys;
use crate::sys::process::{Dumpable, ForkedChild, Held};

/// What the supervisor sends with a request for a worker.
pub struct Belongings {
    /// Standard input, output and error of the guest.
    pub stdio: [OwnedFd; 3],
    /// The worker's end of its data socket.
    pub data: OwnedFd,
    /// Open files of the cgroups to join.
    pub cgroup: Vec<OwnedFd>,
}

/// What differs from worker to worker.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Which processor to start at, where the plan pins.
    pub first_core: usize,
    /// The zygote's private writable memory, bytes.
    pub zygote_bytes: u64,
    /// What its limit on processor time is counted for.
    pub cpu: CpuSpan,
    /// The signal mask of an ordinary process, where the zygote has one of its own.
    pub mask: SigSet,
}

/// Puts a worker that was just forked into its jail and tells the supervisor how it went.
///
/// On success the process has its streams and its data socket and nothing else, and may run guest code as soon
/// as the supervisor, who looks at it from outside first, sends some.
pub fn enter(
    child: ForkedChild,
    jail: &ZygoteJail,
    zygote: &Zygote,
    belongings: Belongings,
    birth: Birth,
) -> Result<(), Failure> {
    let [stdin, stdout, stderr] = &belongings.stdio;
    let mut kept = vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    kept.push(zygote.proc.as_fd());
    kept.extend(belongings.cgroup.iter().map(AsFd::as_fd));
    let mut stopwatch = Stopwatch::start();
    let held = child.hold(&kept, (belongings.data.as_fd(), DATA));
    let result = match held.in_step(Step::CloseDescriptors) {
        Ok(held) => {
            let closed = place(held).and_then(|tools| close_in(jail, tools, birth, &mut stopwatch));
            let told = report(closed.map(|()| stopwatch.timing()), &[]);
            told.in_step(Step::Report).and(closed)
        }
        Err(failure) => {
            // Nothing was moved yet. Where this fails there is nobody to tell.
            _ = report_on(belongings.data.as_fd(), Err(failure), &[]);
            Err(failure)
        }
    };
    std::mem::forget(belongings);
    result
}

/// First of all: the control socket and the other workers' descriptors are gone from here on.
fn place(held: Held) -> Result<Tools, Failure> {
    let mut placed = held.place().in_step(Step::CloseDescriptors)?.into_iter();
    // The streams belong to the process.
    placed.by_ref().take(3).for_each(|fd| _ = fd.into_raw_fd());
    Ok(Tools {
        proc: placed
            .next()
            .ok_or(Errno::EBADF)
            .in_step(Step::CloseDescriptors)?,
        cgroup: placed.collect(),
    })
}

/// What the jail's steps need; gone before guest code runs.
struct Tools {
    proc: OwnedFd,
    cgroup: Vec<OwnedFd>,
}

/// The order. Each line says why it stands where it does.
fn close_in(
    jail: &ZygoteJail,
    tools: Tools,
    birth: Birth,
    stopwatch: &mut Stopwatch,
) -> Result<(), Failure> {
    let plan = &jail.worker;
    stopwatch.end_of(Part::Descriptors);
    // First, so that every page and process from here on is charged to the worker.
    cgroup::join(&tools.cgroup).in_step(Step::JoinCgroup)?;
    stopwatch.end_of(Part::Cgroup);
    if let Some(ZygoteNamespaces { network }) = jail.namespaces {
        // After the cgroup was joined, which becomes the cgroup namespace's root.
        namespaces::unshare_worker(network).in_step(Step::UnshareWorker)?;
    }
    stopwatch.end_of(Part::Namespaces);
    // Before Landlock, under which nothing can be mounted, and before the guest's user namespace,
    // which has no privilege over this pid namespace and could not mount its /proc.
    root::mount_private(&plan.tmpfs, plan.proc)?;
    // Before guest code could replace what they name.
    send_handles(jail).in_step(Step::OpenHandles)?;
    stopwatch.end_of(Part::Mounts);
    limits::set_all(plan.rlimits_in_force(birth.cpu)).in_step(Step::Rlimits)?;
    limits::set_data(birth.zygote_bytes, plan.data_allowance).in_step(Step::Rlimits)?;
    if let Some(cores) = plan.pin_to_cores {
        // Before the filter, which takes the call away.
        limits::pin(cores, birth.first_core).in_step(Step::PinProcessors)?;
    }
    stopwatch.end_of(Part::Limits);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&birth.mask), None).in_step(Step::SignalMask)?;
    // Away from the zygote's session and its terminal, if it had one.
    setsid().in_step(Step::Session)?;
    chdir(&plan.cwd).in_step(Step::WorkDirectory)?;
    let outside = identity::current();
    if jail.namespaces.is_some() {
        // After the mounts. A user namespace of its own gives the worker its own kernel counts,
        // so that RLIMIT_NPROC, keys and the like are not shared between tenants.
        namespaces::unshare_user().in_step(Step::UserNamespace)?;
    }
    // Inherited from the zygote, and set again by the new namespace: while it holds, the files of
    // /proc/self are root's, and neither the id maps could be written nor the worker be checked.
    sys::process::set_dumpable(Dumpable::Yes).in_step(Step::Dumpable)?;
    if jail.namespaces.is_some() {
        identity::map(tools.proc.as_fd(), outside, jail.identity.inside).in_step(Step::MapIds)?;
    }
    // After the user namespace, or what the zygote and the other tenants have would count too.
    limits::set_counted(&plan.rlimits).in_step(Step::ProcessLimit)?;
    if let Some(headroom) = plan.process_headroom {
        limits::set_processes_beyond(tools.proc.as_fd(), headroom).in_step(Step::ProcessLimit)?;
    }
    stopwatch.end_of(Part::Identity);
    if let Some(rules) = &jail.landlock {
        // After the last mount, which it would refuse, and the last open by path.
        landlock::enforce(rules).in_step(Step::Landlock)?;
        witness::landlock()?;
    }
    if jail.namespaces.is_some() {
        witness::root()?;
    }
    stopwatch.end_of(Part::Landlock);
    // After the id maps and the mounts, which needed them.
    match jail.namespaces {
        Some(_) => capabilities::drop_all().in_step(Step::Capabilities)?,
        // Root's zygote emptied the bounding set; nobody else may, without a user namespace.
        None => capabilities::drop_own().in_step(Step::Capabilities)?,
    }
    witness::capabilities()?;
    // After the last change of credentials, each of which clears it.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).in_step(Step::DeathSignal)?;
    stopwatch.end_of(Part::Capabilities);
    drop(tools);
    // Last: it takes away what the lines above needed.
    for filter in &plan.filters {
        sys::seccomp::load(filter).in_step(Step::WorkerFilter)?;
    }
    witness::filters()?;
    stopwatch.end_of(Part::Seccomp);
    Ok(())
}

/// Sends the supervisor a handle on each directory that the guest can write to, opened while they
/// are certain to be the empty ones just mounted: it measures, and later reads, through these.
fn send_handles(jail: &ZygoteJail) -> Result<(), Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut handles = vec![open(&jail.worker.cwd, flags, Mode::empty())?];
    for tmpfs in jail
        .worker
        .tmpfs
        .iter()
        .filter(|tmpfs| tmpfs.target != jail.worker.cwd)
    {
        handles.push(open(&tmpfs.target, flags, Mode::empty())?);
    }
    let handles: Vec<BorrowedFd> = handles.iter().map(AsFd::as_fd).collect();
    report(Ok(Timing::default()), &handles)
}

fn report(result: Result<Timing, Failure>, handles: &[BorrowedFd]) -> Result<(), Errno> {
    let data = std::mem::ManuallyDrop::new(sys::descriptors::inherited(DATA));
    report_on(data.as_fd(), result, handles)
}

fn report_on(
    data: BorrowedFd,
    result: Result<Timing, Failure>,
    handles: &[BorrowedFd],
) -> Result<(), Errno> {
    sys::descriptors::send(data, &encode_report(result), handles)
}
