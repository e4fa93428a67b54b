//! The protocol of SandboxFusion, which verl, SkyRL and the `sandbox-fusion` package use.
//!
//! Its clients can send a token only in the URL (`http://any:TOKEN@host`). They retry after status 504 and after a
//! result whose status is `SandboxError`. The paths and fields are those of SandboxFusion
//! (<https://bytedance.github.io/SandboxFusion/>).

mod language;
mod run_code;
mod run_jupyter;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use sandfork::{Ending, Outcome};
use serde::Serialize;
use serde_json::json;

use crate::failure::{Failure, render_failures};
use crate::server::{App, identify, method_not_allowed};

/// Returns the routes, with the middleware that identifies the tenant.
pub fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let routes = Router::new()
        .route("/run_code", post(run_code::run_code))
        .route("/run_jupyter", post(run_jupyter::run_jupyter))
        .route("/v1/ping", get(async || Json("pong")))
        .method_not_allowed_fallback(method_not_allowed);
    let identified =
        render_failures(failed, routes).layer(from_fn_with_state(Arc::clone(app), identify));
    // Failures of the middleware itself are rendered like those of handlers.
    render_failures(failed, identified)
}

/// The status of the whole request.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
enum RunStatus {
    Success,
    Failed,
    SandboxError,
}

/// The status of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
enum ProgramStatus {
    Finished,
    TimeLimitExceeded,
}

/// The result of a program.
#[derive(Debug, Serialize)]
struct ProgramResult {
    status: ProgramStatus,
    execution_time: f64,
    cpu_time: f64,
    return_code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl ProgramResult {
    fn of(outcome: &Outcome) -> Self {
        let (status, return_code) = match outcome.ending() {
            Ending::Ok => (ProgramStatus::Finished, Some(0)),
            Ending::Exit(code) => (ProgramStatus::Finished, Some(i32::from(*code))),
            Ending::Exception => (ProgramStatus::Finished, Some(1)),
            // A negative code for a signal, like Python's `subprocess`.
            Ending::Signal(signal) => (ProgramStatus::Finished, Some(-signal)),
            Ending::Limit(hit) if matches!(hit.name.key(), "limits.wall" | "limits.cpu") => {
                (ProgramStatus::TimeLimitExceeded, None)
            }
            _ => (
                ProgramStatus::Finished,
                Some(i32::from(outcome.exit_code())),
            ),
        };
        let usage = outcome.usage();
        Self {
            status,
            execution_time: usage.wall.as_secs_f64(),
            cpu_time: usage.cpu.as_secs_f64(),
            return_code,
            stdout: outcome.stdout().into_owned(),
            stderr: stderr(outcome),
        }
    }

    fn is_success(&self) -> bool {
        self.status == ProgramStatus::Finished && self.return_code == Some(0)
    }
}

/// Returns what the program wrote to stderr, its traceback, and the limit that ended it.
fn stderr(outcome: &Outcome) -> String {
    let mut text = outcome.stderr().into_owned();
    if let Some(error) = outcome.error() {
        text.push_str(&error.traceback);
    }
    if let Some(hit) = outcome.limit() {
        text.push_str("sandfork: the program reached ");
        text.push_str(hit.name.key());
        text.push('\n');
    }
    text
}

/// Converts a memory limit from MiB to bytes. Values below 1 mean no limit.
fn megabytes(limit: i64) -> Option<u64> {
    let limit = u64::try_from(limit).ok().filter(|limit| *limit > 0)?;
    // The minimum for a Python interpreter.
    Some(limit.max(64).saturating_mul(1 << 20))
}

/// Renders a failure for SandboxFusion's clients.
fn failed(failure: &Failure) -> Response {
    let message = failure.message();
    let status = match failure {
        // The default response lists the authentication schemes; 405 has the same form on all paths.
        Failure::Unauthorized(_) | Failure::Method(_) => return failure.default_response(),
        Failure::Sandbox(_) => {
            let body =
                json!({ "status": RunStatus::SandboxError, "message": message, "files": {} });
            return Json(body).into_response();
        }
        // Clients retry after this status.
        _ if failure.is_overload() => StatusCode::GATEWAY_TIMEOUT,
        _ => failure.status(),
    };
    (status, Json(json!({ "detail": message }))).into_response()
}
