//! `POST /run_jupyter`: cells of one fresh session.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandfork::session::{Cell, CellReport, ResultMode, Session, SessionState};
use sandfork::{GuestPath, LimitName, Status};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{ProgramResult, ProgramStatus, RunStatus};
use crate::descriptors::SessionPlace;
use crate::display::{Forms, displays, error};
use crate::failure::Failure;
use crate::files::{Encoded, decoded, guest_path, put, read};
use crate::http::{Held, JsonBody, length_of, unwritten};
use crate::locked;
use crate::meter::Metered;
use crate::running::{Turn, blocking, in_turn};
use crate::sandboxes::Variant;
use crate::server::App;
use crate::tenant::Tenant;

#[derive(Debug, Deserialize)]
#[serde(default)]
pub struct RunJupyter {
    cells: Vec<String>,
    /// 0 stands for no time of its own.
    cell_timeout: f64,
    total_timeout: f64,
    #[serde(rename = "memory_limit_MB")]
    memory_limit_mb: i64,
    files: Encoded,
    fetch_files: Vec<String>,
}

impl Default for RunJupyter {
    fn default() -> Self {
        Self {
            cells: Vec::new(),
            cell_timeout: 0.0,
            total_timeout: 45.0,
            memory_limit_mb: -1,
            files: Encoded::new(),
            fetch_files: Vec::new(),
        }
    }
}

/// How long a notebook waits before it asks for another turn, where too many others wait for one, or its tenant's rate allows none.
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(100);

#[derive(Debug, Serialize)]
struct JupyterResult {
    status: RunStatus,
    message: String,
    driver: ProgramResult,
    /// Of type [`CellResult`], written when the cell has ended.
    cells: Vec<Box<RawValue>>,
    executor_pod_name: Option<String>,
    files: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct CellResult<'a> {
    stdout: Cow<'a, str>,
    stderr: Cow<'a, str>,
    display: Vec<Forms<'a>>,
    error: Vec<Value>,
}

/// Runs the cells one after the other. As in a notebook whose cells are run by hand, those after one that fails run too.
pub async fn run_jupyter(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Arc<Tenant>>,
    posted: JsonBody<RunJupyter>,
) -> Result<Response, Failure> {
    let JsonBody { value: asked, held } = posted;
    let variant = Variant {
        memory: super::megabytes(asked.memory_limit_mb),
        ..Variant::default()
    };
    let notebook = Notebook {
        variant,
        session: None,
        files: decoded(asked.files)?,
        fetch: asked
            .fetch_files
            .iter()
            .map(|path| guest_path(path).map(|guest| (path.clone(), guest)))
            .collect::<Result<_, _>>()?,
        each: match asked.cell_timeout {
            0.0 => None,
            time => Some(
                tenant
                    .sandboxes
                    .time(LimitName::Wall, "cell_timeout", time)?,
            ),
        },
        // The policy bounds each cell, and this all of them.
        left: total(asked.total_timeout)?,
        sources: asked.cells.into_iter(),
        result: JupyterResult::default(),
        longest_answer: app.longest_answer,
        bytes: 0,
        held: held.budget.hold(0)?,
    };
    let running = Arc::new(tenant.begin_run(variant)?);
    let notebook = Arc::new(Mutex::new(notebook));
    let mut has_begun = false;
    let result = loop {
        // Between two cells others have their turns.
        let notebook = Arc::clone(&notebook);
        let step = in_turn(&app, &tenant, Arc::clone(&running), move |turn| {
            Ok(locked(&notebook).step(turn))
        });
        match step.await {
            Ok(done) => {
                has_begun = true;
                if let Some(result) = done? {
                    break result;
                }
                next_may_begin(&tenant).await;
            }
            Err(failure) if has_begun && failure.is_overload() => sleep(UNTIL_NEXT_TRY).await,
            Err(failure) => return Err(failure),
        }
    };
    drop(notebook);
    blocking(move || held.answer(&result)).await
}

/// Waits until the tenant's rate lets the next cell begin.
async fn next_may_begin(tenant: &Tenant) {
    while tenant.begin_another().is_err() {
        sleep(UNTIL_NEXT_TRY).await;
    }
}

/// The time of all cells.
fn total(seconds: f64) -> Result<Duration, Failure> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) => Ok(time),
        // More than a Duration holds.
        Err(_) if seconds > 1.0 => Ok(Duration::MAX),
        Err(_) => Err(Failure::Request(format!(
            "total_timeout: {seconds} s are no time for a notebook"
        ))),
    }
}

/// The cells of a request, with the session that they share.
struct Notebook {
    variant: Variant,
    /// With its place. `None` before the first turn, and after the last.
    session: Option<(Metered, SessionPlace)>,
    files: Vec<(GuestPath, Vec<u8>)>,
    fetch: Vec<(String, GuestPath)>,
    each: Option<Duration>,
    /// What is left of the time of all cells. That between their turns does not count.
    left: Duration,
    sources: IntoIter<String>,
    result: JupyterResult,
    /// Bytes of files that the answer may still have.
    longest_answer: u64,
    /// The memory of the result.
    bytes: u64,
    held: Held,
}

