//! The caller's handle on a program that runs in a session.

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
    /// The program exited with this status.
    Exited(u8),
    /// The program was killed by this signal.
    Signal(i32),
    /// The program ran longer than its timeout, and was killed with its process group.
    Timeout,
    /// The program printed more than its output limit, and was killed with its process group.
    OutputLimit,
    /// The session or its starter process ended first. Holds the reason, as part of a sentence.
    Lost(String),
}

/// An event of a program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProcessEvent {
    /// Bytes that the program wrote to its standard output, or to its terminal.
    Stdout(Vec<u8>),
    /// Bytes that the program wrote to its standard error.
    Stderr(Vec<u8>),
    /// The program ended. No further events follow.
    Ended(ProgramEnd),
}

/// How a program ended and what it printed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProgramReport {
    /// How the program ended.
    pub end: ProgramEnd,
    /// The bytes of standard output that no other reader took.
    pub stdout: Vec<u8>,
    /// The bytes of standard error that no other reader took.
    pub stderr: Vec<u8>,
}

/// A program that a session runs. Clones are handles on the same program, and any thread may use them.
///
/// A program blocks when its output pipe is full, until a handle reads from it. Dropping all handles does not end the
/// program; [`Programs::connect`](super::Programs::connect) returns a new handle.
#[derive(Clone, Debug)]
pub struct Process(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    number: u64,
    argv: Vec<String>,
    queue: Weak<Queue>,
    state: Mutex<State>,
    changed: Waiters,
    /// Readable once the program has ended.
    ended: EventFd,
    outputs: [Pipe; 2],
    stdin: Mutex<Option<Arc<OwnedFd>>>,
    has_stdin: bool,
    printed: AtomicU64,
    output_limit: u64,
}

#[derive(Debug)]
struct Pipe {
    end: OwnedFd,
    is_closed: AtomicBool,
}

#[derive(Clone, Debug)]
enum State {
    Starting,
    Refused(BesideRefusal),
    Running { pid: i32 },
    Ended { pid: i32, end: ProgramEnd },
}

/// Builds the error for streams that could not be created or used.
pub fn streams_failed(errno: Errno) -> BesideRefusal {
    BesideRefusal::of_system("a program's streams could not be made or used", errno)
}

impl Process {
    /// Creates a program and its streams. Also returns the program's ends of the streams.
    pub(super) fn new(
        number: u64,
        wanted: &Program,
        output_limit: u64,
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
            state: Mutex::new(State::Starting),
            changed: Waiters::default(),
            ended: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            outputs: [stdout, stderr],
            stdin: Mutex::new(stdin),
            has_stdin: wanted.has_input(),
            printed: AtomicU64::new(0),
            output_limit,
        }));
        Ok((process, [their_stdin, their_stdout, their_stderr]))
    }

    /// Returns the pid in the sandbox, as reported from inside. It identifies the program within its session.
    pub fn pid(&self) -> i32 {
        match *lock(&self.0.state) {
            State::Running { pid } | State::Ended { pid, .. } => pid,
            State::Starting | State::Refused(_) => 0,
        }
    }

    /// Returns the program's name and arguments.
    pub fn argv(&self) -> &[String] {
        &self.0.argv
    }

    /// Returns how the program ended, if it has. A violation of the output limit may show only once the output is read.
    pub fn end(&self) -> Option<ProgramEnd> {
        match &*lock(&self.0.state) {
            State::Ended { end, .. } if !self.exceeded_output() => Some(end.clone()),
            State::Ended { .. } => Some(ProgramEnd::OutputLimit),
            _ => None,
        }
    }

    /// Whether the program exceeded its output limit. The excess is discarded.
    fn exceeded_output(&self) -> bool {
        self.0.printed.load(Ordering::Relaxed) > self.0.output_limit
    }

    /// Waits for the next event until `until`, if there is a deadline. Returns `None` at the deadline.
    ///
    /// Each byte is delivered once, to one of the callers of this method. Output is delivered before the end of the
    /// program. Output that descendants of the program write after its end is lost.
    pub fn next_event(&self, until: Option<Instant>) -> Option<ProcessEvent> {
        loop {
            if let Some(event) = self.event_now() {
                return Some(event);
            }
            if until.is_some_and(|until| clock::now() >= until) {
                return None;
            }
            // Fails only if the kernel is out of memory. The loop then tries again at once.
            _ = wait(self.sources(), until);
        }
    }

    /// Waits until the program has ended.
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

    /// Sends a signal (signal(7)) to the program's process group. At level `landlock`, which has no process groups,
    /// sends it to the process. Does nothing if the program has ended.
    ///
    /// # Errors
    ///
    /// If the signal number is invalid.
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

    /// Resizes the program's terminal. Does nothing if it has none.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.command(Command::Size {
            number: self.0.number,
            rows,
            columns,
        });
    }

    /// Writes all bytes to the program's standard input. Blocks while the program does not read.
    ///
    /// # Errors
    ///
    /// If the program has no standard input, has closed it, or has ended.
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

    /// Closes the program's standard input, so that the program reads EOF.
    pub fn close_stdin(&self) {
        lock(&self.0.stdin).take();
    }

    /// Returns the next event without waiting.
    pub(crate) fn event_now(&self) -> Option<ProcessEvent> {
        // Checked before the output is read: everything that the program wrote before its end is then in the pipes.
        let has_ended = self.end().is_some();
        let stdout = self.read(Stream::Stdout).map(ProcessEvent::Stdout);
        let output = stdout.or_else(|| self.read(Stream::Stderr).map(ProcessEvent::Stderr));
        let end = || self.end().filter(|_| has_ended);
        output.or_else(|| end().map(ProcessEvent::Ended))
    }

    /// Returns what to poll before [`event_now`](Self::event_now).
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

    /// Returns the program's standard input, if it is open.
    pub(crate) fn stdin(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.0.stdin).clone()
    }

    /// Writes as much to standard input as fits, and returns the number of bytes.
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
                let room = self.0.output_limit.saturating_sub(printed);
                let room = usize::try_from(room).unwrap_or(usize::MAX);
                if length > room {
                    // Stop reading: guest code may delay the program's death, and keep it printing.
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

    /// Waits until the program runs, or was refused.
    pub(super) fn await_start(&self) -> Result<(), BesideRefusal> {
        let state = lock(&self.0.state);
        let is_starting = |state: &mut State| matches!(state, State::Starting);
        match &*self.0.changed.wait_while(state, Duration::MAX, is_starting) {
            State::Refused(refusal) => Err(refusal.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// Records that the program runs. Returns false if its caller has been refused meanwhile, so that the program must
    /// be killed.
    pub(super) fn mark_started(&self, pid: i32) -> bool {
        let mut state = lock(&self.0.state);
        let is_starting = matches!(*state, State::Starting);
        if is_starting {
            *state = State::Running { pid };
            self.0.changed.notify_all();
        }
        is_starting
    }

    pub(super) fn refuse(&self, refusal: BesideRefusal) {
        *lock(&self.0.state) = State::Refused(refusal);
        self.0.changed.notify_all();
    }

    pub(super) fn mark_ended(&self, end: ProgramEnd) {
        let pid = self.pid();
        *lock(&self.0.state) = State::Ended { pid, end };
        self.0.changed.notify_all();
        self.close_stdin();
        // Fails only after 2^64 writes.
        _ = self.0.ended.write(1);
    }

    /// Whether the program runs: it has started and not ended.
    pub(super) fn is_running(&self) -> bool {
        matches!(*lock(&self.0.state), State::Running { .. })
    }
}
