//! Provides live sessions: workers that keep their variables, imports and files from cell to cell.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! let sandbox = Arc::new(sandfork::Sandbox::builder().build()?);
//! let mut session = sandbox.session()?;
//! session.run("total = sum(range(10))")?;
//! let report = session.run("total * 2")?;
//! assert_eq!(report.outcome().value(), Some(&90.into()));
//! # Ok::<(), sandfork::Error>(())
//! ```

mod caller;
mod cell;
mod files;
mod snapshot;
mod tools;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use self::cell::{Cell, CellReport, DisplayOutput, OutgoingValue};
pub use self::snapshot::Snapshot;
pub use self::tools::ToolArguments;
pub use crate::outcome::value::{Attachments, Buffers, Dtype, NdarrayView};
pub use crate::protocol::NamedError;
pub use crate::protocol::caller::{FileEntry, FileEvent, SessionState};
pub use crate::protocol::message::ResultMode;
pub use crate::supervisor::files::{Contents, Parents, Removal};
pub use crate::supervisor::{
    Depth, Process, ProcessEvent, Program, ProgramEnd, ProgramReport, Programs, Watch, Watcher,
};

use crate::error::Error;
use crate::outcome::Enforced;
use crate::protocol::ToolDeclaration;
use crate::protocol::caller::{ClientEvent, ClientRequest};
use crate::protocol::message::{Tools, Variables};
use crate::sandbox::{Sandbox, SessionRequest};
use crate::supervisor::{Opaque, OutputSink, Payload};

use self::caller::{Events, RequestSender, ThreadCaller, link, start_error};
use self::tools::{Decider, Tool};

/// A live session. Dropping it ends its worker, with every process and file that the worker made.
///
/// A session runs one cell at a time, which `&mut` enforces. [`Cell::cancel`] and [`Session::interrupter`] reach a
/// running cell from another thread.
#[derive(Debug)]
pub struct Session {
    sandbox: Arc<Sandbox>,
    requests: RequestSender,
    events: Events,
    thread: Option<JoinHandle<()>>,
    tools: BTreeMap<String, Tool>,
    decider: Option<Decider>,
    next_id: u64,
    /// The request number of a cell whose caller panicked.
    abandoned: Option<u64>,
    enforced: Enforced,
    programs: Programs,
}

/// A handle that interrupts a session's running cell from any thread, and reports the CPU time used between cells. It
/// outlives the session.
#[derive(Clone, Debug)]
pub struct Interrupter(RequestSender);

impl Interrupter {
    /// Interrupts the running cell, if any: Python raises `KeyboardInterrupt`, and the outcome is `interrupted`. If the
    /// cell does not end within a second, its worker is killed.
    pub fn interrupt(&self) {
        self.0.send(ClientRequest::Interrupt, Payload::default());
    }

    /// Returns the CPU time used between cells, which no outcome includes: by programs, and by code that a cell left
    /// running. It is updated when a cell or a program starts, when the last program ends, when the worker ends, and on
    /// [`count_cpu`](Self::count_cpu).
    pub fn cpu_between_cells(&self) -> Duration {
        self.0.between_cells()
    }

    /// Requests an update of [`cpu_between_cells`](Self::cpu_between_cells), without waiting for it. While a cell runs
    /// there is no update, because the cell's outcome includes the time.
    pub fn count_cpu(&self) {
        self.0.count_cpu();
    }
}

impl Sandbox {
    /// Opens a session: a fresh worker, forked from the warm interpreter, that lives until the session ends.
    ///
    /// # Errors
    ///
    /// As [`Sandbox::run`]: only if the session could not be provided.
    pub fn session(self: &Arc<Self>) -> Result<Session, Error> {
        self.open(SessionRequest::default())
    }

    fn open(self: &Arc<Self>, request: SessionRequest) -> Result<Session, Error> {
        let (requests, caller, events) = link()?;
        let programs = self.programs()?;
        let request = SessionRequest {
            programs: Some(programs.queue()),
            ..request
        };
        let thread = spawn_attending_thread(Arc::clone(self), caller, request)?;
        match await_opened(&events, OPENING) {
            Ok(enforced) => Ok(Session {
                sandbox: Arc::clone(self),
                requests,
                events,
                thread: Some(thread),
                tools: BTreeMap::new(),
                decider: None,
                next_id: OPENING,
                abandoned: None,
                enforced,
                programs,
            }),
            Err(error) => {
                // The thread waits for a restart request, and no caller is left to send one.
                disconnect(&requests, thread);
                Err(error)
            }
        }
    }
}

