//! The zygote's event loop: forks a worker for each request, reaps workers, and reports their ends.

mod fork;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid};

use self::fork::Forked;
use crate::native::allowance;
use crate::native::networks::{Network, Networks};
use crate::native::python;
use crate::native::snapshot::Arenas;
use sandfork_jail::control::{
    Beneath, ExitStatus, FromMonitor, MAX_MESSAGE, MAX_WORKERS, ToZygote, recv_message,
    send_message,
};
use sandfork_jail::failure::{Failure, InStep, Step};
use sandfork_jail::program::{Network as NetworkOf, ProcessMemory, ZygoteJail};
use sandfork_jail::sys;
use sandfork_jail::sys::namespace_init::{InitStacks, NamespaceInit};
use sandfork_jail::sys::process::SingleThreaded;
use sandfork_jail::tree;
use sandfork_jail::worker::{ForkParams, WorkerFds};
use sandfork_jail::zygote::Zygote;

/// How serving ended.
pub enum Served {
    /// In the zygote: the supervisor closed the control socket.
    Finished,
    /// In a worker whose jail is complete. Contains the environment variables that differ from the zygote's.
    Worker(Vec<(String, String)>),
    /// In a worker that failed to enter its jail and has reported that. It must exit.
    Failed,
}

/// A zygote that serves requests.
pub struct Server {
    control: OwnedFd,
    jail: ZygoteJail,
    zygote: Zygote,
    single: SingleThreaded,
    stacks: InitStacks,
    /// The pidfd of the zygote, to return to its pid namespace after each fork.
    home: OwnedFd,
    /// Whether the zygote's next child would enter another pid namespace.
    pid_ns_unshared: bool,
    /// The pool of network namespaces, unless workers create their own.
    networks: Option<Networks>,
    events: Epoll,
    children: SignalFd,
    mask_before: SigSet,
    /// Not a hash map, which requests random numbers from the kernel and panics if it gets none.
    workers: BTreeMap<Pid, Worker>,
    /// At level `landlock`: each worker's reaper and monitor.
    reapers: BTreeMap<Pid, OwnedFd>,
    zygote_bytes: u64,
}

struct Worker {
    monitor: OwnedFd,
    init: NamespaceInit,
    network: Option<Network>,
    alive: bool,
}

const CONTROL: u64 = 0;
const CHILDREN: u64 = 1;

impl Server {
    /// Prepares to serve. Fails with `EBUSY` if the process has more than one thread.
    pub fn new(control: OwnedFd, jail: ZygoteJail, zygote: Zygote) -> Result<Self, Failure> {
        let single = SingleThreaded::count(zygote.proc.as_fd()).in_step(Step::Fork)?;
        let proc = zygote.proc.as_fd();
        python::log_arenas::<Arenas>();
        if let ProcessMemory::Touched(bytes) = jail.worker.memory {
            allowance::set_allowance(proc, bytes).in_step(Step::Fork)?;
        }
        let bytes = sys::procfs::data(proc, "self/statm").in_step(Step::Fork)?;
        Self::with_event_loop(control, jail, zygote, single, bytes).in_step(Step::Fork)
    }

