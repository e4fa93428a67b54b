//! A connection that runs one program in a session of another connection, or that acts on such a program.

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

/// The most bytes of a program's arguments in a list, so that the list of all programs fits into an answer.
const MOST_LISTED: usize = 32 << 10;

/// The programs of the open sessions, by the numbers of these.
#[derive(Debug, Default)]
pub struct SessionPrograms {
    numbers: UniqueIds,
    open: Mutex<BTreeMap<u64, Programs>>,
}

/// A session that is listed until this is dropped.
pub struct Listed<'a> {
    list: &'a SessionPrograms,
    /// Its number.
    pub number: u64,
}

impl SessionPrograms {
    /// Lists a session.
    pub fn list(&self, programs: Programs) -> Listed<'_> {
        let number = self.numbers.next();
        lock(&self.open).insert(number, programs);
        Listed { list: self, number }
    }

    /// Those of one session.
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

    /// The answer to a request for the programs of a session.
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

/// The first arguments.
fn listed(argv: &[String]) -> Vec<String> {
    let mut length = 0;
    let fits = |argument: &&String| {
        length += argument.len();
        length <= MOST_LISTED
    };
    argv.iter().take_while(fits).cloned().collect()
}

/// Starts a program, and serves it until it has ended or its caller is gone. A program whose caller is gone is
/// killed.
pub fn serve(caller: FrameCaller, sessions: &SessionPrograms, wanted: StartProgram) {
    let programs = sessions.of(wanted.session);
    let started = programs.and_then(|it| Ok(it.start(Program::requested(wanted))?));
    serve_as(Role::Owner, caller, started);
}

/// Acts on a program of another connection for its caller, until either is gone.
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
    while serving.turn() == Turn::Stays {
        serving.wait();
    }
    if role == Role::Owner && serving.process.end().is_none() {
        // The number of SIGKILL is one of a signal.
        _ = serving.process.kill(libc::SIGKILL);
    }
    _ = drain(&mut serving.caller, None);
}

/// What a connection has of a program.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Role {
    /// It has started it, and gets its output.
    Owner,
    /// It acts on it.
    Attached,
}

struct Serving {
    role: Role,
    caller: FrameCaller,
    process: Process,
    input: Option<Input>,
}

/// Bytes for the program that its pipe has not taken.
struct Input {
    id: u64,
    bytes: Vec<u8>,
    written: usize,
    ends: bool,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Turn {
    Stays,
    Over,
}

impl Serving {
    /// Handles what has happened.
    fn turn(&mut self) -> Turn {
        self.caller.flush();
        self.write_input();
        if self.recv() == Turn::Over {
            return Turn::Over;
        }
        let event = match self.role {
            Role::Owner if self.caller.unsent() < BACKLOG => self.process.event_now(),
            Role::Owner => None,
            Role::Attached => self.process.end().map(ProcessEvent::Ended),
        };
        event.map_or(Turn::Stays, |event| self.hand_on(event))
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
        // If it fails, the next turn looks at everything.
        _ = wait(sources, None);
    }

    fn hand_on(&mut self, event: ProcessEvent) -> Turn {
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
                return Turn::Over;
            }
        }
        Turn::Stays
    }

    /// Writes to the program what its pipe takes now.
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

    /// Handles what the caller has sent.
    fn recv(&mut self) -> Turn {
        loop {
            match self.caller.recv() {
                CallerEvent::Nothing => return Turn::Stays,
                CallerEvent::Gone => return Turn::Over,
                CallerEvent::Malformed(how) => {
                    self.caller.refuse(None, Refusal::Protocol(how));
                    return Turn::Over;
                }
                CallerEvent::Request(ClientRequest::Input { id, end }, payload) => {
                    if self.input.is_some() {
                        let twice = "the program has not taken what was sent before".to_owned();
                        self.caller.refuse(Some(id), Refusal::Protocol(twice));
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
                    let apart = "this connection is a program's".to_owned();
                    self.caller.refuse(other.id(), Refusal::Protocol(apart));
                }
            }
        }
    }
}

fn ended(end: ProgramEnd) -> ProgramEnded {
    let word = |end| ProgramEnded {
        end,
        ..ProgramEnded::default()
    };
    match end {
        ProgramEnd::Exited(code) => ProgramEnded {
            code: Some(code),
            ..word("exited")
        },
        ProgramEnd::Signal(signal) => ProgramEnded {
            signal: Some(signal),
            ..word("signal")
        },
        ProgramEnd::Timeout => word("timeout"),
        ProgramEnd::OutputLimit => word("output-limit"),
        ProgramEnd::Lost(why) => ProgramEnded {
            why: Some(why),
            ..word("lost")
        },
    }
}
