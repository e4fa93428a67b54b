//! Sends orders to the starter process in the sandbox, which spawns a session's programs, and handles its reports.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::SockType;

use super::process::{Process, ProgramEnd};
use super::program::framed;
use super::queue::{Closed, Command, Queue, Start};
use super::refusal::{BesideRefusal, NO_PROGRAMS, StarterLoss};
use super::report::{REPORTS, Report};
use super::stage::{self, STEP_TIMEOUT, Stage};
use super::starter_socket::StarterSocket;
use crate::error::ErrorKind;
use crate::supervisor::descriptors::socket_pair;
use crate::supervisor::files::{FileError, WorkDir};
use crate::supervisor::link::{Link, LinkError, Received};
use crate::supervisor::spawn::Worker;
use crate::supervisor::watch;
use sandfork_jail::sys;
use sandfork_jail::sys::starter::SIGNAL;

/// The maximum number of messages that the starter has not read. It reads at once, unless guest code stops it.
const MAX_UNREAD: usize = 256;

/// Why a session has ended, if no other reason is known.
pub const CLOSED: &str = "it was closed";

/// What a session's programs may use.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    /// The work directory, as the guest sees it.
    pub work: String,
    /// The files in the work directory. `None` if the worker has ended.
    pub files: Option<WorkDir<'a>>,
    /// Whether the policy allows programs.
    pub has_programs: bool,
    /// Whether the sandbox has pseudoterminals.
    pub has_terminals: bool,
}

/// The programs of one worker.
pub struct ProgramServer<'a> {
    pub(in crate::supervisor) queue: Arc<Queue>,
    terms: Terms<'a>,
    pub(super) link: Option<Link<OwnedFd>>,
    /// Programs to start once the worker is ready, each with its deadline.
    pub(super) waiting: VecDeque<(Instant, Box<Start>)>,
    pub(super) live: BTreeMap<u64, Live>,
    /// Why the queue closes when this is dropped.
    pub(in crate::supervisor) closed: Closed,
    /// Whether requests wait for the session's next worker.
    pub(super) rests: bool,
    /// The directory watches that were active before that.
    pub(super) watches: Vec<Weak<watch::Shared>>,
}

pub(super) struct Live {
    pub(super) process: Process,
    directory: Option<String>,
    stage: Stage,
    /// When the starter counts as lost, if it has not answered.
    lost: Instant,
    timeout: Option<Duration>,
    /// Why the supervisor has killed the program.
    cause: Option<ProgramEnd>,
}

impl<'a> ProgramServer<'a> {
    /// Creates the server for this queue, and opens the queue.
    pub fn new(queue: Arc<Queue>, terms: Terms<'a>) -> Self {
        queue.open();
        Self {
            queue,
            terms,
            link: None,
            waiting: VecDeque::new(),
            live: BTreeMap::new(),
            closed: Closed::Ended(CLOSED.to_owned()),
            rests: false,
            watches: Vec::new(),
        }
    }

    /// Whether programs run or are being started.
    pub fn is_busy(&self) -> bool {
        !(self.live.is_empty() && self.waiting.is_empty())
    }

