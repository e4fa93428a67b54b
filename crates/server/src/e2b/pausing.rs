//! Pauses sandboxes, whose sessions are then stored on disk until a client connects again.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use axum::{Json, extract};
use sandfork::ErrorKind;
use sandfork::session::Session;
use serde::Deserialize;
use tokio::time::timeout;

use super::Answer;
use super::access::Named;
use super::context::Context;
use super::control::{access, lifetime};
use super::interpreter::RESTART;
use super::registry::{AtEnd, Sandbox, State};
use crate::failure::Failure;
use crate::http::JsonBody;
use crate::locked;
use crate::open::ended;
use crate::running::{blocking, when_admitted};
use crate::server::App;
use crate::tenant::Tenant;

/// The time limit for pausing one session. Its guest takes part in the pause, and its state may be large.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PauseRequest {
    timeout: Option<i64>,
    memory: Option<bool>,
}

/// Rejects a pause or resume that would discard the memory.
pub fn check_memory(memory: Option<bool>) -> Result<(), Failure> {
    match memory {
        Some(false) => Err(Failure::Unsupported(
            "a sandbox is paused and resumed with its memory, not with its files alone".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Pauses a sandbox, once the cells sent to it have ended.
pub async fn pause(
    named: Result<Named, Failure>,
    posted: JsonBody<PauseRequest>,
) -> Result<StatusCode, Failure> {
    check_memory(posted.value.memory)?;
    let Named(sandbox) = named?;
    run_to_completion(async move {
        let _change = sandbox.changes.lock().await;
        pause_sandbox(&sandbox).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Resumes a sandbox if it is paused, extends its lifetime to at least the requested one, and returns its access data.
pub async fn connect(
    extract::State(app): extract::State<Arc<App>>,
    named: Result<Named, Failure>,
    posted: JsonBody<PauseRequest>,
) -> Answer {
    let params = posted.value;
    check_memory(params.memory)?;
    let lifetime = lifetime(params.timeout)?;
    let Named(sandbox) = named?;
    let access = access(&sandbox);
    run_to_completion(async move {
        let _change = sandbox.changes.lock().await;
        resume_sandbox(&app, &sandbox, lifetime).await
    })
    .await?;
    Ok(Json(access))
}

/// Ends or pauses the sandboxes whose lifetime is over, as each of them requested. Does not wait for completion.
pub fn end_expired(app: &Arc<App>) {
    for sandbox in app.e2b.due() {
        let app = Arc::clone(app);
        tokio::spawn(async move {
            match sandbox.at_end {
                AtEnd::Kill => app.e2b.end(sandbox).await,
                AtEnd::Pause => pause_or_end(app, sandbox).await,
            }
        });
    }
}

async fn pause_or_end(app: Arc<App>, sandbox: Arc<Sandbox>) {
    let _change = sandbox.changes.lock().await;
    // A client has connected meanwhile, or the sandbox is already paused.
    if !sandbox.is_due() {
        return;
    }
    match pause_sandbox(&sandbox).await {
        Ok(()) => {}
        // The disk is full. Retry later rather than lose the sandbox's state.
        Err(failure) if failure.is_overload() => {
            tracing::warn!(tenant = %sandbox.tenant.name, "a sandbox cannot be paused, retrying later: {failure}");
            sandbox.pause_later();
        }
        Err(failure) => {
            tracing::warn!(tenant = %sandbox.tenant.name, "a sandbox is ended because it cannot be paused: {failure}");
            app.e2b.end(Arc::clone(&sandbox)).await;
        }
    }
}

/// Runs a state change to completion even if the client disconnects, so that no sandbox stays half paused.
async fn run_to_completion(
    change: impl Future<Output = Result<(), Failure>> + Send + 'static,
) -> Result<(), Failure> {
    tokio::spawn(change).await.unwrap_or_else(|panic| {
        tracing::error!("a task panicked: {panic}");
        Err(Failure::Internal)
    })
}

/// Pauses a sandbox. The caller holds its `changes` lock. On failure the sandbox keeps running.
async fn pause_sandbox(sandbox: &Sandbox) -> Result<(), Failure> {
    let contexts = sandbox.begin_pause()?;
    match pause_sessions(&contexts).await {
        Ok(sessions) => {
            sandbox.set(State::Paused(contexts.into_iter().zip(sessions).collect()));
            sandbox.reset_pause_backoff();
            // The pause has ended the watches, which count towards the tenant's limit.
            locked(&sandbox.watchers).clear();
            Ok(())
        }
        Err(failure) => {
            sandbox.set(State::Running(contexts));
            Err(failure)
        }
    }
}

/// Pauses the sessions of these contexts and takes them out. Cells that were sent before have ended, and no new ones
/// start. If one session cannot be paused, all keep running: those already paused resume at their next use.
async fn pause_sessions(contexts: &[Context]) -> Result<Vec<Session>, Failure> {
    let mut turns = Vec::new();
    for context in contexts {
        let mut turn = context.open.exclusive().await;
        let paused = blocking(move || {
            let session = turn.as_mut().ok_or_else(ended)?;
            session.pause().map_err(copy_failure)?;
            Ok(turn)
        });
        // On timeout, the thread keeps the session until it is done.
        turns.push(
            timeout(PAUSE_TIMEOUT, paused)
                .await
                .map_err(|_| too_slow())??,
        );
    }
    Ok(turns.iter_mut().filter_map(|turn| turn.take()).collect())
}

fn too_slow() -> Failure {
    let seconds = PAUSE_TIMEOUT.as_secs();
    Failure::Request(format!(
        "a context of the sandbox could not be copied within {seconds} s"
    ))
}

/// Converts an error of a snapshot or pause. A session that has ended becomes a bad request, because the sandbox lives
/// on: clients would take 404 for its end, and 409 for a completed pause.
pub fn copy_failure(error: sandfork::Error) -> Failure {
    match error.kind() {
        ErrorKind::SessionEnded => {
            Failure::Request(format!("a context of the sandbox has ended, {RESTART}"))
        }
        _ => error.into(),
    }
}

/// Resumes a sandbox if it is paused. The caller holds its `changes` lock. On failure the sandbox stays paused.
async fn resume_sandbox(app: &App, sandbox: &Sandbox, lifetime: Duration) -> Result<(), Failure> {
    let Some(paused) = sandbox.begin_resume()? else {
        sandbox.extend(lifetime);
        return Ok(());
    };
    let paused = Arc::new(Mutex::new(paused));
    let resumed = resume(app, &sandbox.tenant, &paused).await;
    let paused = mem::take(&mut *locked(&paused));
    if let Err(failure) = resumed {
        sandbox.set(State::Paused(paused));
        return Err(failure);
    }
    let mut contexts = Vec::new();
    for (context, session) in paused {
        *context.open.exclusive().await = Some(session);
        contexts.push(context);
    }
    sandbox.set_lifetime(lifetime);
    sandbox.set(State::Running(contexts));
    Ok(())
}

/// Resumes sessions when the tenant is admitted.
async fn resume(
    app: &App,
    tenant: &Arc<Tenant>,
    paused: &Arc<Mutex<Vec<(Context, Session)>>>,
) -> Result<(), Failure> {
    let (running, paused) = (tenant.begin_setup()?, Arc::clone(paused));
    when_admitted(&app.admission, Arc::clone(&tenant.name), move |_| {
        let _running = running;
        for (_, session) in &mut *locked(&paused) {
            // Any use resumes a session.
            session.stat(".")?;
        }
        Ok(())
    })
    .await
}
