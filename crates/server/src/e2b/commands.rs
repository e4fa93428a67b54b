//! Programs that clients start in a sandbox, next to its cells.
//!
//! Each program has its own reader thread, so that slow programs occupy none of the threads on which cells run. The
//! tenant's account limits the number of programs. Output that no client is subscribed to is discarded.

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

/// The capacity of a client's event queue. A program that prints faster than all its clients read is blocked. The
/// clients share the bytes of an event.
const QUEUE_LENGTH: usize = 4;
/// How long a client that reads nothing may delay the other clients.
const MAX_LAG: Duration = Duration::from_secs(2);
/// The interval at which full queues are retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum number of input bytes in flight to a program. The rest stays with its client, and is lost if the client
/// disconnects.
const PIECE: usize = 16 << 10;
/// The maximum number of clients that are subscribed to a program.
const MAX_SUBSCRIBERS: usize = 64;
/// The stack size of a thread that copies bytes.
const STACK: usize = 256 << 10;

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub cols: u16,
}

/// A signal that clients may send.
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum Signal {
    #[serde(rename = "SIGNAL_SIGKILL")]
    Kill = 9,
    #[serde(rename = "SIGNAL_SIGTERM")]
    Term = 15,
}

/// How a program's output is labelled in events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Output {
    Streams,
    Terminal,
}

/// A running program.
#[derive(Debug)]
pub struct Command {
    pub config: Config,
    pub tag: Option<String>,
    pub process: Process,
    output: Output,
    input: Sender<Input>,
    /// The subscribed clients; `None` once the program has ended.
    subscribers: Mutex<Option<Vec<Sender<Bytes>>>>,
}

/// Input from a client: bytes, or `None` for EOF. The sender receives the result of the write.
type Input = (Option<Bytes>, oneshot::Sender<Result<(), Failure>>);

impl Command {
    /// Starts a program and the threads that serve it, and waits until the program runs.
    pub async fn spawn(
        sandbox: Arc<Sandbox>,
        program: Program,
        what: (Config, Option<String>, Output),
    ) -> Result<Receiver<Bytes>, Failure> {
        sandbox.context(None)?.open.meter.charge();
        let running = sandbox.tenant.begin_cell()?;
        let (answer, started) = oneshot::channel();
        // A separate thread, because guest code may delay the answer for a while.
        spawn_thread(move || _ = answer.send(Self::start(&sandbox, running, program, what)))?;
        started.await.map_err(|_| Failure::Internal)?
    }

    /// Blocks until the program runs.
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
            subscribers: Mutex::new(Some(Vec::new())),
        });
        let events = command.subscribe()?;
        let served = command.serve(sandbox, running, inputs);
        served.inspect_err(|_| _ = command.process.kill(Signal::Kill as i32))?;
        Ok(events)
    }

    /// Starts the threads that serve the program.
    fn serve(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        running: Running,
        inputs: Receiver<Input>,
    ) -> Result<(), Failure> {
        let process = self.process.clone();
        spawn_thread(move || write(&process, inputs))?;
        let (command, of) = (Arc::clone(self), Arc::downgrade(sandbox));
        let mut all = locked(&sandbox.commands);
        spawn_thread(move || {
            let end = command.forward_output();
            // Unregister the program before its end is reported, so that a client that knows of the end no longer finds
            // it.
            if let Some(sandbox) = of.upgrade() {
                locked(&sandbox.commands).retain(|other| !Arc::ptr_eq(other, &command));
            }
            command.report_end(&end);
            drop(running);
        })?;
        all.push(Arc::clone(self));
        Ok(())
    }

    /// Subscribes a client to the program's events from now on.
    pub fn subscribe(&self) -> Result<Receiver<Bytes>, Failure> {
        let (sender, receiver) = channel(QUEUE_LENGTH);
        let start = json!({ "event": { "start": { "pid": self.process.pid() } } });
        // The queue is empty.
        _ = sender.try_send(frame(0, &start));
        let mut subscribers = locked(&self.subscribers);
        add_subscriber(subscribers.as_mut().ok_or_else(over)?, sender)?;
        Ok(receiver)
    }

    /// Writes to the program's standard input, and waits until everything was written.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        for piece in bytes.chunks(PIECE) {
            self.input(Some(Bytes::copy_from_slice(piece))).await?;
        }
        Ok(())
    }

    /// Closes the program's standard input after all pending writes.
    pub async fn close_input(&self) -> Result<(), Failure> {
        self.input(None).await
    }

    async fn input(&self, piece: Option<Bytes>) -> Result<(), Failure> {
        let (answer, taken) = oneshot::channel();
        self.input.send((piece, answer)).await.map_err(|_| over())?;
        taken.await.map_err(|_| over())?
    }

    /// Forwards the program's output to the subscribers until the program ends.
    fn forward_output(&self) -> ProgramEnd {
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

    /// Reports the program's end to the subscribers.
    fn report_end(&self, end: &ProgramEnd) {
        if let Some(limit) = limit(end) {
            // Clients display nothing but output.
            let text = format!("sandfork: {limit}\n");
            let event = data("stderr", text.as_bytes());
            self.send(&frame(0, &json!({ "event": { "data": event } })));
        }
        self.send(&frame(0, &json!({ "event": { "end": ended(end) } })));
        self.send(&frame(END, &json!({})));
        *locked(&self.subscribers) = None;
    }

    fn send(&self, event: &Bytes) {
        let subscribers = locked(&self.subscribers).clone().unwrap_or_default();
        let lost = send_to_all(&subscribers, event, MAX_LAG);
        if !lost.is_empty() {
            let mut subscribers = locked(&self.subscribers);
            let is_lost = |one: &Sender<Bytes>| lost.iter().any(|lost| lost.same_channel(one));
            subscribers
                .iter_mut()
                .for_each(|all| all.retain(|subscriber| !is_lost(subscriber)));
        }
    }
}

