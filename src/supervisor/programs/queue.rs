//! Carries commands from callers, on any thread, to the thread that serves the session.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::process::{Process, ProgramEnd, streams_failed};
use super::program::Program;
use super::refusal::BesideRefusal;
use crate::error::{Error, ErrorKind};
use crate::supervisor::descriptors::give_pipe;
use crate::supervisor::watch::{self, DirectoryAnswer, Watcher};
use crate::waiters::lock;

/// The maximum number of programs that a session runs at once. Each costs the supervisor three pipes.
pub const MAX_PROGRAMS: usize = 32;

/// The maximum number of directory watches of a session.
const MAX_WATCHES: usize = 8;

/// What a caller can do again once another worker serves the session.
const START: &str = "start the program";
const WATCH: &str = "watch the directory";

/// A handle on the programs of one session, for any thread. Stays valid when the session moves to another worker.
#[derive(Clone, Debug)]
pub struct Programs(Arc<Queue>);

/// The commands of callers, and the programs and watches of a session.
#[derive(Debug)]
pub struct Queue {
    /// Signalled after a command is added.
    bell: EventFd,
    inner: Mutex<Inner>,
    /// The output limit of programs that do not set one, in bytes.
    output: u64,
}

#[derive(Debug, Default)]
struct Inner {
    commands: VecDeque<Command>,
    /// Why nothing can be started. `None` while the queue is open.
    closed: Option<Closed>,
    live: BTreeMap<u64, Process>,
    last: u64,
    /// The worker's user on the host, if it is not the supervisor's.
    uid: Option<u32>,
    watches: Vec<Weak<watch::Shared>>,
}

/// Why a session accepts no programs or watches.
#[derive(Clone, Debug)]
pub enum Closed {
    /// The session has ended. Holds the reason, as part of a sentence.
    Ended(String),
    /// The session moves to another worker, after a restart or a rollback.
    Restarted,
}

impl Closed {
    /// Returns why running programs and watches end, as part of a sentence.
    fn why(&self) -> &str {
        match self {
            Self::Ended(why) => why,
            Self::Restarted => "it was restarted",
        }
    }

    /// Returns the refusal of a request. `afterwards` is what its caller can do once another worker serves the session.
    fn refusal(&self, afterwards: &str) -> BesideRefusal {
        match self {
            Self::Ended(why) => BesideRefusal::Ended(why.clone()),
            Self::Restarted => {
                let sentence = format!("the session is restarting: {afterwards} afterwards");
                BesideRefusal::Other(ErrorKind::Busy, sentence)
            }
        }
    }
}

/// A caller's command about a program, identified by its number, or about the session's files.
#[derive(Debug)]
pub enum Command {
    /// Opens the directory at this path.
    Directory {
        path: String,
        answer: SyncSender<DirectoryAnswer>,
    },
    Start(Box<Start>),
    Signal {
        number: u64,
        signal: i32,
        /// Why the supervisor kills the program, if it does.
        cause: Option<ProgramEnd>,
    },
    Size {
        number: u64,
        rows: u16,
        columns: u16,
    },
}

/// A program to start, with its ends of the streams.
#[derive(Debug)]
pub struct Start {
    pub process: Process,
    pub wanted: Program,
    pub streams: [OwnedFd; 3],
}

impl Start {
    /// Makes the worker's user the owner of the pipes. A program without input has the host's `/dev/null` instead of a
    /// pipe.
    fn give_streams(&self, uid: Option<u32>) {
        let [stdin, stdout, stderr] = &self.streams;
        let input = Some(stdin).filter(|_| self.wanted.has_input());
        for pipe in input.into_iter().chain([stdout, stderr]) {
            give_pipe(pipe, uid);
        }
    }
}

impl Inner {
    /// Whether commands are pending or programs run.
    fn has_work(&self) -> bool {
        !self.commands.is_empty() || !self.live.is_empty()
    }
}

impl Command {
    /// Refuses the command to the caller that waits for it.
    fn refuse(self, closed: &Closed) {
        match self {
            // The caller is waiting, so that the send cannot fail.
            Self::Directory { answer, .. } => _ = answer.send(Err(closed.refusal(WATCH))),
            Self::Start(start) => start.process.refuse(closed.refusal(START)),
            Self::Signal { .. } | Self::Size { .. } => {}
        }
    }
}

impl Programs {
    /// Creates the queue of a session whose programs may print `output` bytes, unless they set another limit.
    pub(crate) fn new(output: u64) -> Result<Self, BesideRefusal> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        Ok(Self(Arc::new(Queue {
            bell: bell.map_err(streams_failed)?,
            inner: Mutex::default(),
            output,
        })))
    }

    pub(crate) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.0)
    }

    /// Returns a handle that watches directories of the session.
    pub(crate) fn watcher(&self) -> Watcher {
        Watcher(self.queue())
    }

    /// Starts a program and waits until it runs. A cell may run meanwhile.
    ///
    /// # Errors
    ///
    /// If the policy allows no programs, the session has ended or runs 32 programs, or the program could not be
    /// started.
    pub fn start(&self, program: Program) -> Result<Process, Error> {
        program.check()?;
        let process = self.0.add(program)?;
        process.await_start().inspect_err(|_| {
            self.0.remove(process.number());
        })?;
        Ok(process)
    }

    /// Returns the running programs.
    pub fn running(&self) -> Vec<Process> {
        let inner = lock(&self.0.inner);
        let live = inner.live.values();
        live.filter(|process| process.is_running())
            .cloned()
            .collect()
    }

    /// Returns the running program with this pid.
    pub fn connect(&self, pid: i32) -> Option<Process> {
        let mut running = self.running().into_iter();
        running.find(|process| process.pid() == pid)
    }
}

