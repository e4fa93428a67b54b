//! The interface between the state machine and its worker, and the implementation for a worker in its jail.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::files::{FileResult, perform_file_request};
use crate::plan::FileQuota;
use crate::protocol::FrameLimits;
use crate::protocol::caller::FileRequest;
use crate::protocol::message::CopyPoint;
use crate::supervisor::cgroup::{Counts, WorkerCgroup};
use crate::supervisor::clock;
use crate::supervisor::descriptors::set_nonblocking;
use crate::supervisor::drain::{Drained, Output, Stream};
use crate::supervisor::egress::WorkerNetwork;
use crate::supervisor::ending::Stop;
use crate::supervisor::error::{SupervisorError, While};
use crate::supervisor::files::{FileError, LentFiles};
use crate::supervisor::forwarded_calls::ForwardedCalls;
use crate::supervisor::link::{Link, LinkError};
use crate::supervisor::programs::{ProgramServer, Queue, StarterSocket, Terms};
use crate::supervisor::received_fd;
use crate::supervisor::refused_calls::RefusedCalls;
use crate::supervisor::run::{Files, Measured, Pace, RunContext, Watch};
use crate::supervisor::session_dir::SessionDirectory;
use crate::supervisor::snapshot::{Image, Medium, SnapshotRefusal, Source};
use crate::supervisor::spawn::Worker;
use crate::supervisor::verified_worker::VerifiedWorker;
use crate::waiters::lock;
use sandfork_jail::restore::Step;
use sandfork_jail::sys::{self, write_signals};

/// The operations of a worker that [`WorkerLife`](super::life::WorkerLife) needs. Tests implement them without a
/// process.
pub trait WorkerIo {
    /// Queues a frame, and a descriptor to send with it.
    fn send(&mut self, bytes: Vec<u8>, passed: Option<OwnedFd>);
    /// Takes the descriptor that the last frame announced.
    fn take_passed(&mut self) -> Result<OwnedFd, LinkError>;
    /// Returns a passed file of `wanted` bytes that can no longer change: the file itself or a copy. The guest pays for
    /// the time.
    fn accept(&mut self, passed: OwnedFd, wanted: u64) -> Result<OwnedFd, String>;
    /// Interrupts the running cell.
    fn interrupt(&mut self);
    /// Wakes a worker that began to wait before it noticed the interrupt.
    fn remind_of_interrupt(&mut self);
    /// Kills all processes of the worker.
    fn kill(&mut self);
    /// Returns the deadline for the end of a worker that was killed, or whose main process has ended.
    fn ends_by(&self) -> Instant;
    /// Whether the main process is exiting.
    fn is_ending(&self) -> bool;
    /// Reads the cgroup's counts since the worker was forked.
    fn counts(&mut self) -> Counts;
    /// Whether the cgroup was removed, judging by fresh counts: while a cgroup that counts CPU time exists, the kernel
    /// always reports that count.
    fn has_lost_cgroup(&self, counts: &Counts) -> bool;
    /// Restarts the watch of the limits. `counted` is the CPU time used so far in microseconds, if known, and `allowed`
    /// the CPU time that may be used from now on.
    fn restart_watch(&mut self, pace: Pace, now: Instant, counted: Option<u64>, allowed: Duration);
    /// Checks the limits that need polling, if a check is due.
    fn check_limits(&mut self, now: Instant) -> Option<Stop>;
    /// Returns when the next check of the limits is due.
    fn next_check(&self) -> Instant;
    /// Returns the largest values measured since the watch was last restarted.
    fn measured(&self) -> Measured;
    /// Measures the worker's files.
    fn files(&self) -> Files;
    /// Carries out a caller's file request.
    fn perform_file_request(&mut self, request: &FileRequest) -> Result<FileResult, FileError>;
    /// Forgets the files lent to the caller for writing that the caller has closed. Call this before the guest can open
    /// them.
    fn note_closed_files(&mut self);
    /// Requires that there is room for another copy of the session on `medium`, and that only the worker's main thread
    /// runs.
    fn require_copyable(&mut self, medium: Medium) -> Result<(), SnapshotRefusal>;
    /// Whether the main process is asleep.
    fn is_asleep(&self) -> bool;
    /// Copies a worker that is stopped at the copy point `standing` and has run `cells` cells.
    fn capture(
        &mut self,
        standing: CopyPoint,
        cells: u64,
        medium: Medium,
    ) -> Result<Image, SnapshotRefusal>;
    /// Whether programs of the caller run or its directories are watched.
    fn is_used(&self) -> bool;
    /// Leaves programs that are requested from now on to the next worker. Returns false, and changes nothing, if this
    /// worker already has programs.
    fn defer_programs(&mut self) -> bool;
    /// Gives the worker the socket over which it receives the links of its starters. It follows the worker's first
    /// message.
    fn send_starter_socket(&mut self);
    /// Whether programs of the caller run or are about to start.
    fn runs_programs(&self) -> bool;
    /// Stores a copy. Returns its number.
    fn keep(&mut self, image: Arc<Image>) -> u64;
    /// Encodes what the worker must do before its memory is replaced by that of `image`.
    fn restore_order(&self, image: &Image) -> Result<Vec<u8>, SnapshotRefusal>;
    /// Plans the steps that replace the worker's memory. The worker is stopped at `own`, and next replies to request
    /// `number`.
    fn plan(
        &self,
        image: &Image,
        own: &CopyPoint,
        number: u64,
    ) -> Result<(OwnedFd, Vec<Step>), SnapshotRefusal>;
    /// Returns the worker's connection to the egress process, if it has one.
    fn network(&mut self) -> Option<&mut WorkerNetwork>;
    /// Takes the refused system calls that were counted since they were last taken.
    fn refused_calls(&mut self) -> RefusedCalls;
    /// Reads the output that is available now.
    fn drain(&mut self, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> Drained;
    /// Returns the output of a stream captured since output was last taken.
    fn captured(&self, stream: Stream) -> &[u8];
    /// Takes the captured stdout and stderr, and the number of bytes in both. Later output is counted from zero.
    fn take_output(&mut self) -> (Vec<u8>, Vec<u8>, u64);
}

/// A worker in its jail.
pub struct JailedWorker<'a> {
    pub(super) context: &'a RunContext<'a>,
    pub(super) verified: &'a VerifiedWorker,
    pub(super) watch: Watch<'a>,
    /// Whether the worker's last process has ended.
    pub(super) is_gone: bool,
    /// The files that the caller may still be writing.
    pub(super) lent: LentFiles,
    /// The image that was restored into the worker or copied from it last, as long as its caller keeps it. The next
    /// copy shares its pages.
    pub(super) base_image: Weak<Image>,
    pub(super) forwarded: ForwardedCalls<'a>,
    pub(super) network: Option<WorkerNetwork>,
    pub(super) programs: Option<ProgramServer<'a>>,
    pub(super) starter_socket: Option<StarterSocket>,
    pub(super) link: Link<&'a OwnedFd>,
    pub(super) output: Output<'a>,
}

