//! The code interpreter: manages contexts and runs their cells.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use sandfork::session::{Cell, CellReport, ResultMode, Session, SessionState};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use tokio::time::{Instant, interval_at};
use tokio_stream::StreamExt;

use super::context::{Context, set_up};
use super::registry::StringMap;
use super::{Answer, OfSandbox, WorkPath};
use crate::display::{Displayed, MimeBundle, error, notebook_displays};
use crate::failure::{Failure, InPath};
use crate::http::{
    Budget, Held, JsonBody, Live, LiveText, SizedItem, length_of, serialization_failure,
};
use crate::running::in_session;
use crate::server::App;

/// The interval of keep-alive lines while a cell produces no output.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// What is lost with an ended context, and the remedy; the end of a sentence.
pub const RESTART: &str = "and its variables and files are lost: restart it";

/// The result fields of media types. Other media types appear in `extra` by their name.
const FIELDS: [(&str, &str); 12] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("e2b/data", "data"),
    ("e2b/chart", "chart"),
];

#[derive(Debug, Deserialize)]
pub struct Execute {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<StringMap>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NewContext {
    cwd: Option<String>,
    language: Option<String>,
}

fn check_language(language: Option<&str>) -> Result<(), Failure> {
    match language {
        None | Some("python" | "python3") => Ok(()),
        Some(other) => Err(Failure::Unsupported(format!(
            "language: contexts run Python, not `{other}`"
        ))),
    }
}

/// Runs a cell, and streams its output as JSON lines.
pub async fn execute(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    posted: JsonBody<Execute>,
) -> Result<Response, Failure> {
    let JsonBody {
        value: params,
        held,
    } = posted;
    if params.context_id.is_some() && params.language.is_some() {
        let both = "a cell takes either `context_id` or `language`, not both";
        return Err(Failure::Request(both.to_owned()));
    }
    check_language(params.language.as_deref())?;
    let context = sandbox.context(params.context_id.as_deref())?;
    let budget = held.budget.clone();
    let output_timeout = app.output_timeout(&sandbox.tenant, None);
    let live = Live::begin(held, output_timeout, broken, move |mut sender| async move {
        let (open, tenant) = (Arc::clone(&context.open), Arc::clone(&sandbox.tenant));
        let environment = params.env_vars.unwrap_or_default();
        in_session(&app, &tenant, open, move |session, turn| {
            if !environment.is_empty() {
                set_up(session, turn, enter(&environment))?;
            }
            // Check this before the response starts, while its status can still report a failure.
            let ended = |_| Failure::NotFound(format!("the context has ended, {RESTART}"));
            session.stat(".").map_err(ended)?;
            let number = context.executions.fetch_add(1, Ordering::Relaxed) + 1;
            let first = json!({ "type": "number_of_executions", "execution_count": number });
            sender.send(with_bytes(line(&first)));
            let mut lines = LiveText::new(sender, output);
            let cell = Cell::new(params.code).last(ResultMode::Notebook);
            let report = turn.run(session, cell, &mut lines)?;
            drop(lines);
            if !environment.is_empty() && report.session() == SessionState::Live {
                // If the cell has broken what this code uses, its variables stay set until the next cell.
                _ = set_up(session, turn, LEAVE.to_owned());
            }
            results(&report, &budget)
        })
        .await
    });
    let alive = Bytes::from_static(b"{\"type\":\"keepalive\"}\n");
    let lines = live
        .await?
        .timeout_repeating(interval_at(Instant::now() + KEEPALIVE, KEEPALIVE));
    let lines = lines.map(move |line| Ok::<_, Infallible>(line.unwrap_or_else(|_| alive.clone())));
    let headers = [(CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Returns code that sets environment variables for one cell and saves their previous values.
fn enter(environment: &StringMap) -> String {
    let environment = json!(environment);
    format!(
        "(lambda os, new: setattr(os, '_sandfork_before', {{name: os.environ.get(name) for name in new}}) \
         or os.environ.update(new))(__import__('os'), {environment})"
    )
}

/// The code that undoes [`enter`].
const LEAVE: &str = "(lambda os: [os.environ.pop(name, None) if text is None else os.environ.update({name: text}) \
     for name, text in os.__dict__.pop('_sandfork_before', {}).items()] and None)(__import__('os'))";

/// Builds an output line.
fn output(stream: &str, text: &str) -> SizedItem<Bytes> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    with_bytes(line(
        &json!({ "type": stream, "text": text, "timestamp": now }),
    ))
}

fn with_bytes(line: Bytes) -> SizedItem<Bytes> {
    let bytes = line.len() as u64;
    (line, bytes)
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

/// A displayed value, with the fields of E2B's results.
struct ResultLine<'a>(Displayed<'a>);

/// The representations without a field.
struct Extra<'a>(&'a MimeBundle<'a>);

fn field(kind: &str) -> Option<&'static str> {
    let of_kind = FIELDS.iter().find(|(of, _)| *of == kind);
    of_kind.map(|(_, field)| *field)
}

impl Serialize for ResultLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(Displayed { is_main, data }) = self;
        let mut fields = serializer.serialize_map(None)?;
        for (kind, value) in data {
            if let Some(field) = field(kind) {
                fields.serialize_entry(field, value)?;
            }
        }
        fields.serialize_entry("type", "result")?;
        fields.serialize_entry("is_main_result", is_main)?;
        fields.serialize_entry("extra", &Extra(data))?;
        fields.end()
    }
}

