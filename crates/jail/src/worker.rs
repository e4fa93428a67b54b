//! Enters a worker's jail: once per worker, between the fork and its first cell.

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, setsid};

use super::control::CpuBudgetScope;
use super::failure::{Failure, InStep, Step, encode_report};
use super::filter::without_listener;
use super::program::{BpfProgram, Network, ProcessMemory, WorkerJail, ZygoteJail};
use super::timing::{Part, Stopwatch, Timing};
use super::zygote::Zygote;
use super::{
    DATA, capabilities, cgroup, identity, landlock, limits, loopback, namespaces, root, self_check,
};
use crate::sys;
use crate::sys::process::{Dumpable, ForkedChild, Held};

/// The descriptors that the supervisor sends with a request for a worker.
pub struct WorkerFds {
    /// Standard input, output and error of the guest.
    pub stdio: [OwnedFd; 3],
    /// The worker's end of the data socket.
    pub data: OwnedFd,
    /// Open `tasks` or `cgroup.procs` files of the cgroups to join.
    pub cgroup: Vec<OwnedFd>,
}

/// The parameters that differ between workers.
#[derive(Clone, Copy, Debug)]
pub struct ForkParams {
    /// The processor at which pinning starts, if the plan pins workers.
    pub first_core: usize,
    /// The zygote's private writable memory, bytes.
    pub zygote_bytes: u64,
    /// The scope of the CPU limit.
    pub cpu: CpuBudgetScope,
    /// The signal mask of an ordinary process, because the zygote has its own mask.
    pub mask: SigSet,
    /// The host uid to switch to, unless the worker keeps the zygote's.
    pub uid: Option<u32>,
}

/// Puts a just-forked worker into its jail and reports the result to the supervisor.
///
/// `network` is an empty network namespace lent by the zygote. It is `None` if the worker makes its own namespace or
/// the jail has none. On success the process has only its standard streams and its data socket. The supervisor then
/// checks the worker from outside, and only then sends code.
pub fn enter(
    child: ForkedChild,
    jail: &ZygoteJail,
    zygote: &Zygote,
    fds: WorkerFds,
    network: Option<BorrowedFd>,
    fork_params: ForkParams,
) -> Result<(), Failure> {
    let [stdin, stdout, stderr] = &fds.stdio;
    let mut kept = vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    kept.push(zygote.proc.as_fd());
    kept.extend(network);
    kept.extend(fds.cgroup.iter().map(AsFd::as_fd));
    let mut stopwatch = Stopwatch::start();
    let held = child.hold(&kept, (fds.data.as_fd(), DATA));
    let result = match held.in_step(Step::CloseDescriptors) {
        Ok(held) => {
            let closed = place(held, network)
                .and_then(|tools| apply_layers(jail, &tools, fork_params, &mut stopwatch));
            let reported = report(closed.map(|()| stopwatch.timing()), &[]);
            reported.in_step(Step::Report).and(closed)
        }
        Err(failure) => {
            // No descriptor has been moved yet. If this send fails, no peer is left to report to.
            _ = report_on(fds.data.as_fd(), Err(failure), &[]);
            Err(failure)
        }
    };
    // These descriptor numbers were closed or reused by `place`, so they must not be closed again.
    std::mem::forget(fds);
    result
}

/// Moves the kept descriptors to their numbers and closes all others. This is the first step: it closes the control
/// socket and the other workers' descriptors.
fn place(held: Held, network: Option<BorrowedFd>) -> Result<Tools, Failure> {
    let mut placed = held.place().in_step(Step::CloseDescriptors)?.into_iter();
    // The standard streams belong to the process and stay open.
    placed.by_ref().take(3).for_each(|fd| _ = fd.into_raw_fd());
    Ok(Tools {
        proc: placed
            .next()
            .ok_or(Errno::EBADF)
            .in_step(Step::CloseDescriptors)?,
        network: network.and_then(|_| placed.next()),
        cgroup: placed.collect(),
    })
}

/// The descriptors that the steps of the jail need. They are closed before guest code runs.
struct Tools {
    proc: OwnedFd,
    network: Option<OwnedFd>,
    cgroup: Vec<OwnedFd>,
}

