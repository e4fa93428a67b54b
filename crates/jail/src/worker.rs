//! The worker's jail. Each worker enters it once, between the fork and its first cell.

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, setsid};

use super::control::CpuBudgetScope;
use super::failure::{Failure, InStep, Step, encode_report};
use super::filter::unheard;
use super::program::{BpfProgram, Network, ProcessMemory, WorkerJail, ZygoteJail};
use super::timing::{Part, Stopwatch, Timing};
use super::zygote::Zygote;
use super::{
    DATA, capabilities, cgroup, identity, landlock, limits, loopback, namespaces, root, self_check,
};
use crate::sys;
use crate::sys::process::{Dumpable, ForkedChild, Held};

/// What the supervisor sends with a request for a worker.
pub struct WorkerFds {
    /// Standard input, output and error of the guest.
    pub stdio: [OwnedFd; 3],
    /// The worker's end of the data socket.
    pub data: OwnedFd,
    /// Open files of the cgroups to join.
    pub cgroup: Vec<OwnedFd>,
}

/// The parameters that differ between workers.
#[derive(Clone, Copy, Debug)]
pub struct ForkParams {
    /// The processor at which pinning starts, if the plan pins workers.
    pub first_core: usize,
    /// The zygote's private writable memory, bytes.
    pub zygote_bytes: u64,
    /// What the limit on processor time applies to.
    pub cpu: CpuBudgetScope,
    /// The signal mask of an ordinary process, for a zygote that has a mask of its own.
    pub mask: SigSet,
    /// The host uid to take, if the worker does not keep the zygote's.
    pub uid: Option<u32>,
}

/// Puts a just-forked worker into its jail and reports the result to the supervisor.
///
/// `network` is an empty network namespace that the zygote lends, unless the worker makes its own or the jail
/// has no namespaces. On success the process has only its streams and its data socket. It may run guest code as soon as the supervisor, which
/// first checks it from outside, sends some.
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
                .and_then(|tools| close_in(jail, &tools, fork_params, &mut stopwatch));
            let reported = report(closed.map(|()| stopwatch.timing()), &[]);
            reported.in_step(Step::Report).and(closed)
        }
        Err(failure) => {
            // No descriptor has moved yet. If this fails, there is no one to report to.
            _ = report_on(fds.data.as_fd(), Err(failure), &[]);
            Err(failure)
        }
    };
    std::mem::forget(fds);
    result
}

/// First of all steps: from here on the control socket and the other workers' descriptors are closed.
fn place(held: Held, network: Option<BorrowedFd>) -> Result<Tools, Failure> {
    let mut placed = held.place().in_step(Step::CloseDescriptors)?.into_iter();
    // The standard streams belong to the process.
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

/// What the jail's steps need. It is closed before guest code runs.
struct Tools {
    proc: OwnedFd,
    network: Option<OwnedFd>,
    cgroup: Vec<OwnedFd>,
}

/// The order of the jail. The comment on each line gives the reason for its place.
fn close_in(
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
        // After the worker joined its cgroup, which becomes the root of the cgroup namespace.
        namespaces::unshare_worker().in_step(Step::UnshareWorker)?;
    }
    // Before the guest's user namespace, which has no privilege over the network namespace.
    let sockets = enter_network(jail, tools)?;
    stopwatch.end_of(Part::Namespaces);
    // Before Landlock, which forbids every mount. Before the guest's user namespace, which has no privilege
    // over this pid namespace and could not mount its /proc.
    root::mount_private(plan)?;
    // Before guest code could replace the directories that the paths name.
    let mut handles = open_directories(jail, sockets).in_step(Step::OpenHandles)?;
    stopwatch.end_of(Part::Mounts);
    set_limits(plan, fork_params)?;
    stopwatch.end_of(Part::Limits);
    mask_signals(fork_params.mask).in_step(Step::SignalMask)?;
    // Leaves the zygote's session and its terminal, if it had one.
    setsid().in_step(Step::Session)?;
    chdir(&plan.cwd).in_step(Step::WorkDirectory)?;
    let outside = identity::current();
    if jail.namespaces.is_some() {
        // After the mounts. From here tenants do not share RLIMIT_NPROC, keys and similar per-user counts.
        namespaces::unshare_user().in_step(Step::UserNamespace)?;
    }
    // The zygote cleared dumpable, and a new user namespace clears it again. Otherwise root would own the
    // files of /proc/self: the worker could not write its id maps, and the supervisor could not check the
    // worker.
    sys::process::set_dumpable(Dumpable::Yes).in_step(Step::Dumpable)?;
    if jail.namespaces.is_some() {
        identity::map(tools.proc.as_fd(), outside, jail.identity.inside).in_step(Step::MapIds)?;
    }
    // After the user namespace, or usage of the zygote and of the other tenants would count too.
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
    // After the id maps and the mounts, which needed the capabilities.
    match jail.namespaces {
        Some(_) => capabilities::drop_all(),
        // Root's zygote has emptied the bounding set. No other user may, without a user namespace.
        None => capabilities::drop_own(),
    }
    .in_step(Step::Capabilities)?;
    self_check::capabilities()?;
    // After the last change of credentials, which clears this setting.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).in_step(Step::DeathSignal)?;
    stopwatch.end_of(Part::Capabilities);
    // Last: the filter takes away the calls that the lines above needed.
    handles.extend(load(&plan.filters).in_step(Step::WorkerFilter)?);
    self_check::filters()?;
    hand_over(handles).in_step(Step::Report)?;
    limits::set_open_files(&plan.rlimits).in_step(Step::Rlimits)?;
    stopwatch.end_of(Part::Seccomp);
    Ok(())
}

/// Sets the mask of an ordinary process, but for interrupts: the supervisor may send one for the first cell long before
/// that begins here, and CPython drops the signals that come before its hook for the fork has run. The guest's side of the worker
/// unblocks them.
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
        // Before the filter, which takes the call away.
        Some(cores) => limits::pin(cores, fork_params.first_core).in_step(Step::PinProcessors),
        None => Ok(()),
    }
}

/// Returns the sockets that the plan has in the worker's own network.
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
            // A container manager listens to a filter of its own. The kernel answers calls that would be asked
            // about with `ENOSYS`.
            Err(Errno::EBUSY) => sys::seccomp::load(&unheard(filter))?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(listener)
}

/// Sends the supervisor the directories, the sockets and the filter's listener, in one message, because each message
/// wakes it. Like all tools, they are closed here, before the last report, after which the supervisor checks
/// the open descriptors.
fn hand_over(handles: Vec<OwnedFd>) -> Result<(), Errno> {
    let borrowed: Vec<BorrowedFd> = handles.iter().map(AsFd::as_fd).collect();
    report(Ok(Timing::default()), &borrowed)?;
    drop(handles);
    Ok(())
}

/// Opens each directory that the guest can write to, while they are certain to be the empty directories just
/// mounted. The supervisor measures them, and later reads them, through these handles. Behind them it gets the sockets.
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
