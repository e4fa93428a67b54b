//! The way from callers, on any thread, to the thread that serves the session.

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

/// The most programs of a session that run at once. Each costs the supervisor three pipes.
pub const MOST_PROGRAMS: usize = 32;

/// The most directories of a session that are watched at once.
const MOST_WATCHES: usize = 8;

/// What callers may do when another worker serves the session.
const START: &str = "start the program";
const WATCH: &str = "watch the directory";

/// A handle on the programs of one session, for any thread. It serves the session's workers one after another.
#[derive(Clone, Debug)]
pub struct Programs(Arc<Queue>);

/// What callers want.
#[derive(Debug)]
pub struct Queue {
    /// Written to after a command was added.
    bell: EventFd,
    inner: Mutex<Inner>,
    /// What a program may print that does not say how much.
    output: u64,
}

#[derive(Debug, Default)]
struct Inner {
    commands: VecDeque<Command>,
    /// Why nothing can be started.
    closed: Option<Closed>,
    live: BTreeMap<u64, Process>,
    last: u64,
    /// The user on the host that the worker has, if it has another one than the supervisor.
    uid: Option<u32>,
    watches: Vec<Weak<watch::Shared>>,
}

/// Why nothing of a session can be started or watched.
#[derive(Clone, Debug)]
pub enum Closed {
    /// It has ended. Holds the reason, as part of a sentence.
    Ended(String),
    /// Another worker takes over.
    Anew,
}

impl Closed {
    /// Why what there is of it ends, as part of a sentence.
    fn why(&self) -> &str {
        match self {
            Self::Ended(why) => why,
            Self::Anew => "it began anew",
        }
    }

    /// Why something is refused that its caller may do `afterwards`, when another worker serves the session.
    fn refusal(&self, afterwards: &str) -> BesideRefusal {
        match self {
            Self::Ended(why) => BesideRefusal::Ended(why.clone()),
            Self::Anew => {
                let sentence = format!("the session begins anew: {afterwards} afterwards");
                BesideRefusal::Other(ErrorKind::Busy, sentence)
            }
        }
    }
}

/// What a caller wants of a program, by the program's number, or of the session's files.
#[derive(Debug)]
pub enum Command {
    /// A handle on the directory with this path.
    Directory {
        path: String,
        answer: SyncSender<DirectoryAnswer>,
    },
    Start(Box<Start>),
    Signal {
        number: u64,
        signal: i32,
        /// Why the supervisor kills it.
        cause: Option<ProgramEnd>,
    },
    Size {
        number: u64,
        rows: u16,
        columns: u16,
    },
}

/// A program that is to be started, with the ends of its streams.
#[derive(Debug)]
pub struct Start {
    pub process: Process,
    pub wanted: Program,
    pub streams: [OwnedFd; 3],
}

impl Start {
    /// Gives its streams to the worker's user. Without input it has `/dev/null`, which is the host's.
    fn give_streams(&self, uid: Option<u32>) {
        let [stdin, stdout, stderr] = &self.streams;
        let input = Some(stdin).filter(|_| self.wanted.has_input());
        for pipe in input.into_iter().chain([stdout, stderr]) {
            give_pipe(pipe, uid);
        }
    }
}

impl Inner {
    /// Whether something is wanted, or programs run.
    fn is_asked(&self) -> bool {
        !self.commands.is_empty() || !self.live.is_empty()
    }
}

impl Command {
    /// Tells what waits for it why it is not carried out.
    fn refuse(self, closed: &Closed) {
        match self {
            // Its caller waits.
            Self::Directory { answer, .. } => _ = answer.send(Err(closed.refusal(WATCH))),
            Self::Start(start) => start.process.is_refused(closed.refusal(START)),
            Self::Signal { .. } | Self::Size { .. } => {}
        }
    }
}

impl Programs {
    /// For a session whose policy lets programs print so many bytes.
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

    /// A handle that watches directories of the session.
    pub(crate) fn watcher(&self) -> Watcher {
        Watcher(self.queue())
    }

