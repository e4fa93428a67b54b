//! The code interpreter: contexts, and the cells that they run.

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
use super::registry::Texts;
use super::{Answer, OfSandbox, Place};
use crate::display::{Forms, Shown, displays, error};
use crate::failure::{Failure, InPath};
use crate::http::{Budget, Held, JsonBody, Live, LiveText, WithBytes, length_of, unwritten};
use crate::running::in_session;
use crate::server::App;

/// While a cell says nothing, the answer says as often that it goes on.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// What a client does with a context that has ended.
pub const RESTART: &str = "with its variables and files: restart it";

/// The fields of a result by media type. Others are in `extra`, by their own.
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
    env_vars: Option<Texts>,
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
            "language: contexts run Python, and no `{other}`"
        ))),
    }
}

/// Runs a cell, and sends what it writes as it comes: a line of JSON each.
pub async fn execute(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    posted: JsonBody<Execute>,
) -> Result<Response, Failure> {
    let JsonBody { value: asked, held } = posted;
    if asked.context_id.is_some() && asked.language.is_some() {
        let both = "a cell has `context_id` or `language`, and not both";
        return Err(Failure::Request(both.to_owned()));
    }
    check_language(asked.language.as_deref())?;
    let context = sandbox.context(asked.context_id.as_deref())?;
    let budget = held.budget.clone();
    let patience = app.patience(&sandbox.tenant, None);
    let live = Live::begin(held, patience, broken, move |mut sender| async move {
        let (open, tenant) = (Arc::clone(&context.open), Arc::clone(&sandbox.tenant));
        let environment = asked.env_vars.unwrap_or_default();
        in_session(&app, &tenant, open, move |session, turn| {
            if !environment.is_empty() {
                set_up(session, turn, enter(&environment))?;
            }
            // Before the answer begins, whose status says it.
            let ended = |_| Failure::NotFound(format!("the context has ended, {RESTART}"));
            session.stat(".").map_err(ended)?;
            let number = context.executions.fetch_add(1, Ordering::Relaxed) + 1;
            let first = json!({ "type": "number_of_executions", "execution_count": number });
            sender.send(with_bytes(line(&first)));
            let mut lines = LiveText::new(sender, output);
            let cell = Cell::new(asked.code).last(ResultMode::Notebook);
            let report = turn.run(session, cell, &mut lines)?;
            drop(lines);
            if !environment.is_empty() && report.session() == SessionState::Live {
                // A cell that has broken it has its variables until the next one.
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

/// Sets variables of the environment for one cell, and keeps what they were.
fn enter(environment: &Texts) -> String {
    let environment = json!(environment);
    format!(
        "(lambda os, new: setattr(os, '_sandfork_before', {{name: os.environ.get(name) for name in new}}) \
         or os.environ.update(new))(__import__('os'), {environment})"
    )
}

/// Undoes [`enter`].
const LEAVE: &str = "(lambda os: [os.environ.pop(name, None) if text is None else os.environ.update({name: text}) \
     for name, text in os.__dict__.pop('_sandfork_before', {}).items()] and None)(__import__('os'))";

/// A line of output.
fn output(stream: &str, text: &str) -> WithBytes<Bytes> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    with_bytes(line(
        &json!({ "type": stream, "text": text, "timestamp": now }),
    ))
}

fn with_bytes(line: Bytes) -> WithBytes<Bytes> {
    let bytes = line.len() as u64;
    (line, bytes)
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

/// A value that a cell showed, with the fields of E2B.
struct ResultLine<'a>(Shown<'a>);

/// Representations that have no field.
struct Extra<'a>(&'a Forms<'a>);

fn field(kind: &str) -> Option<&'static str> {
    let of_kind = FIELDS.iter().find(|(of, _)| *of == kind);
    of_kind.map(|(_, field)| *field)
}

impl Serialize for ResultLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(Shown { is_main, data }) = self;
        let mut fields = serializer.serialize_map(None)?;
        for (kind, form) in data {
            if let Some(field) = field(kind) {
                fields.serialize_entry(field, form)?;
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

/// What follows the output of a cell. Its memory is held before it is made.
fn results(report: &CellReport, budget: &Budget) -> Result<(Bytes, Held), Failure> {
    let shown: Vec<_> = displays(report).into_iter().map(ResultLine).collect();
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
    // A list of them takes as many bytes: a comma or a bracket for the end of each line, and one more.
    let held = budget.hold(length_of(&shown)? + length_of(&rest)?)?;
    let mut lines = Vec::new();
    for one in &shown {
        serde_json::to_writer(&mut lines, one).map_err(|error| unwritten(&error))?;
        lines.push(b'\n');
    }
    for one in rest {
        lines.extend_from_slice(&line(&one));
    }
    Ok((lines.into(), held))
}

/// A cell that could not be brought to its end.
fn broken(failure: &Failure) -> Bytes {
    line(
        &json!({ "type": "error", "name": failure.kind(), "value": failure.message(), "traceback": "" }),
    )
}

fn described(context: &Context) -> Value {
    json!({ "id": context.id, "language": "python", "cwd": context.cwd })
}

/// Makes a context: a session of its own.
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    posted: JsonBody<NewContext>,
) -> Answer {
    let asked = posted.value;
    check_language(asked.language.as_deref())?;
    let cwd = Place::new(asked.cwd.as_deref().unwrap_or_default())?.guest();
    let context = Context::fresh(&app, &sandbox.tenant, cwd).await?;
    context
        .prepare(&app, (&sandbox.tenant, &sandbox.environment))
        .await?;
    let described = described(&context);
    sandbox.add(context)?;
    Ok(Json(described))
}

/// The contexts of a sandbox.
pub async fn list(Extension(sandbox): OfSandbox) -> Answer {
    Ok(Json(sandbox.contexts()?.iter().map(described).collect()))
}

/// Ends a context, and what it runs.
pub async fn remove(
    Extension(sandbox): OfSandbox,
    id: InPath<String>,
) -> Result<StatusCode, Failure> {
    let Path(id) = id?;
    let context = sandbox.take(&id)?;
    context.open.close().await;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives a context a fresh session. What it runs ends.
pub async fn restart(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    id: InPath<String>,
) -> Result<StatusCode, Failure> {
    let Path(id) = id?;
    let context = sandbox.context(Some(&id))?;
    context.open.interrupter.interrupt();
    let restart = |session: &mut Session| Ok(session.restart()?);
    context.open.with_turn(&app.admission, restart).await?;
    context.executions.store(0, Ordering::Relaxed);
    context
        .prepare(&app, (&sandbox.tenant, &sandbox.environment))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