impl<'a> JailedWorker<'a> {
    /// Prepares to serve a worker that is ready in its jail.
    pub fn new(
        context: &'a RunContext<'a>,
        verified: &'a VerifiedWorker,
    ) -> Result<Self, SupervisorError> {
        let worker = &verified.worker;
        for pipe in [&worker.ends.stdout, &worker.ends.stderr] {
            set_nonblocking(pipe).when("prepare the worker's streams")?;
        }
        let link = Link::new(&worker.ends.data, FrameLimits::FROM_WORKER);
        Ok(Self {
            context,
            verified,
            watch: Watch::new(verified, context),
            is_gone: false,
            lent: LentFiles::new(),
            base_image: Weak::new(),
            forwarded: ForwardedCalls::new(verified),
            network: lock(&verified.network).take(),
            programs: None,
            starter_socket: lock(&verified.starter_socket).take(),
            link: link.when("prepare the worker's link")?,
            output: Output::new(
                &worker.ends.stdout,
                &worker.ends.stderr,
                context.limits.output(),
            ),
        })
    }

    /// The worker.
    pub fn worker(&self) -> &'a Worker {
        &self.verified.worker
    }

    /// Serves the programs that callers request through this queue.
    pub fn serve_programs(&mut self, queue: Arc<Queue>) {
        let (jail, session) = (&self.context.jail.worker, self.verified.session.as_ref());
        let work = session.map_or(jail.cwd.as_path(), SessionDirectory::path);
        let terms = Terms {
            work: work.to_string_lossy().into_owned(),
            files: self.work_dir().ok(),
            has_programs: self.context.grants.shows_programs(),
            has_terminals: jail.ptys.is_some(),
        };
        queue.serve(self.verified.worker.ids.map(|ids| ids.uid));
        self.programs = Some(ProgramServer::new(queue, terms));
    }
}

