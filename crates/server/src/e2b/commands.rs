//! Programs that clients start in a sandbox, beside its cells.
//!
//! A thread of its own reads what each prints, so that slow programs take none of the threads that cells run on. Its
//! tenant's account bounds how many there are. What a program prints while no client listens is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sandfork::LimitName;
use sandfork::session::{Process, ProcessEvent, Program, ProgramEnd};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::registry::{Sandbox, Texts};
use super::rpc::{END, frame};
use crate::failure::Failure;
use crate::http::Held;
use crate::tenant::Running;

/// Events that wait for a client. A program that prints faster than its clients read has to wait.
const WAITING: usize = 16;
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
    listeners: Mutex<Vec<Sender<Bytes>>>,
}

/// What a client writes: bytes, or nothing for the end of all. The answer says whether the program took it.
type Input = (Option<(Bytes, Held)>, oneshot::Sender<Result<(), Failure>>);

/// The programs of a sandbox.
#[derive(Debug, Default)]
pub struct Commands(Mutex<Vec<Arc<Command>>>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Commands {
    /// Those that run.
    pub fn all(&self) -> Vec<Arc<Command>> {
        locked(&self.0).clone()
    }
}

impl Command {
    /// Starts a program, and the threads that serve it. Blocks until it runs.
    pub fn start(
        sandbox: &Arc<Sandbox>,
        program: Program,
        (config, tag, output): (Config, Option<String>, Output),
    ) -> Result<Receiver<Bytes>, Failure> {
        let running = sandbox.tenant.begin_cell()?;
        let process = sandbox.context(None)?.open.programs.start(program)?;
        let (input, inputs) = channel(1);
        let command = Arc::new(Self {
            config,
            tag,
            process,
            output,
            input,
            listeners: Mutex::default(),
        });
        let events = command.listen();
        locked(&sandbox.commands.0).push(Arc::clone(&command));
        let cores = sandbox.tenant.sandboxes.limit(LimitName::Cores);
        let (of, process) = (Arc::downgrade(sandbox), command.process.clone());
        on_a_thread(move || write(&process, inputs))?;
        on_a_thread(move || {
            command.attend(running, cores);
            if let Some(sandbox) = of.upgrade() {
                locked(&sandbox.commands.0).retain(|other| !Arc::ptr_eq(other, &command));
            }
        })?;
        Ok(events)
    }

    /// Has its events sent to one more client, from now on.
    pub fn listen(&self) -> Receiver<Bytes> {
        let (sender, receiver) = channel(WAITING);
        let start = json!({ "event": { "start": { "pid": self.process.pid() } } });
        // There is room.
        _ = sender.try_send(frame(0, &start));
        locked(&self.listeners).push(sender);
        receiver
    }

    /// Writes to its standard input, or closes that. Waits until it has taken all.
    pub async fn write(&self, bytes: Option<(Bytes, Held)>) -> Result<(), Failure> {
        let (answer, written) = oneshot::channel();
        let ended = || Failure::NotFound("the process has ended".to_owned());
        self.input
            .send((bytes, answer))
            .await
            .map_err(|_| ended())?;
        written.await.map_err(|_| ended())?
    }

    /// Sends its output to those who listen, until it ends.
    fn attend(&self, mut running: Running, cores: u64) {
        let begun = Instant::now();
        loop {
            let event = match self.process.next_event(None) {
                Some(ProcessEvent::Stdout(bytes)) if self.output == Output::Terminal => {
                    data("pty", &bytes)
                }
                Some(ProcessEvent::Stdout(bytes)) => data("stdout", &bytes),
                Some(ProcessEvent::Stderr(bytes)) => data("stderr", &bytes),
                Some(ProcessEvent::Ended(end)) => {
                    self.send(&frame(0, &json!({ "event": { "end": ended(&end) } })));
                    self.send(&frame(END, &json!({})));
                    locked(&self.listeners).clear();
                    break;
                }
                None => continue,
            };
            self.send(&frame(0, &json!({ "event": { "data": event } })));
        }
        // Nothing measures a program of a session alone: it is counted as if it had used all it may.
        running.used(begun.elapsed().mul_f64(cores as f64 / 1000.0));
    }

    fn send(&self, event: &Bytes) {
        let listeners = locked(&self.listeners).clone();
        let gone: Vec<_> = listeners
            .into_iter()
            .filter(|listener| listener.blocking_send(event.clone()).is_err())
            .collect();
        if !gone.is_empty() {
            locked(&self.listeners).retain(|listener| !listener.is_closed());
        }
    }
}

fn on_a_thread(act: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
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
        let written = match input {
            Some((bytes, _held)) => process.write_stdin(&bytes).map_err(Failure::from),
            None => {
                process.close_stdin();
                Ok(())
            }
        };
        // A client that has gone needs none.
        _ = answer.send(written);
    }
}

fn data(stream: &str, bytes: &[u8]) -> Value {
    json!({ stream: STANDARD.encode(bytes) })
}

/// The end of a program, as E2B has it: -1 stands for one that did not exit.
fn ended(end: &ProgramEnd) -> Value {
    let status = match end {
        ProgramEnd::Exited(code) => {
            let status = format!("exit status {code}");
            return json!({ "exitCode": code, "exited": true, "status": status });
        }
        ProgramEnd::Signal(signal) => format!("signal: {signal}"),
        ProgramEnd::Timeout => "the command reached its timeout".to_owned(),
        ProgramEnd::OutputLimit => "the command reached limits.output".to_owned(),
        ProgramEnd::Lost(why) => format!("the command is lost: {why}"),
        _ => "the command has ended".to_owned(),
    };
    json!({ "exitCode": -1, "exited": false, "status": status, "error": status })
}
