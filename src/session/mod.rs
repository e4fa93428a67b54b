//! A live session: a worker that keeps its variables, imports and files from cell to cell.
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

use self::caller::{Events, RequestSender, ThreadCaller, link, not_begun};
use self::tools::{Decider, Tool};

/// A live session. Dropping it ends its worker, with every process and file that it made.
///
/// It runs one cell at a time: `&mut` sees to that. [`Cell::cancel`] and [`Session::interrupter`] reach a running
/// cell from another thread.
#[derive(Debug)]
pub struct Session {
    sandbox: Arc<Sandbox>,
    requests: RequestSender,
    events: Events,
    thread: Option<JoinHandle<()>>,
    tools: BTreeMap<String, Tool>,
    decider: Option<Decider>,
    next_id: u64,
    /// The cell that a panic has left.
    left: Option<u64>,
    enforced: Enforced,
    programs: Programs,
}

/// Interrupts the cell that a session runs, from any thread, and tells what it uses between cells. It outlives the session.
#[derive(Clone, Debug)]
pub struct Interrupter(RequestSender);

impl Interrupter {
    /// Interrupts the cell that runs, if one does: Python raises `KeyboardInterrupt`, and its outcome
    /// is `interrupted`. A cell that does not end within a second takes its worker with it.
    pub fn interrupt(&self) {
        self.0.send(ClientRequest::Interrupt, Payload::default());
    }

    /// The processor time that was used between cells, of which no outcome tells: by code that a cell left running, and
    /// by programs. It is counted when a cell or a program begins, when the last program ends, when the worker does, and
    /// on [`count_cpu`](Self::count_cpu).
    pub fn cpu_between_cells(&self) -> Duration {
        self.0.between_cells()
    }

    /// Has what was used between cells counted now. Does not wait: [`cpu_between_cells`](Self::cpu_between_cells) has it a
    /// moment later, unless a cell runs, whose outcome tells of what is used meanwhile.
    pub fn count_cpu(&self) {
        self.0.count_cpu();
    }
}

impl Sandbox {
    /// Opens a session: a fresh worker, forked from the warm interpreter, that stays.
    ///
    /// # Errors
    ///
    /// As [`Sandbox::run`]: only when the session could not be provided.
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
        let thread = attend_on_a_thread(Arc::clone(self), caller, request)?;
        match await_opened(&events, FIRST) {
            Ok(enforced) => Ok(Session {
                sandbox: Arc::clone(self),
                requests,
                events,
                thread: Some(thread),
                tools: BTreeMap::new(),
                decider: None,
                next_id: FIRST,
                left: None,
                enforced,
                programs,
            }),
            Err(error) => {
                // The thread waits for a request to restart, and no caller is left to send one.
                disconnect(&requests, thread);
                Err(error)
            }
        }
    }
}

/// The number that stands for opening a session, which is no request with a number.
const FIRST: u64 = 0;

/// Ends a session's thread, and waits until it has.
fn disconnect(requests: &RequestSender, thread: JoinHandle<()>) {
    requests.disconnect();
    // One that panicked has said so.
    _ = thread.join();
}

fn attend_on_a_thread(
    sandbox: Arc<Sandbox>,
    mut caller: ThreadCaller,
    request: SessionRequest,
) -> Result<JoinHandle<()>, Error> {
    let attend = move || {
        // The caller has been ended of an error.
        _ = sandbox.attend(&mut caller, request);
    };
    let builder = thread::Builder::new().name("session".into());
    let spawned = builder.spawn(attend);
    spawned.map_err(|cause| not_begun("no thread could be started for the session", &cause))
}

impl Session {
    /// Runs a cell and waits for its end.
    ///
    /// # Errors
    ///
    /// When the session has ended ([`ErrorKind::SessionEnded`](crate::ErrorKind::SessionEnded)) or the
    /// cell cannot be sent. What the guest does is in the report.
    pub fn run(&mut self, cell: impl Into<Cell>) -> Result<CellReport, Error> {
        self.run_streaming(cell, &mut ())
    }

    /// The same, handing on the guest's output as it comes. The report has it all the same.
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
        // After the cell: an interrupt that comes before it finds none.
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
    /// As [`run`](Self::run), and when the value's buffers are too long or more than 96 values are inside each other.
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

    /// Defines a host tool: a function of this process that the guest calls by name. It returns a
    /// value, or the exception that the guest's call raises. It runs on the thread that runs the
    /// cell, and what it uses stays here. The guest sees a function of any arguments, without a docstring: tell the
    /// author of its code what those mean.
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

    /// Sets the function that decides on each connection that the policy's `network.allow` lets through, if the policy
    /// has `network.ask = true`: by the host as the guest named it, the port, and the addresses of which one is dialled
    /// (none if a proxy resolves the name). It runs on the thread that runs the cell. A connection that no cell waits
    /// for, or that is not decided within five seconds, is refused.
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

    /// Ends the worker, if it still lives, and starts another with the same tools.
    ///
    /// # Errors
    ///
    /// When no worker could be provided.
    pub fn restart(&mut self) -> Result<(), Error> {
        let id = self.id();
        self.begin_anew(id, ClientRequest::Restart { id })?;
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

    /// Has another worker take over, by the request with this number.
    fn begin_anew(&mut self, id: u64, request: ClientRequest) -> Result<(), Error> {
        // An error that came unasked is about the worker that goes.
        self.events.forget();
        self.requests.send(request, Payload::default());
        self.enforced = await_opened(&self.events, id)?;
        Ok(())
    }

    /// A handle that interrupts the cell that runs.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(self.requests.clone())
    }

    /// The programs that run in the session, beside its cells. The handle outlives the session's restarts.
    pub fn programs(&self) -> Programs {
        self.programs.clone()
    }

    /// Watches directories of the session, beside its cells. The handle outlives the session's restarts.
    pub fn watcher(&self) -> Watcher {
        self.programs.watcher()
    }

    /// Whether the session is paused (`session.pause_after`, or [`pause`](Self::pause)): its state lies on a
    /// disk. The next use brings it back.
    pub fn is_paused(&self) -> bool {
        self.requests.is_paused()
    }

    /// What holds the session's worker.
    pub fn enforced(&self) -> &Enforced {
        &self.enforced
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The number of the next request. A session has one at a time: waits until the cell that a panic has left has ended,
    /// which was interrupted.
    fn id(&mut self) -> u64 {
        if let Some(left) = self.left.take() {
            self.events.await_end(left);
        }
        self.next_id += 1;
        self.next_id
    }

    fn await_outcome(&mut self, id: u64, sink: &mut dyn OutputSink) -> Result<CellReport, Error> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut shown = Vec::new();
        let _unwinding = Unwinding {
            id,
            left: &mut self.left,
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
                ClientEvent::Display(display) => shown.push(DisplayOutput::new(display, payload)),
                ClientEvent::Call(call) => {
                    let (answer, payload) = tools::answer(&mut self.tools, call, payload);
                    self.requests.send(ClientRequest::Return(answer), payload);
                }
                ClientEvent::Connect(asked) => {
                    let request = tools::decide(self.decider.as_mut(), &asked);
                    self.requests.send(request, Payload::default());
                }
                ClientEvent::Outcome(ended) => {
                    return Ok(CellReport::new(*ended, payload, (stdout, stderr), shown));
                }
                _ => {}
            }
        }
    }
}

/// Interrupts the cell that waits for a tool, a decision or a sink which panicked: the session has no other end of it.
struct Unwinding<'a> {
    id: u64,
    left: &'a mut Option<u64>,
    requests: &'a RequestSender,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.left = Some(self.id);
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
