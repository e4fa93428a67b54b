//! Programs that clients start in a sandbox, beside its cells.
//!
//! A thread of its own reads what each prints, so that slow programs take none of the threads that cells run on. Its
//! tenant's account bounds how many there are. What a program prints while no client listens is lost.

use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sandfork::session::{Process, ProcessEvent, Program, ProgramEnd};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::registry::{Sandbox, Texts};
use super::rpc::{END, frame};
use crate::failure::Failure;
use crate::files::failed;
use crate::locked;
use crate::tenant::Running;

/// Events that wait for a client. A program that prints faster than its clients read has to wait.
const WAITING: usize = 4;
/// Bytes that wait for a program to read them. The rest waits with its client, and goes with it.
const PIECE: usize = 16 << 10;
/// The stack of a thread that passes bytes on.
const STACK: usize = 256 << 10;

/// What a client starts, in the words of the protocol.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Config {
    pub cmd: String,
    pub args: Vec<String>,
    pub envs: Texts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub cols: u16,
}

/// A signal that clients send, with its number.
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum Signal {
    #[serde(rename = "SIGNAL_SIGKILL")]
    Kill = 9,
    #[serde(rename = "SIGNAL_SIGTERM")]
    Term = 15,
}

/// What a program's output is called in its events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Output {
    Streams,
    Terminal,
}

/// A program that runs.
#[derive(Debug)]
pub struct Command {
    pub config: Config,
    pub tag: Option<String>,
    pub process: Process,
    output: Output,
    input: Sender<Input>,
    /// Those who hear of it. There are none any more once it has ended.
    listeners: Mutex<Option<Vec<Sender<Bytes>>>>,
}

/// What a client writes: bytes, or nothing for the end of all. The answer says whether the program took it.
type Input = (Option<Bytes>, oneshot::Sender<Result<(), Failure>>);

/// The programs of a sandbox.
#[derive(Debug, Default)]
pub struct Commands(Mutex<Vec<Arc<Command>>>);

impl Commands {
    /// Those that run.
    pub fn all(&self) -> Vec<Arc<Command>> {
        locked(&self.0).clone()
    }
}

impl Command {
    /// Starts a program, and the threads that serve it. Waits until it runs.
    pub async fn started(
        sandbox: Arc<Sandbox>,
        program: Program,
        what: (Config, Option<String>, Output),
    ) -> Result<Receiver<Bytes>, Failure> {
        sandbox.context(None)?.open.charge();
        let running = sandbox.tenant.begin_cell()?;
        let (answer, started) = oneshot::channel();
        // Not one of the threads that others run on: guest code may not answer for a while.
        on_a_thread(move || _ = answer.send(Self::start(&sandbox, running, program, what)))?;
        started.await.map_err(|_| Failure::Mistake)?
    }

    /// Blocks until it runs.
    fn start(
        sandbox: &Arc<Sandbox>,
        running: Running,
        program: Program,
        (config, tag, output): (Config, Option<String>, Output),
    ) -> Result<Receiver<Bytes>, Failure> {
        let programs = sandbox.context(None)?.open.programs.clone();
        let process = programs.start(program).map_err(failed)?;
        let (input, inputs) = channel(1);
        let command = Arc::new(Self {
            config,
            tag,
            process,
            output,
            input,
            listeners: Mutex::new(Some(Vec::new())),
        });
        let events = command.listen()?;
        let served = command.serve(sandbox, running, inputs);
        served.inspect_err(|_| _ = command.process.kill(Signal::Kill as i32))?;
        Ok(events)
    }

    /// Starts the threads that serve it.
    fn serve(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        running: Running,
        inputs: Receiver<Input>,
    ) -> Result<(), Failure> {
        let process = self.process.clone();
        on_a_thread(move || write(&process, inputs))?;
        let (command, of) = (Arc::clone(self), Arc::downgrade(sandbox));
        let mut all = locked(&sandbox.commands.0);
        on_a_thread(move || {
            let end = command.attend();
            // First, so that a client that knows of the end does not find the program any more.
            if let Some(sandbox) = of.upgrade() {
                locked(&sandbox.commands.0).retain(|other| !Arc::ptr_eq(other, &command));
            }
            command.end(&end);
            drop(running);
        })?;
        all.push(Arc::clone(self));
        Ok(())
    }