/// Applies all layers of the jail. The comment on each step gives the reason for its position.
fn apply_layers(
    jail: &ZygoteJail,
    tools: &Tools,
    fork_params: ForkParams,
    stopwatch: &mut Stopwatch,
) -> Result<(), Failure> {
    let plan = &jail.worker;
    stopwatch.end_of(Part::Descriptors);
    // First, so that every later page and process is charged to the worker.
    cgroup::join(&tools.cgroup).in_step(Step::JoinCgroup)?;
    stopwatch.end_of(Part::Cgroup);
    if let Some(uid) = fork_params.uid {
        // Before the mounts, which belong to the uid that makes them.
        identity::become_worker(uid).in_step(Step::WorkerUid)?;
    }
    if jail.namespaces.is_some() {
        // After joining the cgroup, which becomes the root of the cgroup namespace.
        namespaces::unshare_worker().in_step(Step::UnshareWorker)?;
    }
    // Before the guest's user namespace, which has no privileges over the network namespace.
    let sockets = enter_network(jail, tools)?;
    stopwatch.end_of(Part::Namespaces);
    // Before Landlock, which forbids every mount, and before the guest's user namespace, which has no privileges over
    // this pid namespace and could not mount its /proc.
    root::mount_private(plan)?;
    // Before guest code could replace the directories at these paths.
    let mut handles = open_directories(jail, sockets).in_step(Step::OpenHandles)?;
    stopwatch.end_of(Part::Mounts);
    set_limits(plan, fork_params)?;
    stopwatch.end_of(Part::Limits);
    mask_signals(fork_params.mask).in_step(Step::SignalMask)?;
    // Leave the zygote's session, and with it any controlling terminal.
    setsid().in_step(Step::Session)?;
    chdir(&plan.cwd).in_step(Step::WorkDirectory)?;
    let outside = identity::current();
    if jail.namespaces.is_some() {
        // After the mounts. From here on tenants do not share RLIMIT_NPROC, keys and other per-user counts.
        namespaces::unshare_user().in_step(Step::UserNamespace)?;
    }
    // The zygote cleared the dumpable flag, and a new user namespace clears it again. Without it root owns the files of
    // /proc/self: the worker could not write its id maps, and the supervisor could not check the worker.
    sys::process::set_dumpable(Dumpable::Yes).in_step(Step::Dumpable)?;
    if jail.namespaces.is_some() {
        identity::map(tools.proc.as_fd(), outside, jail.identity.inside).in_step(Step::MapIds)?;
    }
    // After the user namespace: before it, the usage of the zygote and of other tenants would count too.
    limits::set_counted(&plan.rlimits).in_step(Step::ProcessLimit)?;
    if let Some(headroom) = plan.process_headroom {
        limits::set_processes_beyond(tools.proc.as_fd(), headroom).in_step(Step::ProcessLimit)?;
    }
    stopwatch.end_of(Part::Identity);
    if let Some(rules) = &jail.landlock {
        // After the last mount, which Landlock would refuse, and after the last open by path.
        landlock::enforce(rules, jail.network()).in_step(Step::Landlock)?;
        self_check::landlock(jail.namespaces)?;
    }
    if jail.namespaces.is_some() {
        self_check::root()?;
    }
    stopwatch.end_of(Part::Landlock);
    // After the id maps and the mounts, which need the capabilities.
    match jail.namespaces {
        Some(_) => capabilities::drop_all(),
        // A root launcher's zygote has emptied the bounding set. Another user may not do that without a user namespace.
        None => capabilities::drop_own(),
    }
    .in_step(Step::Capabilities)?;
    self_check::capabilities()?;
    // After the last change of credentials, which clears this setting.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).in_step(Step::DeathSignal)?;
    stopwatch.end_of(Part::Capabilities);
    // Last: the filter forbids calls that the steps above needed.
    handles.extend(load(&plan.filters).in_step(Step::WorkerFilter)?);
    self_check::filters()?;
    hand_over(handles).in_step(Step::Report)?;
    limits::set_open_files(&plan.rlimits).in_step(Step::Rlimits)?;
    stopwatch.end_of(Part::Seccomp);
    Ok(())
}

/// Sets the signal mask of an ordinary process, plus SIGINT. The supervisor may send an interrupt for the first cell
/// long before the cell begins here, and CPython drops signals that arrive before its after-fork hook has run. The
/// worker's Python code unblocks SIGINT.
fn mask_signals(mut ordinary: SigSet) -> Result<(), Errno> {
    ordinary.add(Signal::SIGINT);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&ordinary), None)
}

fn set_limits(plan: &WorkerJail, fork_params: ForkParams) -> Result<(), Failure> {
    limits::set_all(plan.rlimits_in_force(fork_params.cpu)).in_step(Step::Rlimits)?;
    if let ProcessMemory::Mapped(allowance) = plan.memory {
        limits::set_data(fork_params.zygote_bytes, allowance).in_step(Step::Rlimits)?;
    }
    match plan.pin_to_cores {
        // Before the filter, which forbids the call.
        Some(cores) => limits::pin(cores, fork_params.first_core).in_step(Step::PinProcessors),
        None => Ok(()),
    }
}

/// Enters the worker's network namespace. Returns the sockets that the plan places in a namespace of the worker's own.
fn enter_network(jail: &ZygoteJail, tools: &Tools) -> Result<Vec<OwnedFd>, Failure> {
    match jail.namespaces.map(|own| own.network) {
        None => Ok(Vec::new()),
        Some(Network::None) => {
            let lent = tools.network.as_ref().ok_or(Errno::EBADF);
            let entered = lent.and_then(|lent| namespaces::enter_network(lent.as_fd()));
            entered.in_step(Step::EnterNetwork).map(|()| Vec::new())
        }
        Some(Network::Loopback) => loopback::make(tools.proc.as_fd(), &jail.worker),
    }
}

fn load(filters: &[BpfProgram]) -> Result<Option<OwnedFd>, Errno> {
    let mut listener = None;
    for filter in filters {
        match sys::seccomp::load_with_listener(filter) {
            Ok(own) => listener = Some(own),
            // A container manager already listens to one of its own filters, and the kernel allows one listener per
            // process. Without a listener the kernel answers `SECCOMP_RET_USER_NOTIF` with `ENOSYS`, so these
            // verdicts are replaced.
            Err(Errno::EBUSY) => sys::seccomp::load(&without_listener(filter))?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(listener)
}

/// Sends the supervisor the directories, the sockets and the filter's listener. They go in one message, because each
/// message wakes the supervisor. They are closed here, before the last report, because the supervisor checks the open
/// descriptors after that report.
fn hand_over(handles: Vec<OwnedFd>) -> Result<(), Errno> {
    let borrowed: Vec<BorrowedFd> = handles.iter().map(AsFd::as_fd).collect();
    report(Ok(Timing::default()), &borrowed)?;
    drop(handles);
    Ok(())
}

/// Opens each directory that the guest can write to, while the paths are certain to name the empty directories just
/// mounted. The supervisor measures the directories, and later reads them, through these handles. Returns the handles,
/// followed by `sockets`.
fn open_directories(jail: &ZygoteJail, sockets: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directories = jail.worker.writable_directories();
    let opened = directories.map(|path| open(path, flags, Mode::empty()));
    opened.chain(sockets.into_iter().map(Ok)).collect()
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