impl Queue {
    /// Adds a program to start.
    fn add(self: &Arc<Self>, wanted: Program) -> Result<Process, BesideRefusal> {
        let mut inner = lock(&self.inner);
        if let Some(closed) = &inner.closed {
            return Err(closed.refusal(START));
        }
        if inner.live.len() >= MAX_PROGRAMS {
            return Err(BesideRefusal::request(format!(
                "the session runs {MAX_PROGRAMS} programs, as many as it may: end one first"
            )));
        }
        inner.last += 1;
        let output = wanted.0.output.unwrap_or(self.output);
        let (process, streams) =
            Process::new(inner.last, &wanted, output, self).map_err(streams_failed)?;
        inner.live.insert(process.number(), process.clone());
        inner.commands.push_back(Command::Start(Box::new(Start {
            process: process.clone(),
            wanted,
            streams,
        })));
        drop(inner);
        self.ring();
        Ok(process)
    }

    /// Adds a command, or refuses it if the queue is closed.
    pub(super) fn push(&self, command: Command) {
        let mut inner = lock(&self.inner);
        match &inner.closed {
            None => inner.commands.push_back(command),
            Some(closed) => command.refuse(closed),
        }
        drop(inner);
        self.ring();
    }

    fn ring(&self) {
        // Fails only after 2^64 writes.
        _ = self.bell.write(1);
    }

    /// Returns the descriptor that is readable when commands may be pending.
    pub(in crate::supervisor) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Removes and returns all pending commands.
    pub(super) fn take(&self) -> VecDeque<Command> {
        let mut inner = lock(&self.inner);
        // Cleared under the lock, so that a command that is added meanwhile signals again.
        _ = self.bell.read();
        let commands = std::mem::take(&mut inner.commands);
        for command in &commands {
            if let Command::Start(start) = command {
                start.give_streams(inner.uid);
            }
        }
        commands
    }

    /// Removes a program that has ended or was refused.
    pub(super) fn remove(&self, number: u64) {
        lock(&self.inner).live.remove(&number);
    }

    /// Adds a watch, which ends with the session's worker.
    pub(in crate::supervisor) fn add_watch(
        &self,
        watch: &Arc<watch::Shared>,
    ) -> Result<(), BesideRefusal> {
        let mut inner = lock(&self.inner);
        if let Some(closed) = &inner.closed {
            return Err(closed.refusal(WATCH));
        }
        inner.watches.retain(|watch| watch.strong_count() > 0);
        if inner.watches.len() >= MAX_WATCHES {
            return Err(BesideRefusal::request(format!(
                "the session has {MAX_WATCHES} watches, as many as it may: close one first"
            )));
        }
        inner.watches.push(Arc::downgrade(watch));
        Ok(())
    }

    /// Asks the session's thread to open a directory, and waits for the descriptor.
    pub(in crate::supervisor) fn directory(&self, path: &str) -> Result<OwnedFd, BesideRefusal> {
        let (answer, opened) = sync_channel(1);
        let path = path.to_owned();
        self.push(Command::Directory { path, answer });
        // Every command is answered, so that this fails only with the session.
        let ended = |_| BesideRefusal::Ended("it was closed".to_owned());
        opened.recv().map_err(ended)?
    }

    /// Whether commands are pending, programs run, or directories are watched.
    pub(super) fn is_used(&self) -> bool {
        let inner = lock(&self.inner);
        let mut watches = inner.watches.iter().filter_map(Weak::upgrade);
        inner.has_work() || watches.any(|watch| !watch.has_ended())
    }

    /// Refuses all pending commands for this reason.
    pub(crate) fn refuse(&self, why: &str) {
        let closed = Closed::Ended(why.to_owned());
        for command in self.take() {
            if let Command::Start(start) = &command {
                self.remove(start.process.number());
            }
            command.refuse(&closed);
        }
    }

    /// Sets the worker's user on the host, if it is not the supervisor's.
    pub fn serve(&self, uid: Option<u32>) {
        lock(&self.inner).uid = uid;
    }

    /// Accepts programs from now on.
    pub(super) fn open(&self) {
        lock(&self.inner).closed = None;
    }

    /// Removes and returns the watches, unless a command is pending or a program runs.
    pub(super) fn take_watches(&self) -> Option<Vec<Weak<watch::Shared>>> {
        let mut inner = lock(&self.inner);
        let has_work = inner.has_work();
        (!has_work).then(|| std::mem::take(&mut inner.watches))
    }

    /// Adds watches again, so that they end with the session's worker.
    pub(super) fn put_back(&self, watches: Vec<Weak<watch::Shared>>) {
        lock(&self.inner).watches.extend(watches);
    }

    /// Refuses all pending and further commands, and ends all programs and watches, for this reason.
    pub(crate) fn close(&self, closed: &Closed) {
        let mut inner = lock(&self.inner);
        inner.closed = Some(closed.clone());
        let commands = std::mem::take(&mut inner.commands);
        let live = std::mem::take(&mut inner.live);
        let watches = std::mem::take(&mut inner.watches);
        drop(inner);
        for command in commands {
            command.refuse(closed);
        }
        let of_session = format!("its session ended because {}", closed.why());
        for watch in watches.iter().filter_map(Weak::upgrade) {
            watch.end(&of_session);
        }
        for process in live.into_values() {
            if process.is_running() {
                process.mark_ended(ProgramEnd::Lost(of_session.clone()));
            } else if process.end().is_none() {
                process.refuse(closed.refusal(START));
            }
        }
    }
}