/// The request number under which the session is opened. Requests have higher numbers.
const OPENING: u64 = 0;

/// Disconnects from the session's thread and joins it.
fn disconnect(requests: &RequestSender, thread: JoinHandle<()>) {
    requests.disconnect();
    // A thread that panicked has reported the panic itself.
    _ = thread.join();
}

fn spawn_attending_thread(
    sandbox: Arc<Sandbox>,
    mut caller: ThreadCaller,
    request: SessionRequest,
) -> Result<JoinHandle<()>, Error> {
    let serve = move || {
        // The caller has received the error already.
        _ = sandbox.serve_session(&mut caller, request);
    };
    let builder = thread::Builder::new().name("session".into());
    let spawned = builder.spawn(serve);
    spawned.map_err(|cause| start_error("no thread could be started for the session", &cause))
}

impl Session {
    /// Runs a cell and waits until it ends.
    ///
    /// # Errors
    ///
    /// If the session has ended ([`ErrorKind::SessionEnded`](crate::ErrorKind::SessionEnded)) or the cell cannot be
    /// sent. The report has every end of guest code.
    pub fn run(&mut self, cell: impl Into<Cell>) -> Result<CellReport, Error> {
        self.run_streaming(cell, &mut ())
    }

    /// Like [`run`](Self::run), but also passes the guest's output to a sink as it arrives. The report contains the
    /// output as well.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_streaming(
        &mut self,
        cell: impl Into<Cell>,
        sink: &mut dyn OutputSink,
    ) -> Result<CellReport, Error> {
        let id = self.id();
        let mut cell = cell.into();
        let cancel = cell.cancel.take();
        let (request, source) = cell.into_request(id);
        self.requests.send(request, Payload::bytes(source));
        // Registered after the cell is sent: an earlier interrupt would find no cell.
        let _cancelled = cancel.as_ref().map(|cancel| {
            let interrupter = self.interrupter();
            cancel.interrupts(move || interrupter.interrupt())
        });
        self.await_outcome(id, sink)
    }

    /// Defines a variable of the session.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and if the value's buffers are too long or its values are nested more than 96 levels
    /// deep.
    pub fn set(
        &mut self,
        name: impl Into<String>,
        value: impl Into<OutgoingValue>,
    ) -> Result<CellReport, Error> {
        let id = self.id();
        let (value, blob, payload) = value.into().pack()?;
        let pairs = vec![(name.into(), value)];
        let request = ClientRequest::Set(Variables { id, pairs, blob });
        self.requests.send(request, payload);
        self.await_outcome(id, &mut ())
    }

    /// Defines a host tool: a function of this process that guest code calls by name. The function returns a value, or
    /// the exception that the guest's call raises. It runs on the thread that runs the cell; its resources stay in this
    /// process. The guest sees a function that takes any arguments and has no docstring, so describe its parameters to
    /// the author of the guest code.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn tool(
        &mut self,
        name: impl Into<String>,
        function: impl FnMut(ToolArguments) -> Result<OutgoingValue, NamedError> + Send + 'static,
    ) -> Result<CellReport, Error> {
        let name = name.into();
        let report = self.declare(vec![tools::declaration(&name)])?;
        if report.outcome().is_ok() {
            self.tools.insert(name, Opaque(Box::new(function)));
        }
        Ok(report)
    }

    /// Sets the function that decides on each connection that `network.allow` permits, if the policy sets
    /// `network.ask = true`. Its arguments are the host as the guest named it, the port, and the candidate addresses,
    /// of which one is dialled (none if a proxy resolves the name). It runs on the thread that runs the cell. A
    /// connection is refused if no cell is running, or if the decision takes longer than five seconds.
    pub fn on_connect(
        &mut self,
        decide: impl FnMut(&str, u16, &[IpAddr]) -> bool + Send + 'static,
    ) {
        self.decider = Some(Opaque(Box::new(decide)));
    }

    fn declare(&mut self, tools: Vec<ToolDeclaration>) -> Result<CellReport, Error> {
        let id = self.id();
        self.requests.send(
            ClientRequest::Tools(Tools { id, tools }),
            Payload::default(),
        );
        self.await_outcome(id, &mut ())
    }

    /// Ends the worker, if it is alive, and starts another with the same tools.
    ///
    /// # Errors
    ///
    /// If no worker could be provided.
    pub fn restart(&mut self) -> Result<(), Error> {
        let id = self.id();
        self.replace_worker(id, ClientRequest::Restart { id })?;
        let tools: Vec<_> = self
            .tools
            .keys()
            .map(|name| tools::declaration(name))
            .collect();
        if !tools.is_empty() {
            self.declare(tools)?;
        }
        Ok(())
    }

    /// Sends a request that replaces the worker, and waits until the new worker is ready.
    fn replace_worker(&mut self, id: u64, request: ClientRequest) -> Result<(), Error> {
        // An unsolicited error concerns the worker that is being replaced.
        self.events.discard_pending();
        self.requests.send(request, Payload::default());
        self.enforced = await_opened(&self.events, id)?;
        Ok(())
    }

    /// Returns a handle that interrupts the running cell.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(self.requests.clone())
    }

    /// Returns a handle on the programs that run in the session beside its cells. The handle survives restarts.
    pub fn programs(&self) -> Programs {
        self.programs.clone()
    }

    /// Returns a handle that watches directories of the session. The handle survives restarts.
    pub fn watcher(&self) -> Watcher {
        self.programs.watcher()
    }

    /// Returns whether the session is paused, by `session.pause_after` or [`pause`](Self::pause): its state is on disk.
    /// The next use resumes it.
    pub fn is_paused(&self) -> bool {
        self.requests.is_paused()
    }

    /// Returns the layers that confine the session's worker.
    pub fn enforced(&self) -> &Enforced {
        &self.enforced
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Returns the number of the next request. A session handles one request at a time, so this first waits until a
    /// cell whose caller panicked, and which was interrupted, has ended.
    fn id(&mut self) -> u64 {
        if let Some(abandoned) = self.abandoned.take() {
            self.events.await_end(abandoned);
        }
        self.next_id += 1;
        self.next_id
    }

    fn await_outcome(&mut self, id: u64, sink: &mut dyn OutputSink) -> Result<CellReport, Error> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut displays = Vec::new();
        let _on_panic = InterruptOnPanic {
            id,
            abandoned: &mut self.abandoned,
            requests: &self.requests,
        };
        loop {
            let (event, payload) = self.events.next(id)?;
            match event {
                ClientEvent::Output {
                    stream: "stdout", ..
                } => {
                    sink.stdout(&payload.bytes);
                    stdout.extend(payload.bytes);
                }
                ClientEvent::Output { .. } => {
                    sink.stderr(&payload.bytes);
                    stderr.extend(payload.bytes);
                }
                ClientEvent::Display(display) => {
                    displays.push(DisplayOutput::new(display, payload));
                }
                ClientEvent::Call(call) => {
                    let (answer, payload) = tools::answer(&mut self.tools, call, payload);
                    self.requests.send(ClientRequest::Return(answer), payload);
                }
                ClientEvent::Connect(question) => {
                    let request = tools::decide(self.decider.as_mut(), &question);
                    self.requests.send(request, Payload::default());
                }
                ClientEvent::Outcome(ended) => {
                    return Ok(CellReport::new(*ended, payload, (stdout, stderr), displays));
                }
                _ => {}
            }
        }
    }
}

/// Interrupts the running cell if a tool, a decision or a sink panics: nothing else would end the cell.
struct InterruptOnPanic<'a> {
    id: u64,
    abandoned: &'a mut Option<u64>,
    requests: &'a RequestSender,
}

impl Drop for InterruptOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.abandoned = Some(self.id);
            self.requests
                .send(ClientRequest::Interrupt, Payload::default());
        }
    }
}

fn await_opened(events: &Events, id: u64) -> Result<Enforced, Error> {
    loop {
        if let ClientEvent::Opened(opened) = events.next(id)?.0 {
            return Ok(opened.enforced);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            disconnect(&self.requests, thread);
        }
    }
}