    /// Returns what to poll from the worker.
    pub fn source<'b>(
        &'b self,
        starters: &'b StarterSocket,
    ) -> Option<(BorrowedFd<'b>, PollFlags)> {
        match &self.link {
            Some(link) if link.unsent > 0 => {
                Some((link.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT))
            }
            Some(link) => Some((link.as_fd(), PollFlags::POLLIN)),
            None if self.waiting.is_empty() => None,
            None => Some((starters.socket.as_fd(), PollFlags::POLLIN)),
        }
    }

    /// Returns the next deadline.
    pub fn next_event(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().map(|(until, _)| *until);
        let live = self.live.values().filter_map(|live| live.stage.until());
        waiting.chain(live).min()
    }

    /// Carries out pending commands. Without `starters` no program can be started. `is_copied` is set while the worker
    /// is being copied. Returns whether a program is to be started.
    pub fn on_bell(
        &mut self,
        starters: Option<&mut StarterSocket>,
        worker: BorrowedFd,
        now: Instant,
        is_copied: bool,
    ) -> bool {
        let mut has_more = false;
        for command in self.queue.take() {
            match command {
                Command::Directory { path, answer } => {
                    let files = self.terms.files.ok_or(FileError::Gone);
                    let opened = files.and_then(|files| files.watched(&files.path(&path)?));
                    // The caller is waiting, so that the send cannot fail.
                    _ = answer.send(opened.map_err(BesideRefusal::File));
                }
                Command::Start(start) => {
                    if starters.is_none() {
                        refuse_without_starter(&start.process, StarterLoss::Unreached);
                    } else if let Some(refusal) = self.refusal(&start, is_copied) {
                        start.process.refuse(refusal);
                    } else {
                        let until = now + stage::start_timeout(start.wanted.time());
                        self.waiting.push_back((until, start));
                        has_more = true;
                    }
                }
                Command::Signal {
                    number,
                    signal,
                    cause,
                } => self.signal(number, signal, cause, now),
                Command::Size {
                    number,
                    rows,
                    columns,
                } if self.live.contains_key(&number) => {
                    self.order(&format!("size\0{number}\0{rows}\0{columns}"));
                }
                Command::Size { .. } => {}
            }
        }
        if let Some(starters) = starters {
            self.start_waiting(starters, worker, now);
        }
        has_more
    }

    fn refusal(&self, start: &Start, is_copied: bool) -> Option<BesideRefusal> {
        if !self.terms.has_programs {
            return Some(BesideRefusal::request(NO_PROGRAMS));
        }
        if start.wanted.0.terminal.is_some() && !self.terms.has_terminals {
            return Some(BesideRefusal::request(
                "a program cannot have a terminal in this sandbox: its policy shows no programs, or its level is \
                 `landlock`",
            ));
        }
        is_copied.then(|| {
            let copied = "the session is being copied: start the program afterwards";
            BesideRefusal::Other(ErrorKind::Busy, copied.to_owned())
        })
    }

    /// Starts the waiting programs if the worker is ready.
    fn start_waiting(&mut self, starters: &mut StarterSocket, worker: BorrowedFd, now: Instant) {
        if self.waiting.is_empty() || !starters.is_ready() {
            return;
        }
        if self.link.is_none() && self.spawn_starter(starters, worker).is_err() {
            for (_, start) in std::mem::take(&mut self.waiting) {
                refuse_without_starter(&start.process, StarterLoss::Unreached);
            }
            return;
        }
        for (until, start) in std::mem::take(&mut self.waiting) {
            let Start {
                process,
                wanted,
                streams: [stdin, stdout, stderr],
            } = *start;
            let number = process.number();
            let (message, timeout) = (wanted.message(number, &self.terms.work), wanted.time());
            let live = Live {
                process,
                directory: wanted.0.cwd,
                stage: Stage::Starting(until),
                lost: now + STEP_TIMEOUT,
                timeout,
                cause: None,
            };
            self.live.insert(number, live);
            let mut frame = framed(&message);
            let rest = frame.split_off(2);
            let second = frame.split_off(1);
            if let Some(link) = &mut self.link {
                // Each piece of the frame carries one descriptor.
                for (piece, stream) in [(frame, stdin), (second, stdout), (rest, stderr)] {
                    link.send(piece, Some(stream));
                }
            }
        }
        self.end_if_stuck();
    }

    /// Makes the worker spawn a starter, which receives its link over `starters`.
    fn spawn_starter(&mut self, starters: &StarterSocket, worker: BorrowedFd) -> Result<(), Errno> {
        let (ours, theirs) = socket_pair(SockType::Stream)?;
        starters.pass(&theirs)?;
        sys::pidfd::signal(worker, SIGNAL)?;
        self.link = Some(Link::new(ours, REPORTS)?);
        Ok(())
    }

    fn signal(&mut self, number: u64, signal: i32, cause: Option<ProgramEnd>, now: Instant) {
        let Some(live) = self.live.get_mut(&number) else {
            return;
        };
        if cause.is_some() {
            if live.cause.is_some() {
                return;
            }
            live.cause = cause;
            live.stage = Stage::Killed(now + STEP_TIMEOUT);
        }
        self.order(&format!("signal\0{number}\0{signal}"));
    }

    fn order(&mut self, message: &str) {
        if let Some(link) = &mut self.link {
            link.send(framed(message.as_bytes()), None);
        }
        self.end_if_stuck();
    }

    fn end_if_stuck(&mut self) {
        let unread = self.link.as_ref().map_or(0, Link::unsent_frames);
        if unread > MAX_UNREAD {
            self.lose(StarterLoss::NotReading);
        }
    }

    /// Reads messages of the worker or the starter. The error describes a violation of the protocol.
    pub fn on_readable(
        &mut self,
        starters: &mut StarterSocket,
        worker: &Worker,
        now: Instant,
    ) -> Result<(), String> {
        let Some(link) = &mut self.link else {
            self.start_waiting(starters, worker.process.as_fd(), now);
            return Ok(());
        };
        link.flush();
        match link.receive() {
            Ok(Received::Some) => {}
            Ok(Received::Nothing) => return Ok(()),
            // The starter ended with the worker, whose own end follows with its reason. Callers must not learn of their
            // programs' end first, because the session would still look alive.
            Ok(Received::End) if worker.proc.is_ending() => {
                self.link = None;
                return Ok(());
            }
            Ok(Received::End) => {
                let unstarted = starters.failure().map(StarterLoss::Unstarted);
                self.lose(unstarted.unwrap_or(StarterLoss::Ended));
                return Ok(());
            }
            Err(LinkError::Unreadable(_)) => {
                self.lose(StarterLoss::Unreached);
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        }
        link.discard_passed();
        while let Some(frame) = self.link.as_mut().and_then(Link::next) {
            self.on_report(Report::parse(&frame)?, now)?;
        }
        Ok(())
    }

    fn on_report(&mut self, report: Report, now: Instant) -> Result<(), String> {
        let (Report::Started { id, .. } | Report::Failed { id, .. } | Report::Ended { id, .. }) =
            report;
        let unknown = || format!("it reported program {id}, which cannot be in that state");
        let live = self.live.get_mut(&id).ok_or_else(unknown)?;
        match (report, live.stage) {
            (Report::Started { pid, .. }, Stage::Starting(_)) => {
                let until = live.timeout.and_then(|timeout| now.checked_add(timeout));
                live.stage = Stage::Running(until);
                if !live.process.mark_started(pid) {
                    self.signal(id, libc::SIGKILL, Some(ProgramEnd::Timeout), now);
                }
            }
            (Report::Failed { errno, .. }, Stage::Starting(_)) => {
                let refusal = BesideRefusal::NotStarted {
                    name: live.process.argv()[0].clone(),
                    directory: live.directory.take(),
                    errno: Errno::from_raw(errno),
                };
                live.process.refuse(refusal);
                self.live.remove(&id);
            }
            (Report::Ended { code, signal, .. }, Stage::Running(_) | Stage::Killed(_)) => {
                let own = match (code, signal) {
                    (Some(code), _) => ProgramEnd::Exited(code),
                    (None, signal) => ProgramEnd::Signal(signal.unwrap_or_default()),
                };
                let cause = live.cause.take();
                let is_over = cause == Some(ProgramEnd::OutputLimit);
                let end = cause.filter(|_| is_over || code.is_none()).unwrap_or(own);
                live.process.mark_ended(end);
                self.live.remove(&id);
                self.queue.remove(id);
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// Handles expired deadlines. The error describes a violation of the protocol.
    pub fn on_time(&mut self, now: Instant) -> Result<(), String> {
        self.waiting.retain(|(until, start)| {
            let is_due = now >= *until;
            if is_due {
                refuse_without_starter(&start.process, StarterLoss::NotResponding);
            }
            !is_due
        });
        let due = |live: &Live| live.stage.until().is_some_and(|until| now >= until);
        let due: Vec<_> = self
            .live
            .iter()
            .filter(|(_, live)| due(live))
            .map(|(number, live)| (*number, live.stage))
            .collect();
        for (number, stage) in due {
            match stage {
                Stage::Starting(_) => self.on_start_timeout(number, now),
                Stage::Running(_) => {
                    self.signal(number, libc::SIGKILL, Some(ProgramEnd::Timeout), now);
                }
                Stage::Killed(_) => return Err("a program that was killed did not end".to_owned()),
            }
        }
        Ok(())
    }

    /// Refuses a program that was not reported in time. If it starts later, it is killed then.
    fn on_start_timeout(&mut self, number: u64, now: Instant) {
        match self.live.get_mut(&number) {
            Some(live) if now < live.lost => {
                refuse_without_starter(&live.process, StarterLoss::NotResponding);
                live.stage = Stage::Starting(live.lost);
            }
            _ => self.lose(StarterLoss::NotResponding),
        }
    }

    /// Gives the starter up, with its programs. The next program starts another one.
    fn lose(&mut self, loss: StarterLoss) {
        self.link = None;
        for (number, live) in std::mem::take(&mut self.live) {
            if matches!(live.stage, Stage::Starting(_)) {
                refuse_without_starter(&live.process, loss);
            } else {
                let why = format!(
                    "the session's process that starts programs {}",
                    loss.description()
                );
                live.process.mark_ended(ProgramEnd::Lost(why));
                self.queue.remove(number);
            }
        }
    }
}

fn refuse_without_starter(process: &Process, loss: StarterLoss) {
    process.refuse(BesideRefusal::without_starter(&process.argv()[0], loss));
}
