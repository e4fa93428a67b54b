//! A program that a caller started, as its caller sees it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::{read, write};

use super::program::Program;
use super::queue::{Command, Queue};
use super::refusal::BesideRefusal;
use crate::error::Error;
use crate::supervisor::clock;
use crate::supervisor::descriptors::{pipe, set_nonblocking, with_buffer};
use crate::supervisor::drain::Stream;
use crate::supervisor::wait::wait;
use crate::waiters::{Waiters, lock};
use sandfork_jail::sys::{errno_of, write_signals};

/// How a program ended.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ProgramEnd {
    /// It exited with this status.
    Exited(u8),
    /// This signal ended it.
    Signal(i32),
    /// It ran for longer than its time, and was killed with its process group.
    Timeout,
    /// It printed more than it may, and was killed with its process group.
    OutputLimit,
    /// Its session ended, or what starts programs there did. Holds the reason, as part of a sentence.
    Lost(String),
}

/// What comes of a program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProcessEvent {
    /// Bytes that it wrote to its standard output, or to its terminal.
    Stdout(Vec<u8>),
    /// Bytes that it wrote to its standard error.
    Stderr(Vec<u8>),
    /// It ended. There are no further events.
    Ended(ProgramEnd),
}

/// How a program ended and what it printed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProgramReport {
    /// How it ended.
    pub end: ProgramEnd,
    /// What it wrote to its standard output, as far as no other reader took it.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error.
    pub stderr: Vec<u8>,
}

/// A program that a session runs. Clones are handles on the same program; any thread may use them.
///
/// A program that prints waits once its pipe is full, until a handle reads what it printed. It goes on without any
/// handle; [`Programs::connect`](super::Programs::connect) finds it again.
#[derive(Clone, Debug)]
pub struct Process(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    number: u64,
    argv: Vec<String>,
    queue: Weak<Queue>,
    state: Mutex<State>,
    changed: Waiters,
    /// Readable from its end on.
    ended: EventFd,
    outputs: [Pipe; 2],
    stdin: Mutex<Option<Arc<OwnedFd>>>,
    has_stdin: bool,
    printed: AtomicU64,
    may_print: u64,
}

#[derive(Debug)]
struct Pipe {
    end: OwnedFd,
    is_closed: AtomicBool,
}

#[derive(Clone, Debug)]
enum State {
    Asked,
    Refused(BesideRefusal),
    Running { pid: i32 },
    Ended { pid: i32, end: ProgramEnd },
}

/// A program's streams could not be made or used.
pub fn streams_failed(errno: Errno) -> BesideRefusal {
    BesideRefusal::of_system("a program's streams could not be made or used", errno)
}

impl Process {
    /// Makes a program's streams. Returns the ends that it gets, too.
    pub(super) fn new(
        number: u64,
        wanted: &Program,
        may_print: u64,
        queue: &Arc<Queue>,
    ) -> Result<(Self, [OwnedFd; 3]), Errno> {
        let output = || -> Result<_, Errno> {
            let (ours, theirs) = pipe()?;
            set_nonblocking(&ours)?;
            let is_closed = AtomicBool::new(false);
            let ours = Pipe {
                end: ours,
                is_closed,
            };
            Ok((ours, theirs))
        };
        let (stdout, their_stdout) = output()?;
        let (stderr, their_stderr) = output()?;
        let (stdin, their_stdin) = if wanted.has_input() {
            let (theirs, ours) = pipe()?;
            set_nonblocking(&ours)?;
            (Some(Arc::new(ours)), theirs)
        } else {
            let null = std::fs::File::open("/dev/null").map_err(errno_of)?;
            (None, null.into())
        };
        let process = Self(Arc::new(Shared {
            number,
            argv: wanted.0.argv.clone(),
            queue: Arc::downgrade(queue),
            state: Mutex::new(State::Asked),
            changed: Waiters::default(),
            ended: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            outputs: [stdout, stderr],
            stdin: Mutex::new(stdin),
            has_stdin: wanted.has_input(),
            printed: AtomicU64::new(0),
            may_print,
        }));
        Ok((process, [their_stdin, their_stdout, their_stderr]))
    }

