//! Programs that clients start in a sandbox, beside its cells.
//!
//! A thread of its own reads what each prints, so that slow programs take none of the threads that cells run on. Its
//! tenant's account bounds how many there are. What a program prints while no client listens is lost.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sandfork::session::{Process, ProcessEvent, Program, ProgramEnd};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::config::Config;
use super::registry::Sandbox;
use super::rpc::{END, frame};
use crate::failure::Failure;
use crate::files::failed;
use crate::locked;
use crate::tenant::Running;

/// Events that wait for a client. A program that prints faster than all its clients read has to wait. Its clients share the
/// bytes of an event.
const WAITING: usize = 4;
/// How long a client that takes nothing may keep an event from the others.
const LAG: Duration = Duration::from_secs(2);
/// How long one that has no room waits before it is asked again.
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(10);
/// Bytes that wait for a program to read them. The rest waits with its client, and goes with it.
const PIECE: usize = 16 << 10;
/// The clients that listen to a program at once.
const MOST_LISTENERS: usize = 64;
/// The stack of a thread that passes bytes on.
const STACK: usize = 256 << 10;

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

impl Command {
    /// Starts a program, and the threads that serve it. Waits until it runs.
    pub async fn started(
        sandbox: Arc<Sandbox>,
        program: Program,
        what: (Config, Option<String>, Output),
    ) -> Result<Receiver<Bytes>, Failure> {
        sandbox.context(None)?.open.meter.charge();
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
        let mut all = locked(&sandbox.commands);
        on_a_thread(move || {
            let end = command.attend();
            // First, so that a client that knows of the end does not find the program any more.
            if let Some(sandbox) = of.upgrade() {
                locked(&sandbox.commands).retain(|other| !Arc::ptr_eq(other, &command));
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
        add(listeners.as_mut().ok_or_else(over)?, sender)?;
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
        let lost = send_to_all(&listeners, event, LAG);
        if !lost.is_empty() {
            let mut listeners = locked(&self.listeners);
            let is_lost = |one: &Sender<Bytes>| lost.iter().any(|lost| lost.same_channel(one));
            listeners
                .iter_mut()
                .for_each(|all| all.retain(|listener| !is_lost(listener)));
        }
    }
}

/// Adds a client to those who listen. Those that have gone make room: a program that prints nothing does not find out.
fn add(listeners: &mut Vec<Sender<Bytes>>, sender: Sender<Bytes>) -> Result<(), Failure> {
    listeners.retain(|listener| !listener.is_closed());
    if listeners.len() >= MOST_LISTENERS {
        return Err(Failure::Busy(format!(
            "{MOST_LISTENERS} clients listen to this process, as many as may: try again later"
        )));
    }
    listeners.push(sender);
    Ok(())
}

/// Sends an event to these, and waits until one of them takes it. Returns those that have gone, and those that took nothing
/// for `lag` while another one did: their streams break off.
fn send_to_all<'a>(
    listeners: &'a [Sender<Bytes>],
    event: &Bytes,
    lag: Duration,
) -> Vec<&'a Sender<Bytes>> {
    if let [only] = listeners {
        let sent = only.blocking_send(event.clone());
        return sent.err().map(|_| only).into_iter().collect();
    }
    let (mut waiting, mut gone, mut taken) = (Vec::from_iter(listeners), Vec::new(), None);
    loop {
        waiting.retain(|listener| match listener.try_send(event.clone()) {
            Ok(()) => {
                taken.get_or_insert_with(Instant::now);
                false
            }
            Err(TrySendError::Full(_)) => true,
            Err(TrySendError::Closed(_)) => {
                gone.push(*listener);
                false
            }
        });
        let is_late = taken.is_some_and(|taken: Instant| taken.elapsed() >= lag);
        if waiting.is_empty() || is_late {
            gone.append(&mut waiting);
            return gone;
        }
        thread::sleep(UNTIL_NEXT_TRY);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_have_gone_make_room_for_others_who_listen() {
        let mut all = Vec::new();
        let mut listen = || {
            let (sender, receiver) = channel(WAITING);
            add(&mut all, sender).map(|()| (all.len(), receiver))
        };
        for _ in 0..10 * MOST_LISTENERS {
            let (count, _gone) = listen().expect("there is room");
            assert_eq!(count, 1);
        }
        let there: Vec<_> = (0..MOST_LISTENERS).map(|_| listen()).collect();
        assert!(there.iter().all(Result::is_ok));
        assert!(matches!(listen(), Err(Failure::Busy(_))));
        drop(there);
        assert!(listen().is_ok());
    }

    #[test]
    fn a_listener_that_never_reads_is_dropped_and_the_others_go_on() {
        let (reading, mut read) = channel(WAITING);
        let (stuck, _unread) = channel(WAITING);
        let (left, receiver) = channel(WAITING);
        drop(receiver);
        let reader = thread::spawn(move || std::iter::from_fn(|| read.blocking_recv()).count());
        let mut listeners = vec![reading, stuck, left];
        let mut lost = Vec::new();
        for _ in 0..100 {
            let gone = send_to_all(&listeners, &Bytes::from_static(b"x"), LAG);
            let gone: Vec<_> = gone.into_iter().cloned().collect();
            listeners.retain(|one| !gone.iter().any(|gone| gone.same_channel(one)));
            lost.push(gone.len());
        }
        assert_eq!((lost[0], lost[WAITING], lost.iter().sum()), (1, 1, 2));
        drop(listeners);
        assert_eq!(reader.join().ok(), Some(100));
    }
}
