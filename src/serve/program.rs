//! Serves connections that run a program in the session of another connection, or control such a program.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Mutex;

use nix::poll::PollFlags;

use crate::protocol::caller::{
    ClientEvent, ClientRequest, ProgramEnded, RunningProgram, StartProgram,
};
use crate::supervisor::{
    BACKLOG, BesideRefusal, Caller, CallerEvent, FrameCaller, Payload, Process, ProcessEvent,
    Program, ProgramEnd, Programs, Refusal, Stream, UniqueIds, awaited, drain, wait,
};
use crate::waiters::lock;

/// The maximum bytes of a program's arguments in a list, so that the list of all programs fits into one event.
const MAX_LISTED: usize = 32 << 10;

/// The programs of open sessions, by session number.
#[derive(Debug, Default)]
pub struct SessionPrograms {
    numbers: UniqueIds,
    open: Mutex<BTreeMap<u64, Programs>>,
}

/// A session's registration, which ends when this is dropped.
pub struct Listed<'a> {
    list: &'a SessionPrograms,
    /// The session's number.
    pub number: u64,
}

impl SessionPrograms {
    /// Registers a session.
    pub fn list(&self, programs: Programs) -> Listed<'_> {
        let number = self.numbers.next();
        lock(&self.open).insert(number, programs);
        Listed { list: self, number }
    }

    /// Returns the programs of one session.
    pub fn of(&self, session: u64) -> Result<Programs, Refusal> {
        let found = lock(&self.open).get(&session).cloned();
        found.ok_or_else(|| BesideRefusal::Ended("it was closed".to_owned()).into())
    }

    fn find(&self, session: u64, pid: i32) -> Result<Process, Refusal> {
        let found = self.of(session)?.connect(pid);
        found.ok_or_else(|| {
            let sentence = format!(
                "no program of the session has the number {pid}: it has ended, or never was"
            );
            BesideRefusal::request(sentence).into()
        })
    }

    /// Answers a request for the programs of a session.
    pub fn running(&self, session: u64) -> Result<ClientEvent, Refusal> {
        let running = self.of(session)?.running();
        let programs = running.iter().map(|process| RunningProgram {
            pid: process.pid(),
            argv: listed(process.argv()),
        });
        Ok(ClientEvent::Programs {
            programs: programs.collect(),
        })
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        lock(&self.list.open).remove(&self.number);
    }
}

/// Returns the leading arguments that fit into a list.
fn listed(argv: &[String]) -> Vec<String> {
    let mut length = 0;
    let fits = |argument: &&String| {
        length += argument.len();
        length <= MAX_LISTED
    };
    argv.iter().take_while(fits).cloned().collect()
}

/// Starts a program, and serves it until it ends or its caller disconnects, in which case the program is killed.
pub fn serve(caller: FrameCaller, sessions: &SessionPrograms, wanted: StartProgram) {
    let programs = sessions.of(wanted.session);
    let started = programs.and_then(|it| Ok(it.start(Program::requested(wanted))?));
    serve_as(Role::Owner, caller, started);
}

/// Lets a caller control a program that another connection started, until either is gone.
pub fn attach(caller: FrameCaller, sessions: &SessionPrograms, session: u64, pid: i32) {
    serve_as(Role::Attached, caller, sessions.find(session, pid));
}

fn serve_as(role: Role, mut caller: FrameCaller, process: Result<Process, Refusal>) {
    let process = match process {
        Ok(process) => process,
        Err(refusal) => {
            caller.refuse(None, refusal);
            // Fails if the caller is gone.
            _ = drain(&mut caller, None);
            return;
        }
    };
    let pid = process.pid();
    caller.answer(ClientEvent::Started { pid }, Payload::default());
    let mut serving = Serving {
        role,
        caller,
        process,
        input: None,
    };
    while serving.handle_events() == Turn::Continue {
        serving.wait();
    }
    if role == Role::Owner && serving.process.end().is_none() {
        // Does not fail: SIGKILL is a valid signal number.
        _ = serving.process.kill(libc::SIGKILL);
    }
    _ = drain(&mut serving.caller, None);
}

/// The role of a connection for its program.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Role {
    /// The connection started the program, and receives its output.
    Owner,
    /// The connection only controls the program.
    Attached,
}

struct Serving {
    role: Role,
    caller: FrameCaller,
    process: Process,
    input: Option<Input>,
}