/// Adds a subscriber, and removes those that have disconnected: a program that prints nothing does not notice them.
fn add_subscriber(
    subscribers: &mut Vec<Sender<Bytes>>,
    sender: Sender<Bytes>,
) -> Result<(), Failure> {
    subscribers.retain(|subscriber| !subscriber.is_closed());
    if subscribers.len() >= MAX_SUBSCRIBERS {
        return Err(Failure::Busy(format!(
            "{MAX_SUBSCRIBERS} clients are already connected to this process, its limit: retry later"
        )));
    }
    subscribers.push(sender);
    Ok(())
}

/// Sends an event to all subscribers, and waits until at least one of them accepts it. Returns those that disconnected,
/// and those that accepted nothing for `lag` after another one did: their streams are dropped.
fn send_to_all<'a>(
    subscribers: &'a [Sender<Bytes>],
    event: &Bytes,
    lag: Duration,
) -> Vec<&'a Sender<Bytes>> {
    if let [only] = subscribers {
        let sent = only.blocking_send(event.clone());
        return sent.err().map(|_| only).into_iter().collect();
    }
    let (mut waiting, mut gone, mut taken) = (Vec::from_iter(subscribers), Vec::new(), None);
    loop {
        waiting.retain(|subscriber| match subscriber.try_send(event.clone()) {
            Ok(()) => {
                taken.get_or_insert_with(Instant::now);
                false
            }
            Err(TrySendError::Full(_)) => true,
            Err(TrySendError::Closed(_)) => {
                gone.push(*subscriber);
                false
            }
        });
        let is_late = taken.is_some_and(|taken: Instant| taken.elapsed() >= lag);
        if waiting.is_empty() || is_late {
            gone.append(&mut waiting);
            return gone;
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

fn over() -> Failure {
    Failure::NotFound("the process has ended".to_owned())
}

/// Spawns a thread for work that waits for a program or a guest.
pub fn spawn_thread(act: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = thread::Builder::new()
        .name("command".to_owned())
        .stack_size(STACK);
    let started = thread.spawn(act);
    started
        .map(drop)
        .map_err(|error| Failure::Busy(error.to_string()))
}

/// Writes the input of clients, in order.
fn write(process: &Process, mut inputs: Receiver<Input>) {
    while let Some((input, answer)) = inputs.blocking_recv() {
        let written = if let Some(bytes) = input {
            process.write_stdin(&bytes).map_err(Failure::from)
        } else {
            process.close_stdin();
            Ok(())
        };
        // Fails if the client has disconnected.
        _ = answer.send(written);
    }
}

fn data(stream: &str, bytes: &[u8]) -> Value {
    json!({ stream: STANDARD.encode(bytes) })
}

/// Returns the external reason for which a program ended, if there is one.
fn limit(end: &ProgramEnd) -> Option<String> {
    match end {
        ProgramEnd::Timeout => Some("the command reached its timeout".to_owned()),
        ProgramEnd::OutputLimit => Some("the command reached limits.output".to_owned()),
        ProgramEnd::Lost(why) => Some(format!("the command ended because {why}")),
        _ => None,
    }
}

/// Describes the end of a program like E2B does. Exit code -1 stands for a program that did not exit by itself.
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
    fn disconnected_subscribers_make_room() {
        let mut all = Vec::new();
        let mut subscribe = || {
            let (sender, receiver) = channel(QUEUE_LENGTH);
            add_subscriber(&mut all, sender).map(|()| (all.len(), receiver))
        };
        for _ in 0..10 * MAX_SUBSCRIBERS {
            let (count, _gone) = subscribe().expect("there is room");
            assert_eq!(count, 1);
        }
        let there: Vec<_> = (0..MAX_SUBSCRIBERS).map(|_| subscribe()).collect();
        assert!(there.iter().all(Result::is_ok));
        assert!(matches!(subscribe(), Err(Failure::Busy(_))));
        drop(there);
        assert!(subscribe().is_ok());
    }

    #[test]
    fn stuck_subscriber_is_dropped_and_others_continue() {
        let (reading, mut read) = channel(QUEUE_LENGTH);
        let (stuck, _unread) = channel(QUEUE_LENGTH);
        let (left, receiver) = channel(QUEUE_LENGTH);
        drop(receiver);
        let reader = thread::spawn(move || std::iter::from_fn(|| read.blocking_recv()).count());
        let mut subscribers = vec![reading, stuck, left];
        let mut lost = Vec::new();
        for _ in 0..100 {
            let gone = send_to_all(&subscribers, &Bytes::from_static(b"x"), MAX_LAG);
            let gone: Vec<_> = gone.into_iter().cloned().collect();
            subscribers.retain(|one| !gone.iter().any(|gone| gone.same_channel(one)));
            lost.push(gone.len());
        }
        assert_eq!((lost[0], lost[QUEUE_LENGTH], lost.iter().sum()), (1, 1, 2));
        drop(subscribers);
        assert_eq!(reader.join().ok(), Some(100));
    }
}
