//! What a session does to its worker, and asks about it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::files::{Done, do_with_file};
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
use crate::supervisor::programs::{ProgramServer, Queue, Summons, Terms};
use crate::supervisor::received_fd;
use crate::supervisor::refused_calls::RefusedCalls;
use crate::supervisor::run::{Files, Measured, Pace, RunContext, Watch};
use crate::supervisor::session::SessionDirectory;
use crate::supervisor::snapshot::{Image, Medium, SnapshotRefusal, Source};
use crate::supervisor::spawn::Worker;
use crate::supervisor::verified_worker::VerifiedWorker;
use crate::waiters::lock;
use sandfork_jail::restore::Step;
use sandfork_jail::sys::{self, write_signals};

/// A worker, as [`WorkerLife`](super::life::WorkerLife) sees it. Tests put a value in its place.
pub trait WorkerIo {
    /// Queues a frame's bytes, with a descriptor that goes with them.
    fn send(&mut self, bytes: Vec<u8>, passed: Option<OwnedFd>);
    /// Takes the descriptor that the last frame announced.
    fn take_passed(&mut self) -> Result<OwnedFd, LinkError>;
    /// Returns a passed file of this size that can no longer be changed, or a copy, at the guest's expense.
    fn accept(&mut self, passed: OwnedFd, wanted: u64) -> Result<OwnedFd, String>;
    /// Interrupts the running cell.
    fn interrupt(&mut self);
    /// Ends a wait that the worker began without having noticed the interrupt.
    fn remind_of_interrupt(&mut self);
    /// Kills all processes of the worker.
    fn kill(&mut self);
    /// When to stop waiting for the end of a worker that was killed, or whose main process has ended.
    fn ends_by(&self) -> Instant;
    /// Whether the main process is about to end.
    fn is_ending(&self) -> bool;
    /// Reads what the cgroup has counted since the worker was forked.
    fn counts(&mut self) -> Counts;
    /// Whether the cgroup is gone, judging by counts that were just read. If the cgroup counts processor time at all, the
    /// kernel always reports it while the cgroup exists.
    fn has_lost_cgroup(&self, counts: &Counts) -> bool;
    /// Starts to watch the limits anew. `counted` is the processor time used so far, microseconds, if known, and
    /// `allowed` is the processor time from now on.
    fn watch_anew(&mut self, pace: Pace, now: Instant, counted: Option<u64>, allowed: Duration);
    /// Checks the limits that need polling, if it is time to.
    fn check_limits(&mut self, now: Instant) -> Option<Stop>;
    /// When to check the limits next.
    fn next_check(&self) -> Instant;
    /// The largest values that were measured since the worker was last watched anew.
    fn measured(&self) -> Measured;
    /// Measures the worker's files.
    fn files(&self) -> Files;
    /// Carries out a caller's request for the worker's files.
    fn do_with_file(&mut self, request: &FileRequest) -> Result<Done, FileError>;
    /// Looks which files the caller has closed that it got for writing, before the guest opens them.
    fn note_closed_files(&mut self);
    /// Requires that the session may have another copy there, and that nothing of the worker runs but its main thread.
    fn require_copyable(&mut self, medium: Medium) -> Result<(), SnapshotRefusal>;
    /// Whether the worker waits for something.
    fn is_asleep(&self) -> bool;
    /// Copies the worker, which stands and has run so many cells.
    fn capture(
        &mut self,
        standing: CopyPoint,
        cells: u64,
        medium: Medium,
    ) -> Result<Image, SnapshotRefusal>;
    /// Whether programs of the caller run, or its directories are watched.
    fn is_used(&self) -> bool;
    /// Queues programs that are asked for from now on for the next worker. Returns false, and changes nothing, if this
    /// one has some already.
    fn rest(&mut self) -> bool;
    /// Gives the worker, which has just got its first message, the way to start programs in it.
    fn hand_over_summons(&mut self);
    /// Whether programs of the caller run, or are about to.
    fn runs_programs(&self) -> bool;
    /// Keeps a copy. Returns its number.
    fn keep(&mut self, image: Arc<Image>) -> u64;
    /// What the worker does before its memory is replaced by this.
    fn order(&self, image: &Image) -> Result<Vec<u8>, SnapshotRefusal>;
    /// The steps by which its memory is replaced. It stands there, and answers the request with this number next.
    fn plan(
        &self,
        image: &Image,
        own: &CopyPoint,
        number: u64,
    ) -> Result<(OwnedFd, Vec<Step>), SnapshotRefusal>;
    /// The worker's way to the hosts of the policy, if it has one.
    fn network(&mut self) -> Option<&mut WorkerNetwork>;
    /// The calls that its filter refused since this was asked last.
    fn refused_calls(&mut self) -> RefusedCalls;
    /// Reads the output that is available now.
    fn drain(&mut self, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> Drained;
    /// The output of this stream that was captured since the last one was taken.
    fn captured(&self, stream: Stream) -> &[u8];
    /// Returns the captured output, standard output first, and how many bytes it is in all. Counts later
    /// output from zero.
    fn take_output(&mut self) -> (Vec<u8>, Vec<u8>, u64);
}

/// A worker in its jail.
pub struct JailedWorker<'a> {
    pub(super) context: &'a RunContext<'a>,
    pub(super) verified: &'a VerifiedWorker,
    pub(super) watch: Watch<'a>,
    /// Whether the last process of the worker has ended.
    pub(super) is_gone: bool,
    /// The files that the caller may still write to.
    pub(super) lent: LentFiles,
    /// The state that the worker has taken on, or that was copied of it last, as long as its caller keeps that.
    pub(super) beneath: Weak<Image>,
    pub(super) forwarded: ForwardedCalls<'a>,
    pub(super) network: Option<WorkerNetwork>,
    pub(super) programs: Option<ProgramServer<'a>>,
    pub(super) summons: Option<Summons>,
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
            beneath: Weak::new(),
            forwarded: ForwardedCalls::new(verified),
            network: lock(&verified.network).take(),
            programs: None,
            summons: lock(&verified.summons).take(),
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