    /// The number of its process in the sandbox, as the sandbox says. It identifies the program in its session.
    pub fn pid(&self) -> i32 {
        match *lock(&self.0.state) {
            State::Running { pid } | State::Ended { pid, .. } => pid,
            State::Asked | State::Refused(_) => 0,
        }
    }

    /// The program and its arguments.
    pub fn argv(&self) -> &[String] {
        &self.0.argv
    }

    /// How it ended, if it has. That it printed too much may be seen only when that is read.
    pub fn end(&self) -> Option<ProgramEnd> {
        match &*lock(&self.0.state) {
            State::Ended { end, .. } if !self.is_cut() => Some(end.clone()),
            State::Ended { .. } => Some(ProgramEnd::OutputLimit),
            _ => None,
        }
    }

    /// Whether it printed more than it may, of which the rest is lost.
    fn is_cut(&self) -> bool {
        self.0.printed.load(Ordering::Relaxed) > self.0.may_print
    }

    /// Waits for what comes next, until `until` if there is one. Returns `None` when that has passed.
    ///
    /// Each byte is delivered once, to one of the callers of this method. What it printed comes before its end; what
    /// processes that it left behind print afterwards is lost.
    pub fn next_event(&self, until: Option<Instant>) -> Option<ProcessEvent> {
        loop {
            if let Some(event) = self.event_now() {
                return Some(event);
            }
            if until.is_some_and(|until| clock::now() >= until) {
                return None;
            }
            // It fails only if the kernel is out of memory. Then the next attempt follows at once.
            _ = wait(self.sources(), until);
        }
    }