impl Serialize for Extra<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let others = self.0.iter().filter(|(kind, _)| field(kind).is_none());
        serializer.collect_map(others)
    }
}

/// Builds the lines after the output of a cell. Their memory is reserved before they are built.
fn results(report: &CellReport, budget: &Budget) -> Result<(Bytes, Held), Failure> {
    let displayed: Vec<_> = notebook_displays(report)
        .into_iter()
        .map(ResultLine)
        .collect();
    let mut rest = Vec::new();
    if let Some(mut error) = error(report.outcome()) {
        if report.session() == SessionState::Ended {
            error
                .value
                .push_str(&[" (the context has ended, ", RESTART, ")"].concat());
        }
        let (name, value, traceback) = (error.name, error.value, error.traceback);
        rest.push(json!({ "type": "error", "name": name, "value": value, "traceback": traceback }));
    }
    rest.push(json!({ "type": "end_of_execution" }));
    // The lines take as many bytes as the two JSON lists: a newline each in place of a comma or bracket, and one more.
    let held = budget.hold(length_of(&displayed)? + length_of(&rest)?)?;
    let mut lines = Vec::new();
    for one in &displayed {
        serde_json::to_writer(&mut lines, one).map_err(|error| serialization_failure(&error))?;
        lines.push(b'\n');
    }
    for one in rest {
        lines.extend_from_slice(&line(&one));
    }
    Ok((lines.into(), held))
}

/// Builds the error line of a cell that could not be completed.
fn broken(failure: &Failure) -> Bytes {
    line(
        &json!({ "type": "error", "name": failure.kind(), "value": failure.message(), "traceback": "" }),
    )
}

fn described(context: &Context) -> Value {
    json!({ "id": context.id, "language": "python", "cwd": context.cwd })
}

/// Creates a context, with its own session.
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    posted: JsonBody<NewContext>,
) -> Answer {
    let params = posted.value;
    check_language(params.language.as_deref())?;
    let cwd = WorkPath::new(params.cwd.as_deref().unwrap_or_default())?.guest();
    let context = Context::fresh(&app, &sandbox.tenant, cwd).await?;
    context
        .prepare(&app, (&sandbox.tenant, &sandbox.environment))
        .await?;
    let described = described(&context);
    sandbox.add(context)?;
    Ok(Json(described))
}

/// Lists the contexts of a sandbox.
pub async fn list(Extension(sandbox): OfSandbox) -> Answer {
    Ok(Json(sandbox.contexts()?.iter().map(described).collect()))
}

/// Ends a context and the cell that runs in it.
pub async fn remove(
    Extension(sandbox): OfSandbox,
    id: InPath<String>,
) -> Result<StatusCode, Failure> {
    let Path(id) = id?;
    let context = sandbox.take(&id)?;
    context.open.close().await;
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces the session of a context by a fresh one, and interrupts the cell that runs in it.
pub async fn restart(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    id: InPath<String>,
) -> Result<StatusCode, Failure> {
    let Path(id) = id?;
    let context = sandbox.context(Some(&id))?;
    context.open.interrupter.interrupt();
    let restart = |session: &mut Session| Ok(session.restart()?);
    context.open.with_admission(&app.admission, restart).await?;
    context.executions.store(0, Ordering::Relaxed);
    context
        .prepare(&app, (&sandbox.tenant, &sandbox.environment))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