    /// Serves the programs that are asked for in this queue.
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
        // Python notes a signal, and looks at its notes between two bytecodes and when a system call was interrupted.
        // A wait that begins between the note and the look goes on. This signal means nothing to the worker, and has
        // no effect where guest code has changed that.
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

    fn watch_anew(&mut self, pace: Pace, now: Instant, counted: Option<u64>, allowed: Duration) {
        self.watch.begin(pace, now, counted, allowed);
    }

    fn check_limits(&mut self, now: Instant) -> Option<Stop> {
        self.watch.look(now)
    }

    fn next_check(&self) -> Instant {
        self.watch.next()
    }

    fn measured(&self) -> Measured {
        self.watch.since_begin()
    }

    fn files(&self) -> Files {
        match &self.verified.session {
            Some(session) => Files::of_session(session, FileQuota::new(&self.context.limits)),
            None => Files::measure(&self.worker().directories),
        }
    }

    fn do_with_file(&mut self, request: &FileRequest) -> Result<Done, FileError> {
        let done = do_with_file(&self.work_dir()?, request)?;
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
        // A program may have been started since the request was accepted.
        self.require_single()?;
        let beneath = self.beneath.upgrade();
        let base = match medium {
            Medium::Memory => beneath.as_deref().and_then(Image::base),
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

    fn rest(&mut self) -> bool {
        self.programs.as_mut().is_none_or(ProgramServer::rest)
    }

    fn hand_over_summons(&mut self) {
        // Without it, for want of descriptors, no program can be started. The worker waits for the byte all the same.
        let (summons, theirs) = Summons::new().ok().unzip();
        self.link.send(vec![0], theirs);
        self.summons = summons;
    }

    fn runs_programs(&self) -> bool {
        self.programs.as_ref().is_some_and(ProgramServer::is_busy)
    }

    fn keep(&mut self, image: Arc<Image>) -> u64 {
        self.beneath = Arc::downgrade(&image);
        self.context.snapshots.put(self.context.session, image)
    }

    fn order(&self, image: &Image) -> Result<Vec<u8>, SnapshotRefusal> {
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