    /// Waits until it has ended.
    pub fn wait(&self) -> ProgramReport {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match self.next_event(None) {
                Some(ProcessEvent::Stdout(bytes)) => stdout.extend(bytes),
                Some(ProcessEvent::Stderr(bytes)) => stderr.extend(bytes),
                Some(ProcessEvent::Ended(end)) => {
                    return ProgramReport {
                        end,
                        stdout,
                        stderr,
                    };
                }
                None => {}
            }
        }
    }

    /// Sends a signal (signal(7)) to its process group; at level `landlock`, which has no groups, to the process.
    /// Nothing happens if it has ended.
    ///
    /// # Errors
    ///
    /// When there is no such signal.
    pub fn kill(&self, signal: i32) -> Result<(), Error> {
        if !(1..=64).contains(&signal) {
            let problem = format!("{signal} is not the number of a signal (1 to 64)");
            return Err(BesideRefusal::request(problem).into());
        }
        self.command(Command::Signal {
            number: self.0.number,
            signal,
            cause: None,
        });
        Ok(())
    }

    /// Tells its terminal a new size. Nothing happens if it has none.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.command(Command::Size {
            number: self.0.number,
            rows,
            columns,
        });
    }

    /// Writes all of this to its standard input. Waits while the program does not read.
    ///
    /// # Errors
    ///
    /// When it has no standard input or has closed it, or has ended.
    pub fn write_stdin(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = self.write_now(rest)?;
            rest = &rest[written..];
            if written == 0 {
                let stdin = self.stdin();
                let writable = stdin.as_ref().map(|fd| (fd.as_fd(), PollFlags::POLLOUT));
                let ended = Some((self.0.ended.as_fd(), PollFlags::POLLIN));
                wait([writable, ended], None).map_err(streams_failed)?;
            }
        }
        Ok(())
    }

    /// Closes its standard input: it reads the end of the file.
    pub fn close_stdin(&self) {
        lock(&self.0.stdin).take();
    }

    /// What comes next, if it is there.
    pub(crate) fn event_now(&self) -> Option<ProcessEvent> {
        // First: what it wrote before its end is there then.
        let has_ended = self.end().is_some();
        let stdout = self.read(Stream::Stdout).map(ProcessEvent::Stdout);
        let output = stdout.or_else(|| self.read(Stream::Stderr).map(ProcessEvent::Stderr));
        let end = || self.end().filter(|_| has_ended);
        output.or_else(|| end().map(ProcessEvent::Ended))
    }

    /// What to wait for, for [`event_now`](Self::event_now).
    pub(crate) fn sources(&self) -> [Option<(BorrowedFd<'_>, PollFlags)>; 3] {
        let [stdout, stderr] = self.0.outputs.each_ref().map(|pipe| {
            let is_open = !pipe.is_closed.load(Ordering::Relaxed);
            is_open.then(|| (pipe.end.as_fd(), PollFlags::POLLIN))
        });
        [
            stdout,
            stderr,
            Some((self.0.ended.as_fd(), PollFlags::POLLIN)),
        ]
    }

    /// Its standard input, if that is open.
    pub(crate) fn stdin(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.0.stdin).clone()
    }

    /// Writes to its standard input what fits. Returns how much that was.
    pub(crate) fn write_now(&self, bytes: &[u8]) -> Result<usize, BesideRefusal> {
        if !self.0.has_stdin {
            let problem = "the program was started without standard input";
            return Err(BesideRefusal::request(problem));
        }
        let stdin = self.stdin().filter(|_| self.end().is_none());
        let stdin = stdin.ok_or_else(BesideRefusal::no_input)?;
        match write_signals::as_errors(|| write(&*stdin, bytes)) {
            Ok(written) => Ok(written),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(_) => Err(BesideRefusal::no_input()),
        }
    }

    fn read(&self, stream: Stream) -> Option<Vec<u8>> {
        let pipe = &self.0.outputs[stream as usize];
        if pipe.is_closed.load(Ordering::Relaxed) {
            return None;
        }
        with_buffer(|buffer| match read(&pipe.end, buffer) {
            Ok(length) if length > 0 => {
                let printed = self.0.printed.fetch_add(length as u64, Ordering::Relaxed);
                let room = self.0.may_print.saturating_sub(printed);
                let room = usize::try_from(room).unwrap_or(usize::MAX);
                if length > room {
                    // Guest code may keep it alive for a while, and have it print all that time.
                    for pipe in &self.0.outputs {
                        pipe.is_closed.store(true, Ordering::Relaxed);
                    }
                    self.command(Command::Signal {
                        number: self.0.number,
                        signal: libc::SIGKILL,
                        cause: Some(ProgramEnd::OutputLimit),
                    });
                }
                Some(buffer[..length.min(room)].to_vec()).filter(|bytes| !bytes.is_empty())
            }
            Err(Errno::EAGAIN | Errno::EINTR) => None,
            Ok(_) | Err(_) => {
                pipe.is_closed.store(true, Ordering::Relaxed);
                None
            }
        })
    }

    fn command(&self, command: Command) {
        // Without a queue there is no session, and the program has ended.
        if let Some(queue) = self.0.queue.upgrade() {
            queue.push(command);
        }
    }

    /// Waits until it runs, or was refused.
    pub(super) fn await_start(&self) -> Result<(), BesideRefusal> {
        let state = lock(&self.0.state);
        let asked = |state: &mut State| matches!(state, State::Asked);
        match &*self.0.changed.wait_while(state, Duration::MAX, asked) {
            State::Refused(refusal) => Err(refusal.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// Notes that it runs. Returns whether it may: its caller may have been refused meanwhile.
    pub(super) fn has_started(&self, pid: i32) -> bool {
        let mut state = lock(&self.0.state);
        let is_asked = matches!(*state, State::Asked);
        if is_asked {
            *state = State::Running { pid };
            self.0.changed.notify_all();
        }
        is_asked
    }

    pub(super) fn is_refused(&self, refusal: BesideRefusal) {
        *lock(&self.0.state) = State::Refused(refusal);
        self.0.changed.notify_all();
    }

    pub(super) fn has_ended(&self, end: ProgramEnd) {
        let pid = self.pid();
        *lock(&self.0.state) = State::Ended { pid, end };
        self.0.changed.notify_all();
        self.close_stdin();
        // Fails only after 2^64 writes.
        _ = self.0.ended.write(1);
    }

    /// Whether it was not refused and has not ended.
    pub(super) fn is_running(&self) -> bool {
        matches!(*lock(&self.0.state), State::Running { .. })
    }
}