    /// Sends its events from now on to one more client.
    pub fn listen(&self) -> Result<Receiver<Bytes>, Failure> {
        let (sender, receiver) = channel(WAITING);
        let start = json!({ "event": { "start": { "pid": self.process.pid() } } });
        // There is room.
        _ = sender.try_send(frame(0, &start));
        let mut listeners = locked(&self.listeners);
        listeners.as_mut().ok_or_else(over)?.push(sender);
        Ok(receiver)
    }

    /// Writes to its standard input. Waits until it has taken all.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        for piece in bytes.chunks(PIECE) {
            self.input(Some(Bytes::copy_from_slice(piece))).await?;
        }
        Ok(())
    }

    /// Closes its standard input after what was written to it.
    pub async fn close_input(&self) -> Result<(), Failure> {
        self.input(None).await
    }

    async fn input(&self, piece: Option<Bytes>) -> Result<(), Failure> {
        let (answer, taken) = oneshot::channel();
        self.input.send((piece, answer)).await.map_err(|_| over())?;
        taken.await.map_err(|_| over())?
    }

    /// Sends its output to those who listen, until it ends.
    fn attend(&self) -> ProgramEnd {
        loop {
            let event = match self.process.next_event(None) {
                Some(ProcessEvent::Stdout(bytes)) if self.output == Output::Terminal => {
                    data("pty", &bytes)
                }
                Some(ProcessEvent::Stdout(bytes)) => data("stdout", &bytes),
                Some(ProcessEvent::Stderr(bytes)) => data("stderr", &bytes),
                Some(ProcessEvent::Ended(end)) => return end,
                None => continue,
            };
            self.send(&frame(0, &json!({ "event": { "data": event } })));
        }
    }

    /// Sends its end to those who listen.
    fn end(&self, end: &ProgramEnd) {
        if let Some(limit) = limit(end) {
            // As clients show no more than its output.
            let text = format!("sandfork: {limit}\n");
            let event = data("stderr", text.as_bytes());
            self.send(&frame(0, &json!({ "event": { "data": event } })));
        }
        self.send(&frame(0, &json!({ "event": { "end": ended(end) } })));
        self.send(&frame(END, &json!({})));
        *locked(&self.listeners) = None;
    }

    fn send(&self, event: &Bytes) {
        let listeners = locked(&self.listeners).clone().unwrap_or_default();
        let sent = listeners
            .iter()
            .map(|listener| listener.blocking_send(event.clone()));
        if sent.filter(Result::is_err).count() > 0 {
            let mut listeners = locked(&self.listeners);
            listeners
                .iter_mut()
                .for_each(|all| all.retain(|listener| !listener.is_closed()));
        }
    }
}

fn over() -> Failure {
    Failure::NotFound("the process has ended".to_owned())
}

/// Does what waits for a program or a guest on a thread of its own.
pub fn on_a_thread(act: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = thread::Builder::new()
        .name("command".to_owned())
        .stack_size(STACK);
    let started = thread.spawn(act);
    started
        .map(drop)
        .map_err(|error| Failure::Busy(error.to_string()))
}

/// Writes what clients send, in their order.
fn write(process: &Process, mut inputs: Receiver<Input>) {
    while let Some((input, answer)) = inputs.blocking_recv() {
        let written = if let Some(bytes) = input {
            process.write_stdin(&bytes).map_err(Failure::from)
        } else {
            process.close_stdin();
            Ok(())
        };
        // A client that has gone needs none.
        _ = answer.send(written);
    }
}

fn data(stream: &str, bytes: &[u8]) -> Value {
    json!({ stream: STANDARD.encode(bytes) })
}

/// What ended a program from outside.
fn limit(end: &ProgramEnd) -> Option<String> {
    match end {
        ProgramEnd::Timeout => Some("the command reached its timeout".to_owned()),
        ProgramEnd::OutputLimit => Some("the command reached limits.output".to_owned()),
        ProgramEnd::Lost(why) => Some(format!("the command has ended because {why}")),
        _ => None,
    }
}

/// The end of a program, as E2B has it: -1 stands for one that did not exit.
fn ended(end: &ProgramEnd) -> Value {
    if let ProgramEnd::Exited(code) = end {
        let status = format!("exit status {code}");
        return json!({ "exitCode": code, "exited": true, "status": status });
    }
    let status = match end {
        ProgramEnd::Signal(signal) => format!("signal: {signal}"),
        end => limit(end).unwrap_or_default(),
    };
    json!({ "exitCode": -1, "exited": false, "status": status, "error": status })
}
