//! `POST /run_jupyter`: runs cells in a fresh session.

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
use crate::descriptors::SessionSlot;
use crate::display::{MimeBundle, error, notebook_displays};
use crate::failure::Failure;
use crate::files::{Encoded, decoded, guest_path, put, read};
use crate::http::{Held, JsonBody, length_of, serialization_failure};
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
    /// 0 means no limit per cell.
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

/// The retry interval of a notebook while the queue is full or the tenant's rate limit is reached.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Serialize)]
struct JupyterResult {
    status: RunStatus,
    message: String,
    driver: ProgramResult,
    /// Serialized [`CellResult`]s, one for each cell that has ended.
    cells: Vec<Box<RawValue>>,
    executor_pod_name: Option<String>,
    files: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct CellResult<'a> {
    stdout: Cow<'a, str>,
    stderr: Cow<'a, str>,
    display: Vec<MimeBundle<'a>>,
    error: Vec<Value>,
}

/// Runs the cells in order. A failed cell does not stop the following ones, as in a notebook whose cells are run by
/// hand.
pub async fn run_jupyter(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Arc<Tenant>>,
    posted: JsonBody<RunJupyter>,
) -> Result<Response, Failure> {
    let JsonBody {
        value: params,
        held,
    } = posted;
    let variant = Variant {
        memory: super::megabytes(params.memory_limit_mb),
        ..Variant::default()
    };
    let notebook = Notebook {
        variant,
        session: None,
        files: decoded(params.files)?,
        fetch: params
            .fetch_files
            .iter()
            .map(|path| guest_path(path).map(|guest| (path.clone(), guest)))
            .collect::<Result<_, _>>()?,
        cell_timeout: match params.cell_timeout {
            0.0 => None,
            time => Some(
                tenant
                    .sandboxes
                    .time(LimitName::Wall, "cell_timeout", time)?,
            ),
        },
        // The policy limits each cell, and this limits all cells together.
        left: total_timeout(params.total_timeout)?,
        sources: params.cells.into_iter(),
        result: JupyterResult::default(),
        max_response: app.max_response,
        bytes: 0,
        held: held.budget.hold(0)?,
    };
    let running = Arc::new(tenant.begin_run(variant)?);
    let notebook = Arc::new(Mutex::new(notebook));
    let mut has_begun = false;
    let result = loop {
        // Give up the turn between two cells, so that other requests can run.
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
                wait_for_rate_limit(&tenant).await;
            }
            Err(failure) if has_begun && failure.is_overload() => sleep(RETRY_INTERVAL).await,
            Err(failure) => return Err(failure),
        }
    };
    drop(notebook);
    blocking(move || held.answer(&result)).await
}

/// Waits until the tenant's rate limit permits the next cell.
async fn wait_for_rate_limit(tenant: &Tenant) {
    while tenant.begin_next_cell().is_err() {
        sleep(RETRY_INTERVAL).await;
    }
}

/// Parses the time limit of all cells together.
fn total_timeout(seconds: f64) -> Result<Duration, Failure> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) => Ok(time),
        // Longer than a `Duration` can represent.
        Err(_) if seconds > 1.0 => Ok(Duration::MAX),
        Err(_) => Err(Failure::Request(format!(
            "total_timeout: {seconds} s is not a valid time"
        ))),
    }
}

/// The cells of a request, and their shared session.
struct Notebook {
    variant: Variant,
    /// The session and its slot; `None` before the first turn and after the last.
    session: Option<(Metered, SessionSlot)>,
    files: Vec<(GuestPath, Vec<u8>)>,
    fetch: Vec<(String, GuestPath)>,
    cell_timeout: Option<Duration>,
    /// The remaining time for all cells. Time between turns does not count.
    left: Duration,
    sources: IntoIter<String>,
    result: JupyterResult,
    /// The remaining bytes of files in the response.
    max_response: u64,
    /// The bytes of the result so far.
    bytes: u64,
    held: Held,
}

/// A client that disconnects between two turns leaves an open session, which is closed on a thread that may block.
impl Drop for Notebook {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            spawn_blocking(move || drop(session));
        }
    }
}

impl Notebook {
    /// Runs the next cell. Returns the result after the last cell.
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

    fn open(&self, turn: &Turn) -> Result<(Metered, SessionSlot), Failure> {
        let (sessions, tenant) = (&turn.app.sessions, &turn.tenant);
        // Holds a slot between turns too, because the open session keeps its descriptors.
        let slot = sessions.slot(tenant)?;
        let session = tenant.sandbox(self.variant)?.session()?;
        let meter = sessions.meters.add(tenant, &session);
        let mut metered = (session, meter);
        for (path, contents) in &self.files {
            put(&mut metered.0, &path.to_string(), contents)?;
        }
        Ok((metered, slot))
    }

    /// Runs the next cell, if there is one and time is left. Returns whether another may follow.
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
        let wall = self.cell_timeout.map_or(left, |timeout| timeout.min(left));
        let cell = Cell::new(source).last(ResultMode::Notebook);
        let cell = cell.wall(wall.min(turn.tenant.sandboxes.wall()));
        let report = turn.run(session, cell, &mut ())?;
        let is_over = time_left().is_zero();
        let (outcome, driver) = (report.outcome(), &mut self.result.driver);
        driver.cpu_time += outcome.usage().cpu.as_secs_f64();
        let cell = CellResult::of(&report);
        self.bytes += length_of(&cell)?;
        self.held.grow(self.bytes)?;
        let cell = to_raw_value(&cell).map_err(|error| serialization_failure(&error))?;
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

    /// Collects the files of the response. Files that are missing or too large are omitted.
    fn fetch(&mut self, session: &mut Session) -> Result<(), Failure> {
        for (name, path) in mem::take(&mut self.fetch) {
            let budget = self.held.budget.clone();
            let (bytes, _held) = match read(self.max_response, &budget, session, &path.to_string())
            {
                Err(failure) if failure.is_overload() => return Err(failure),
                Err(_) => continue,
                Ok(read) => read,
            };
            self.max_response -= bytes.len() as u64;
            let text = STANDARD.encode(bytes);
            self.bytes += text.len() as u64;
            self.held.grow(self.bytes)?;
            self.result.files.insert(name, text);
        }
        Ok(())
    }
}

/// The result before the first cell.
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
            display: notebook_displays(report)
                .into_iter()
                .map(|displayed| displayed.data)
                .collect(),
            error: error.into_iter().collect(),
        }
    }
}
