//! `POST /run_jupyter`: cells of one fresh session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandfork::session::{Cell, CellReport, Session, SessionState};
use sandfork::{GuestPath, Status};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{FusionFailure, ProgramResult, ProgramStatus, RunStatus};
use crate::display::{displays, error};
use crate::failure::Failure;
use crate::files::{Encoded, decoded, guest_path, put, read};
use crate::http::{Budget, JsonBody};
use crate::running::{Turn, in_turn};
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

#[derive(Debug, Serialize)]
struct JupyterResult {
    status: RunStatus,
    message: String,
    driver: ProgramResult,
    cells: Vec<CellResult>,
    executor_pod_name: Option<String>,
    files: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct CellResult {
    stdout: String,
    stderr: String,
    display: Vec<Map<String, Value>>,
    error: Vec<Value>,
}

/// Runs the cells one after the other. As in a notebook whose cells are run by hand, those after one that fails run too.
pub async fn run_jupyter(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Arc<Tenant>>,
    posted: Result<JsonBody<RunJupyter>, Failure>,
) -> Result<Response, FusionFailure> {
    let JsonBody { value: asked, held } = posted?;
    let variant = Variant {
        memory: super::megabytes(asked.memory_limit_mb),
        ..Variant::default()
    };
    let job = Job {
        files: decoded(&asked.files)?,
        fetch: asked
            .fetch_files
            .iter()
            .map(|path| guest_path(path).map(|guest| (path.clone(), guest)))
            .collect::<Result<_, _>>()?,
        each: match asked.cell_timeout {
            0.0 => None,
            time => Some(tenant.sandboxes.time(time)?),
        },
        // The policy bounds each cell, and this all of them.
        total: Duration::try_from_secs_f64(asked.total_timeout)
            .map_err(|_| Failure::Request("total_timeout is no time".to_owned()))?,
        app: Arc::clone(&app),
        budget: held.budget(),
        cells: asked.cells,
    };
    let running = tenant.begin_run(variant)?;
    let of = Arc::clone(&tenant);
    let result = in_turn(&app, &tenant, running, move |turn| {
        let mut session = of.sandboxes.sandbox(variant)?.session()?;
        job.run(&mut session, turn)
    });
    let result = result.await?;
    Ok(held.answer(&result)?)
}

struct Job {
    cells: Vec<String>,
    files: Vec<(GuestPath, Vec<u8>)>,
    fetch: Vec<(String, GuestPath)>,
    each: Option<Duration>,
    total: Duration,
    app: Arc<App>,
    budget: Budget,
}

impl Job {
    fn run(self, session: &mut Session, turn: &mut Turn) -> Result<JupyterResult, Failure> {
        let begun = Instant::now();
        let time_left = || {
            let left = self.total.checked_sub(begun.elapsed());
            left.filter(|left| !left.is_zero())
        };
        for (path, contents) in &self.files {
            put(session, &path.to_string(), contents)?;
        }
        let mut driver = ProgramResult {
            status: ProgramStatus::Finished,
            execution_time: 0.0,
            cpu_time: 0.0,
            return_code: Some(0),
            stdout: String::new(),
            stderr: String::new(),
        };
        let mut cells = Vec::new();
        for source in self.cells {
            let Some(left) = time_left().filter(|_| !turn.cancel.is_used()) else {
                driver.status = ProgramStatus::TimeLimitExceeded;
                driver.return_code = None;
                break;
            };
            let mut cell = Cell::new(source);
            let wall = self.each.map_or(left, |each| each.min(left));
            cell = cell.wall(wall.min(turn.longest()));
            let report = turn.run(session, cell, &mut ())?;
            driver.cpu_time += report.outcome().usage().cpu.as_secs_f64();
            cells.push(CellResult::of(&report));
            if report.outcome().status() == Status::Timeout && time_left().is_none() {
                driver.status = ProgramStatus::TimeLimitExceeded;
                driver.return_code = None;
                break;
            }
            if report.session() == SessionState::Ended {
                driver.return_code = Some(i32::from(report.outcome().exit_code()));
                driver.stderr = super::stderr(report.outcome());
                break;
            }
        }
        driver.execution_time = begun.elapsed().as_secs_f64();
        // A file that is not there, or is too long, is missing in the answer.
        let files = self.fetch.iter().filter_map(|(name, path)| {
            let (bytes, _held) = read(&self.app, &self.budget, session, &path.to_string()).ok()?;
            Some((name.clone(), STANDARD.encode(bytes)))
        });
        Ok(JupyterResult {
            files: files.collect(),
            status: if driver.is_success() {
                RunStatus::Success
            } else {
                RunStatus::Failed
            },
            message: String::new(),
            driver,
            cells,
            executor_pod_name: None,
        })
    }
}

impl CellResult {
    fn of(report: &CellReport) -> Self {
        let outcome = report.outcome();
        let error = error(outcome).map(|error| {
            let traceback: Vec<&str> = error.traceback.lines().collect();
            json!({ "ename": error.name, "evalue": error.value, "traceback": traceback })
        });
        Self {
            stdout: outcome.stdout().into_owned(),
            stderr: outcome.stderr().into_owned(),
            display: displays(report)
                .into_iter()
                .map(|shown| shown.data)
                .collect(),
            error: error.into_iter().collect(),
        }
    }
}