impl WorkerIo for JailedWorker<'_> {
    fn send(&mut self, bytes: Vec<u8>, passed: Option<OwnedFd>) {
        self.link.send(bytes, passed);
    }

    fn take_passed(&mut self) -> Result<OwnedFd, LinkError> {
        self.link.take_passed()
    }

    fn accept(&mut self, passed: OwnedFd, wanted: u64) -> Result<OwnedFd, String> {
        let (limits, began) = (&self.context.limits, clock::now());
        let most = limits.work_size().max(limits.tmp_size());
        let accepted = received_fd::accept(passed, wanted, most);
        self.watch.charge(clock::now() - began);
        accepted
    }

    fn interrupt(&mut self) {
        // Fails if the process has ended, which the monitor reports.
        _ = sys::pidfd::signal(self.worker().process.as_fd(), Signal::SIGINT);
    }

    fn remind_of_interrupt(&mut self) {
        // CPython's signal handler only sets a flag, which the interpreter checks between bytecodes and after an
        // interrupted system call. A system call that begins between the signal and the check keeps waiting. The
        // worker's handler for SIGURG does nothing, so that this signal only interrupts the system call. Guest code may
        // disable that.
        _ = sys::pidfd::signal(self.worker().process.as_fd(), Signal::SIGURG);
    }

    fn kill(&mut self) {
        self.worker().kill();
    }

    fn ends_by(&self) -> Instant {
        self.worker().ends_by()
    }

    fn is_ending(&self) -> bool {
        self.worker().proc.is_ending()
    }

    fn counts(&mut self) -> Counts {
        let counts = if self.is_gone {
            WorkerCgroup::last_counts
        } else {
            WorkerCgroup::counts
        };
        let cgroup = self.verified.cgroup.as_ref();
        cgroup.map(counts).unwrap_or_default()
    }

    fn has_lost_cgroup(&self, counts: &Counts) -> bool {
        let cgroup = self.verified.cgroup.as_ref();
        cgroup.is_some_and(WorkerCgroup::counts_cpu) && counts.cpu_us.is_none()
    }

    fn restart_watch(&mut self, pace: Pace, now: Instant, counted: Option<u64>, allowed: Duration) {
        self.watch.restart(pace, now, counted, allowed);
    }

    fn check_limits(&mut self, now: Instant) -> Option<Stop> {
        self.watch.check(now)
    }

    fn next_check(&self) -> Instant {
        self.watch.next()
    }

    fn measured(&self) -> Measured {
        self.watch.since_restart()
    }

    fn files(&self) -> Files {
        match &self.verified.session {
            Some(session) => Files::of_session(session, FileQuota::new(&self.context.limits)),
            None => Files::measure(&self.worker().directories),
        }
    }

    fn perform_file_request(&mut self, request: &FileRequest) -> Result<FileResult, FileError> {
        let done = perform_file_request(&self.work_dir()?, request)?;
        self.lent.extend(done.lent.clone());
        Ok(done)
    }

    fn note_closed_files(&mut self) {
        if let Ok(work) = self.work_dir()
            && !self.lent.is_empty()
        {
            work.forget_unwritten(&mut self.lent);
        }
    }

    fn require_copyable(&mut self, medium: Medium) -> Result<(), SnapshotRefusal> {
        self.room(medium, None)?;
        self.require_single()
    }

    fn is_asleep(&self) -> bool {
        self.worker().proc.is_asleep()
    }

    fn capture(
        &mut self,
        standing: CopyPoint,
        cells: u64,
        medium: Medium,
    ) -> Result<Image, SnapshotRefusal> {
        // A program may have started since the request was accepted.
        self.require_single()?;
        let base_image = self.base_image.upgrade();
        let base = match medium {
            Medium::Memory => base_image.as_deref().and_then(Image::base),
            Medium::Disk => None,
        };
        let room = self.room(medium, base)?;
        let source = Source {
            base,
            ..self.source(cells)
        };
        write_signals::as_errors(|| source.capture(standing, room, medium))
    }

    fn is_used(&self) -> bool {
        self.programs.as_ref().is_some_and(ProgramServer::is_used)
    }

    fn defer_programs(&mut self) -> bool {
        self.programs.as_mut().is_none_or(ProgramServer::rest)
    }

    fn send_starter_socket(&mut self) {
        // If descriptors have run out, the session cannot start programs. The worker still waits for the byte.
        let (starter_socket, theirs) = StarterSocket::new().ok().unzip();
        self.link.send(vec![0], theirs);
        self.starter_socket = starter_socket;
    }

    fn runs_programs(&self) -> bool {
        self.programs.as_ref().is_some_and(ProgramServer::is_busy)
    }

    fn keep(&mut self, image: Arc<Image>) -> u64 {
        self.base_image = Arc::downgrade(&image);
        self.context.snapshots.put(self.context.session, image)
    }

    fn restore_order(&self, image: &Image) -> Result<Vec<u8>, SnapshotRefusal> {
        image.order(&self.context.jail.worker)
    }

    fn plan(
        &self,
        image: &Image,
        own: &CopyPoint,
        number: u64,
    ) -> Result<(OwnedFd, Vec<Step>), SnapshotRefusal> {
        image.plan(&self.source(0), own, number)
    }

    fn network(&mut self) -> Option<&mut WorkerNetwork> {
        self.network.as_mut()
    }

    fn refused_calls(&mut self) -> RefusedCalls {
        self.forwarded.take_refused()
    }

    fn drain(&mut self, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> Drained {
        self.output.drain(stream, sink)
    }

    fn captured(&self, stream: Stream) -> &[u8] {
        self.output.captured(stream)
    }

    fn take_output(&mut self) -> (Vec<u8>, Vec<u8>, u64) {
        self.output.take()
    }
}