    /// Starts a program, and waits until it runs. A cell may run meanwhile.
    ///
    /// # Errors
    ///
    /// When the policy allows no programs, the session has ended or has 32 programs, or the program could not be
    /// started.
    pub fn start(&self, program: Program) -> Result<Process, Error> {
        program.check()?;
        let process = self.0.add(program)?;
        process.await_start().inspect_err(|_| {
            self.0.remove(process.number());
        })?;
        Ok(process)
    }

    /// The programs that run.
    pub fn running(&self) -> Vec<Process> {
        let inner = lock(&self.0.inner);
        let live = inner.live.values();
        live.filter(|process| process.is_running())
            .cloned()
            .collect()
    }

    /// The program that runs with this number.
    pub fn connect(&self, pid: i32) -> Option<Process> {
        let mut running = self.running().into_iter();
        running.find(|process| process.pid() == pid)
    }
}

impl Queue {
    /// Adds a program that is to be started.
    fn add(self: &Arc<Self>, wanted: Program) -> Result<Process, BesideRefusal> {
        let mut inner = lock(&self.inner);
        if let Some(closed) = &inner.closed {
            return Err(closed.refusal(START));
        }
        if inner.live.len() >= MOST_PROGRAMS {
            return Err(BesideRefusal::request(format!(
                "the session runs {MOST_PROGRAMS} programs, as many as it may: end one first"
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

    /// Adds what is wanted of a session that has not ended.
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

    /// Readable when there may be a command.
    pub(in crate::supervisor) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Takes all commands.
    pub(super) fn take(&self) -> VecDeque<Command> {
        let mut inner = lock(&self.inner);
        // Done while the queue is locked, so that a command added meanwhile is not missed.
        _ = self.bell.read();
        let commands = std::mem::take(&mut inner.commands);
        for command in &commands {
            if let Command::Start(start) = command {
                start.give_streams(inner.uid);
            }
        }
        commands
    }

    /// Forgets a program that has ended, or has not begun.
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
        if inner.watches.len() >= MOST_WATCHES {
            return Err(BesideRefusal::request(format!(
                "the session has {MOST_WATCHES} watches, as many as it may: close one first"
            )));
        }
        inner.watches.push(Arc::downgrade(watch));
        Ok(())
    }

    /// Waits for a handle on a directory.
    pub(in crate::supervisor) fn directory(&self, path: &str) -> Result<OwnedFd, BesideRefusal> {
        let (answer, opened) = sync_channel(1);
        let path = path.to_owned();
        self.push(Command::Directory { path, answer });
        // Each is answered.
        let ended = |_| BesideRefusal::Ended("it was closed".to_owned());
        opened.recv().map_err(ended)?
    }

    /// Whether something is asked for, or directories are watched.
    pub(super) fn is_used(&self) -> bool {
        let inner = lock(&self.inner);
        let mut watches = inner.watches.iter().filter_map(Weak::upgrade);
        inner.is_asked() || watches.any(|watch| !watch.has_ended())
    }

    /// Refuses what is asked for, for this reason.
    pub(crate) fn refuse(&self, why: &str) {
        let closed = Closed::Ended(why.to_owned());
        for command in self.take() {
            if let Command::Start(start) = &command {
                self.remove(start.process.number());
            }
            command.refuse(&closed);
        }
    }

    /// Serves a worker that has this user on the host, if it has another one than the supervisor.
    pub fn serve(&self, uid: Option<u32>) {
        lock(&self.inner).uid = uid;
    }

    /// Accepts programs from now on.
    pub(super) fn open(&self) {
        lock(&self.inner).closed = None;
    }

    /// Takes what watches directories, unless something else is asked for.
    pub(super) fn take_watches(&self) -> Option<Vec<Weak<watch::Shared>>> {
        let mut inner = lock(&self.inner);
        let is_asked = inner.is_asked();
        (!is_asked).then(|| std::mem::take(&mut inner.watches))
    }

    /// Has watches end with the session's worker again.
    pub(super) fn put_back(&self, watches: Vec<Weak<watch::Shared>>) {
        lock(&self.inner).watches.extend(watches);
    }

    /// Accepts no more, and ends what there is for this reason.
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
                process.has_ended(ProgramEnd::Lost(of_session.clone()));
            } else if process.end().is_none() {
                process.is_refused(closed.refusal(START));
            }
        }
    }
}