/// Input for the program that has not been written to its pipe yet.
struct Input {
    id: u64,
    bytes: Vec<u8>,
    written: usize,
    ends: bool,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Turn {
    Continue,
    Done,
}

impl Serving {
    /// Handles all pending events.
    fn handle_events(&mut self) -> Turn {
        self.caller.flush();
        self.write_input();
        if self.recv() == Turn::Done {
            return Turn::Done;
        }
        let event = match self.role {
            Role::Owner if self.caller.unsent() < BACKLOG => self.process.event_now(),
            Role::Owner => None,
            Role::Attached => self.process.end().map(ProcessEvent::Ended),
        };
        event.map_or(Turn::Continue, |event| self.forward(event))
    }

    fn wait(&self) {
        let flowing = self.caller.unsent() < BACKLOG;
        let [stdout, stderr, ended] = self.process.sources().map(|it| it.filter(|_| flowing));
        let is_owner = self.role == Role::Owner;
        let stdin = self.input.as_ref().and_then(|_| self.process.stdin());
        let stdin = stdin.as_ref().map(|fd| (fd.as_fd(), PollFlags::POLLOUT));
        let sources = [
            awaited(&self.caller),
            stdout.filter(|_| is_owner),
            stderr.filter(|_| is_owner),
            ended,
            stdin,
        ];
        // If this fails, the next turn checks every source.
        _ = wait(sources, None);
    }

    fn forward(&mut self, event: ProcessEvent) -> Turn {
        match event {
            ProcessEvent::Stdout(bytes) => self.caller.output(0, Stream::Stdout, &bytes),
            ProcessEvent::Stderr(bytes) => self.caller.output(0, Stream::Stderr, &bytes),
            ProcessEvent::Ended(end) => {
                if let Some(input) = self.input.take() {
                    let closed = BesideRefusal::no_input().into();
                    self.caller.refuse(Some(input.id), closed);
                }
                let ended = ClientEvent::Ended(ended(end));
                self.caller.answer(ended, Payload::default());
                return Turn::Done;
            }
        }
        Turn::Continue
    }

    /// Writes as much input as the program's pipe accepts now.
    fn write_input(&mut self) {
        let Some(input) = &mut self.input else {
            return;
        };
        let id = input.id;
        match self.process.write_now(&input.bytes[input.written..]) {
            Ok(written) if input.written + written < input.bytes.len() => {
                input.written += written;
                return;
            }
            Ok(_) => {
                if input.ends {
                    self.process.close_stdin();
                }
                self.accept(id);
            }
            Err(refusal) => self.caller.refuse(Some(id), refusal.into()),
        }
        self.input = None;
    }

    fn accept(&mut self, id: u64) {
        self.caller
            .answer(ClientEvent::Accepted { id }, Payload::default());
    }

    /// Handles the caller's pending requests.
    fn recv(&mut self) -> Turn {
        loop {
            match self.caller.recv() {
                CallerEvent::Nothing => return Turn::Continue,
                CallerEvent::Gone => return Turn::Done,
                CallerEvent::Malformed(how) => {
                    self.caller.refuse(None, Refusal::Protocol(how));
                    return Turn::Done;
                }
                CallerEvent::Request(ClientRequest::Input { id, end }, payload) => {
                    if self.input.is_some() {
                        let reason = "the program has not read the previous input yet".to_owned();
                        self.caller.refuse(Some(id), Refusal::Protocol(reason));
                        continue;
                    }
                    self.input = Some(Input {
                        id,
                        bytes: payload.bytes,
                        written: 0,
                        ends: end,
                    });
                    self.write_input();
                }
                CallerEvent::Request(ClientRequest::Signal { id, signal }, _) => {
                    match self.process.kill(signal) {
                        Ok(()) => self.accept(id),
                        Err(error) => self.caller.refuse(Some(id), error.into()),
                    }
                }
                CallerEvent::Request(ClientRequest::Size { id, size }, _) => {
                    self.process.resize(size.rows, size.columns);
                    self.accept(id);
                }
                CallerEvent::Request(other, _) => {
                    let reason = "this connection serves a program".to_owned();
                    self.caller.refuse(other.id(), Refusal::Protocol(reason));
                }
            }
        }
    }
}

fn ended(end: ProgramEnd) -> ProgramEnded {
    let with_end = |end| ProgramEnded {
        end,
        ..ProgramEnded::default()
    };
    match end {
        ProgramEnd::Exited(code) => ProgramEnded {
            code: Some(code),
            ..with_end("exited")
        },
        ProgramEnd::Signal(signal) => ProgramEnded {
            signal: Some(signal),
            ..with_end("signal")
        },
        ProgramEnd::Timeout => with_end("timeout"),
        ProgramEnd::OutputLimit => with_end("output-limit"),
        ProgramEnd::Lost(why) => ProgramEnded {
            why: Some(why),
            ..with_end("lost")
        },
    }
}