    fn with_event_loop(
        control: OwnedFd,
        jail: ZygoteJail,
        zygote: Zygote,
        single: SingleThreaded,
        zygote_bytes: u64,
    ) -> Result<Self, Errno> {
        let mut sigchld = SigSet::empty();
        sigchld.add(Signal::SIGCHLD);
        let mut mask_before = SigSet::empty();
        sigprocmask(
            SigmaskHow::SIG_BLOCK,
            Some(&sigchld),
            Some(&mut mask_before),
        )?;
        let children =
            SignalFd::with_flags(&sigchld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let events = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        events.add(&control, EpollEvent::new(EpollFlags::EPOLLIN, CONTROL))?;
        events.add(&children, EpollEvent::new(EpollFlags::EPOLLIN, CHILDREN))?;
        let networks = match jail.namespaces.map(|own| own.network) {
            Some(NetworkOf::None) => Some(Networks::new(zygote.proc.as_fd())?),
            Some(NetworkOf::Loopback) | None => None,
        };
        Ok(Self {
            control,
            jail,
            zygote,
            single,
            networks,
            stacks: InitStacks::reserve(usize::from(MAX_WORKERS))?,
            home: sys::pidfd::open(getpid())?,
            pid_ns_unshared: false,
            events,
            children,
            mask_before,
            workers: BTreeMap::new(),
            reapers: BTreeMap::new(),
            zygote_bytes,
        })
    }

    /// Serves until the supervisor is gone, or returns in a worker.
    pub fn serve(mut self) -> Result<Served, Errno> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let mut events = [EpollEvent::empty(); 32];
        loop {
            let ready = match self.events.wait(&mut events, EpollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            for event in &events[..ready] {
                match event.data() {
                    CONTROL => match recv_message(self.control.as_fd(), &mut buffer) {
                        // The request's descriptors exceeded this process's limit. Those that did arrive are closed,
                        // which reports the failure of this one worker; the others are unaffected.
                        Err(Errno::EMSGSIZE | Errno::EMFILE | Errno::ENFILE) => {}
                        Err(errno) => return Err(errno),
                        Ok(None) => return Ok(Served::Finished),
                        Ok(Some((ToZygote::Enter { .. }, _))) => return Err(Errno::EPROTO),
                        Ok(Some((
                            ToZygote::Spawn {
                                first_core,
                                work,
                                cpu,
                                uid,
                            },
                            fds,
                        ))) => {
                            let birth = ForkParams {
                                first_core,
                                zygote_bytes: self.zygote_bytes,
                                cpu,
                                // Guest code starts with the signal mask of an ordinary process.
                                mask: self.mask_before,
                                uid,
                            };
                            match self.spawn(birth, work.as_deref(), fds)? {
                                None => {}
                                Some(served) => {
                                    // These descriptor numbers belong to the worker now, so they must not be closed.
                                    std::mem::forget(self);
                                    return Ok(served);
                                }
                            }
                        }
                    },
                    CHILDREN => self.reap()?,
                    key => self.abandon(key),
                }
            }
        }
    }

    /// Serves one request. Returns `Some` in the worker.
    fn spawn(
        &mut self,
        birth: ForkParams,
        work: Option<&Path>,
        fds: Vec<OwnedFd>,
    ) -> Result<Option<Served>, Errno> {
        let mut fds = fds.into_iter();
        let (Some(stdin), Some(stdout), Some(stderr), Some(data), Some(monitor)) =
            (fds.next(), fds.next(), fds.next(), fds.next(), fds.next())
        else {
            return Err(Errno::EPROTO);
        };
        let worker_fds = WorkerFds {
            stdio: [stdin, stdout, stderr],
            data,
            cgroup: fds.collect(),
        };
        let network = match self.lend_network() {
            Ok(network) => network,
            Err(failure) => {
                report_not_born(&monitor, failure);
                return Ok(None);
            }
        };
        match self.fork_worker(&monitor) {
            Ok(Forked::Worker(child)) => {
                if let Some(directory) = work {
                    self.jail.put_work_in(directory);
                }
                let (jail, zygote) = (&self.jail, &self.zygote);
                let lent = network.as_ref().map(AsFd::as_fd);
                let entered =
                    sandfork_jail::worker::enter(child, jail, zygote, worker_fds, lent, birth);
                std::mem::forget((monitor, network));
                let env = match work {
                    Some(_) => std::mem::take(&mut self.jail.env),
                    None => Vec::new(),
                };
                Ok(Some(match entered {
                    Ok(()) => Served::Worker(env),
                    Err(_) => Served::Failed,
                }))
            }
            Ok(Forked::Parent { pid, pidfd, init }) => {
                let worker = Worker {
                    monitor,
                    init,
                    network,
                    alive: true,
                };
                self.report_birth(pid, &pidfd, worker);
                Ok(None)
            }
            Ok(Forked::Reaper(pid)) => {
                // The reaper uses the monitor. The zygote keeps it open until no process of the worker is left.
                self.reapers.insert(pid, monitor);
                Ok(None)
            }
            Err(failure) => {
                self.take_back(network);
                report_not_born(&monitor, failure);
                Ok(None)
            }
        }
    }

    /// Reports a worker to the supervisor. From then on the zygote reaps it.
    fn report_birth(&mut self, pid: Pid, pidfd: &OwnedFd, worker: Worker) {
        let key = u64::try_from(pid.as_raw()).unwrap_or(u64::MAX);
        let hang_up = EpollEvent::new(EpollFlags::EPOLLRDHUP, key);
        let handles = [pidfd.as_fd(), worker.init.pidfd.as_fd()];
        let beneath = Beneath::Init;
        let born = FromMonitor::Born { beneath };
        let known = self
            .events
            .add(&worker.monitor, hang_up)
            .and_then(|()| send_message(worker.monitor.as_fd(), &born, &handles));
        if let Err(errno) = known {
            // The worker could not be watched or reported, so end it. A supervisor that is still there receives a
            // report, if possible, and sees the worker's monitor closed.
            self.stacks.end(&worker.init, Some(pid));
            self.take_back(worker.network);
            let step = Step::ReportBirth;
            report_not_born(&worker.monitor, Failure { step, errno });
        } else {
            self.workers.insert(pid, worker);
        }
    }

    /// Returns a network namespace for the next worker, unless workers create their own.
    fn lend_network(&mut self) -> Result<Option<Network>, Failure> {
        let proc = self.zygote.proc.as_fd();
        let networks = self.networks.as_mut();
        let lent = networks.map(|networks| networks.lend(proc)).transpose();
        lent.in_step(Step::LendNetwork)
    }

    /// Puts the namespace of a worker that has no process left back into the pool.
    fn take_back(&mut self, network: Option<Network>) {
        if let (Some(networks), Some(network)) = (&mut self.networks, network) {
            networks.take_back(network);
        }
    }

    /// Reaps every child that has ended. The end of a worker ends its namespace, and the end of its namespace releases
    /// the monitor.
    fn reap(&mut self) -> Result<(), Errno> {
        while self.children.read_signal()?.is_some() {}
        while let Some((pid, exit)) = sys::process::reap_any()? {
            if let Some(worker) = self.workers.get_mut(&pid) {
                worker.alive = false;
                let exited = FromMonitor::exited(exit);
                _ = send_message(worker.monitor.as_fd(), &exited, &[]);
                _ = sys::pidfd::signal(worker.init.pidfd.as_fd(), Signal::SIGKILL);
                continue;
            }
            if let Some(monitor) = self.reapers.remove(&pid) {
                if exit.status != ExitStatus::Code(0) {
                    // The reaper could not end its worker. This process has adopted the worker's remaining processes.
                    let others: Vec<Pid> = self.reapers.keys().copied().collect();
                    tree::kill_beneath(self.zygote.proc.as_fd(), &others);
                }
                drop(monitor);
                continue;
            }
            let owner = self
                .workers
                .iter()
                .find(|(_, worker)| worker.init.pid == pid)
                .map(|(owner, worker)| (*owner, worker.alive));
            if let Some((owner, false)) = owner {
                self.forget_worker(owner);
            }
        }
        Ok(())
    }

    fn forget_worker(&mut self, pid: Pid) {
        if let Some(worker) = self.workers.remove(&pid) {
            _ = self.events.delete(&worker.monitor);
            self.stacks.release(&worker.init);
            self.take_back(worker.network);
        }
    }

    /// Ends the namespace of a worker that the supervisor has given up on.
    fn abandon(&mut self, key: u64) {
        let Some(worker) = i32::try_from(key)
            .ok()
            .and_then(|pid| self.workers.get(&Pid::from_raw(pid)))
        else {
            return;
        };
        // Remove the monitor, because epoll would report the hang-up again until the worker is reaped.
        _ = self.events.delete(&worker.monitor);
        _ = sys::pidfd::signal(worker.init.pidfd.as_fd(), Signal::SIGKILL);
    }
}

/// Reports a worker that was not born. If this fails, the supervisor sees the worker's monitor closed.
pub fn report_not_born(monitor: impl AsFd, failure: Failure) {
    _ = send_message(monitor.as_fd(), &FromMonitor::not_born(failure), &[]);
}
