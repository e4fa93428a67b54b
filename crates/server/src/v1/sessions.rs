//! Sessions, and their cells.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sandfork::session::{Cell, CellReport, SessionState};
use sandfork::{LimitName, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::amount::Amount;
use super::events;
use crate::display::{Displayed, displayed};
use crate::failure::{Failure, InPath};
use crate::http::JsonBody;
use crate::open::Open;
use crate::running::run_cell;
use crate::server::App;
use crate::tenant::{Tenant, tenant_and_id};

type OfTenant = Extension<Arc<Tenant>>;

/// The session that the path names. Handlers extract it as a `Result` so that the request body is read first: a
/// connection with an unread body is closed.
#[derive(Debug)]
pub struct Named(pub Arc<Open>);

impl FromRequestParts<Arc<App>> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let (tenant, id) = tenant_and_id(parts).await?;
        Ok(Self(app.sessions.find(&tenant, &id)?))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NewSession {
    /// The idle timeout in seconds.
    idle: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewCell {
    code: String,
    filename: Option<String>,
    wall: Option<Amount>,
}

/// Opens a session.
pub async fn open(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    params: JsonBody<NewSession>,
) -> Result<Response, Failure> {
    let idle = match params.value.idle {
        None => app.session_idle,
        Some(seconds) => match Duration::try_from_secs_f64(seconds) {
            Ok(idle) if !idle.is_zero() => idle.min(app.session_idle),
            // An idle timeout of zero would close the session at once.
            _ => {
                return Err(Failure::Request(format!(
                    "idle: {seconds} s is not a valid time"
                )));
            }
        },
    };
    let open = app.sessions.open(&tenant, idle).await?;
    Ok((StatusCode::CREATED, Json(described(&open))).into_response())
}

/// Lists the tenant's sessions.
pub async fn list(State(app): State<Arc<App>>, Extension(tenant): OfTenant) -> Json<Value> {
    let sessions = app.sessions.of(&tenant);
    let described: Vec<_> = sessions.iter().map(|open| described(open)).collect();
    Json(json!({ "sessions": described }))
}

/// Describes a session.
pub async fn show(Named(open): Named) -> Json<Value> {
    Json(described(&open))
}

fn described(open: &Open) -> Value {
    let opened = open.opened.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "id": open.id,
        "opened": opened.as_secs(),
        "busy": open.is_busy(),
        "paused": open.is_paused(),
    })
}

/// Closes a session, and ends what runs in it.
pub async fn close(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    id: InPath<String>,
) -> Result<StatusCode, Failure> {
    let Path(id) = id?;
    app.sessions.close(&tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Opens a session with a copy of another session's state.
pub async fn fork(State(app): State<Arc<App>>, Named(of): Named) -> Result<Response, Failure> {
    let fork = app.sessions.fork(&of).await?;
    Ok((StatusCode::CREATED, Json(described(&fork))).into_response())
}

/// Interrupts the running cell, if there is one.
pub async fn interrupt(Named(open): Named) -> StatusCode {
    open.interrupter.interrupt();
    StatusCode::NO_CONTENT
}

/// Replaces the worker of the session by a fresh one.
pub async fn restart(
    State(app): State<Arc<App>>,
    Named(open): Named,
) -> Result<StatusCode, Failure> {
    let restart = open.with_admission(&app.admission, |session| Ok(session.restart()?));
    restart.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Runs a cell after the previous ones.
pub async fn cell(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    named: Result<Named, Failure>,
    headers: HeaderMap,
    posted: JsonBody<NewCell>,
) -> Result<Response, Failure> {
    let JsonBody {
        value: params,
        held,
    } = posted;
    let Named(open) = named?;
    let wall = params
        .wall
        .map(|wall| wall.time(LimitName::Wall, &tenant.sandboxes))
        .transpose()?;
    let mut cell = Cell::new(params.code);
    if let Some(filename) = params.filename {
        cell = cell.filename(filename);
    }
    if let Some(wall) = wall {
        cell = cell.wall(wall);
    }
    if !events::are_accepted(&headers) {
        let answer = |report: &CellReport| held.answer(&Answer::of(report));
        return run_cell(&app, &tenant, open, cell, (), answer).await;
    }
    let output_timeout = app.output_timeout(&tenant, wall);
    let budget = held.budget.clone();
    let begin = move |sink| async move {
        let answer = move |report: &CellReport| budget.json(&Answer::of(report));
        run_cell(&app, &tenant, open, cell, sink, answer).await
    };
    events::answer(held, output_timeout, begin).await
}

/// The outcome of a cell, and its displayed values.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    displays: Vec<Displayed<'a>>,
    session: &'static str,
}

impl<'a> Answer<'a> {
    fn of(report: &'a CellReport) -> Self {
        Self {
            outcome: report.outcome(),
            displays: displayed(report),
            session: match report.session() {
                SessionState::Live => "live",
                SessionState::Ended => "ended",
            },
        }
    }
}