/// A client that leaves between two turns leaves a session. It ends on a thread that may wait.
impl Drop for Notebook {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            spawn_blocking(move || drop(session));
        }
    }
}

impl Notebook {
    /// Runs the next cell in this turn. Returns the result after the last one.
    fn step(&mut self, turn: &mut Turn) -> Result<Option<JupyterResult>, Failure> {
        let open = self.session.take();
        let mut open = open.map_or_else(|| self.open(turn), Ok)?;
        let ((session, _), _) = &mut open;
        let begun = Instant::now();
        let goes_on = self.run_next(session, begun, turn)?;
        let lasted = begun.elapsed();
        self.left = self.left.saturating_sub(lasted);
        self.result.driver.execution_time += lasted.as_secs_f64();
        if goes_on && !self.sources.as_slice().is_empty() {
            self.session = Some(open);
            return Ok(None);
        }
        self.fetch(session)?;
        if self.result.driver.is_success() {
            self.result.status = RunStatus::Success;
        }
        Ok(Some(mem::take(&mut self.result)))
    }

    fn open(&self, turn: &Turn) -> Result<(Metered, SessionPlace), Failure> {
        let (sessions, tenant) = (&turn.app.sessions, &turn.tenant);
        // Between its turns it has its descriptors too.
        let place = sessions.place(tenant)?;
        let session = tenant.sandbox(self.variant)?.session()?;
        let meter = sessions.meters.add(tenant, &session);
        let mut metered = (session, meter);
        for (path, contents) in &self.files {
            put(&mut metered.0, &path.to_string(), contents)?;
        }
        Ok((metered, place))
    }

    /// Runs a cell, if one and some time is left. Says whether another may follow.
    fn run_next(
        &mut self,
        session: &mut Session,
        begun: Instant,
        turn: &mut Turn,
    ) -> Result<bool, Failure> {
        let time_left = || self.left.saturating_sub(begun.elapsed());
        let Some(source) = self.sources.next() else {
            return Ok(false);
        };
        let left = time_left();
        if left.is_zero() || turn.cancel.is_used() {
            self.result.driver.run_out_of_time();
            return Ok(false);
        }
        let wall = self.each.map_or(left, |each| each.min(left));
        let cell = Cell::new(source).last(ResultMode::Notebook);
        let cell = cell.wall(wall.min(turn.tenant.sandboxes.wall()));
        let report = turn.run(session, cell, &mut ())?;
        let is_over = time_left().is_zero();
        let (outcome, driver) = (report.outcome(), &mut self.result.driver);
        driver.cpu_time += outcome.usage().cpu.as_secs_f64();
        let cell = CellResult::of(&report);
        self.bytes += length_of(&cell)?;
        self.held.grow(self.bytes)?;
        let cell = to_raw_value(&cell).map_err(|error| unwritten(&error))?;
        self.result.cells.push(cell);
        if outcome.status() == Status::Timeout && is_over {
            driver.run_out_of_time();
            return Ok(false);
        }
        if report.session() == SessionState::Ended {
            driver.return_code = Some(i32::from(outcome.exit_code()));
            driver.stderr = super::stderr(outcome);
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads the files of the answer. One that is not there, or is too long, is missing in it.
    fn fetch(&mut self, session: &mut Session) -> Result<(), Failure> {
        for (name, path) in mem::take(&mut self.fetch) {
            let budget = self.held.budget.clone();
            let (bytes, _held) =
                match read(self.longest_answer, &budget, session, &path.to_string()) {
                    Err(failure) if failure.is_overload() => return Err(failure),
                    Err(_) => continue,
                    Ok(read) => read,
                };
            self.longest_answer -= bytes.len() as u64;
            let text = STANDARD.encode(bytes);
            self.bytes += text.len() as u64;
            self.held.grow(self.bytes)?;
            self.result.files.insert(name, text);
        }
        Ok(())
    }
}

/// The result of no cell.
impl Default for JupyterResult {
    fn default() -> Self {
        Self {
            status: RunStatus::Failed,
            message: String::new(),
            driver: ProgramResult {
                status: ProgramStatus::Finished,
                execution_time: 0.0,
                cpu_time: 0.0,
                return_code: Some(0),
                stdout: String::new(),
                stderr: String::new(),
            },
            cells: Vec::new(),
            executor_pod_name: None,
            files: BTreeMap::new(),
        }
    }
}

impl ProgramResult {
    fn run_out_of_time(&mut self) {
        self.status = ProgramStatus::TimeLimitExceeded;
        self.return_code = None;
    }
}

impl<'a> CellResult<'a> {
    fn of(report: &'a CellReport) -> Self {
        let outcome = report.outcome();
        let error = error(outcome).map(|error| {
            let traceback: Vec<&str> = error.traceback.lines().collect();
            json!({ "ename": error.name, "evalue": error.value, "traceback": traceback })
        });
        Self {
            stdout: outcome.stdout(),
            stderr: outcome.stderr(),
            display: displays(report)
                .into_iter()
                .map(|shown| shown.data)
                .collect(),
            error: error.into_iter().collect(),
        }
    }
}
