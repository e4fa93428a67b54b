//! Sandboxes that are paused: their sessions lie on a disk until a client connects again.

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

/// How long a pause of one session may take. Its guest takes part in it, and its state may be large.
const WITHIN: Duration = Duration::from_secs(300);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    timeout: Option<i64>,
    memory: Option<bool>,
}

/// Refuses what would lose the memory.
pub fn check_memory(memory: Option<bool>) -> Result<(), Failure> {
    match memory {
        Some(false) => Err(Failure::Unsupported(
            "a sandbox is paused and resumed with its memory, and not with its files alone"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Pauses a sandbox when the cells that were sent to it have ended.
pub async fn pause(
    named: Result<Named, Failure>,
    posted: JsonBody<Asked>,
) -> Result<StatusCode, Failure> {
    check_memory(posted.value.memory)?;
    let Named(sandbox) = named?;
    to_its_end(async move {
        let _change = sandbox.changes.lock().await;
        to_paused(&sandbox).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Prolongs a sandbox's life to this time at least, resumes it if it is paused, and says how to reach it.
pub async fn connect(
    extract::State(app): extract::State<Arc<App>>,
    named: Result<Named, Failure>,
    posted: JsonBody<Asked>,
) -> Answer {
    let asked = posted.value;
    check_memory(asked.memory)?;
    let lifetime = lifetime(asked.timeout)?;
    let Named(sandbox) = named?;
    let access = access(&sandbox);
    to_its_end(async move {
        let _change = sandbox.changes.lock().await;
        to_running(&app, &sandbox, lifetime).await
    })
    .await?;
    Ok(Json(access))
}

/// Ends the sandboxes whose time is over, or pauses those that were made so. Waits for none of them.
pub fn end_over(app: &Arc<App>) {
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
    // A client has connected meanwhile, or it is paused.
    if !sandbox.is_due() {
        return;
    }
    match to_paused(&sandbox).await {
        Ok(()) => {}
        // Others have the disk. Its state is not lost for that.
        Err(failure) if failure.is_overload() => {
            tracing::warn!(tenant = %sandbox.tenant.name, "a sandbox is paused later: {failure}");
            sandbox.pause_later();
        }
        Err(failure) => {
            tracing::warn!(tenant = %sandbox.tenant.name, "a sandbox ends, as it cannot be paused: {failure}");
            app.e2b.end(Arc::clone(&sandbox)).await;
        }
    }
}

/// Does this to its end, even if the client leaves: nothing is left half paused.
async fn to_its_end(
    change: impl Future<Output = Result<(), Failure>> + Send + 'static,
) -> Result<(), Failure> {
    tokio::spawn(change).await.unwrap_or_else(|panic| {
        tracing::error!("a task panicked: {panic}");
        Err(Failure::Mistake)
    })
}

/// Pauses a sandbox whose changes are held. If it cannot be paused, it goes on.
async fn to_paused(sandbox: &Sandbox) -> Result<(), Failure> {
    let contexts = sandbox.begin_pause()?;
    match paused(&contexts).await {
        Ok(sessions) => {
            sandbox.set(State::Paused(contexts.into_iter().zip(sessions).collect()));
            sandbox.has_found_room();
            // They have ended, and count for the tenant.
            locked(&sandbox.watchers).clear();
            Ok(())
        }
        Err(failure) => {
            sandbox.set(State::Running(contexts));
            Err(failure)
        }
    }
}

/// Pauses the sessions of these contexts and takes them away. Cells that were sent before have ended, and none begins any
/// more. If one cannot be paused, all go on: those that are paused are back at their next use.
async fn paused(contexts: &[Context]) -> Result<Vec<Session>, Failure> {
    let mut turns = Vec::new();
    for context in contexts {
        let mut turn = context.open.last_turn().await;
        let paused = blocking(move || {
            let session = turn.as_mut().ok_or_else(ended)?;
            session.pause().map_err(not_copied)?;
            Ok(turn)
        });
        // The thread keeps the session until it is done.
        turns.push(timeout(WITHIN, paused).await.map_err(|_| too_slow())??);
    }
    Ok(turns.iter_mut().filter_map(|turn| turn.take()).collect())
}

fn too_slow() -> Failure {
    let seconds = WITHIN.as_secs();
    Failure::Request(format!(
        "a context of the sandbox could not be copied within {seconds} s"
    ))
}

/// Why the state of a context was not copied. The sandbox of one that has ended lives: clients would read 404 as its end, and
/// 409 as a pause.
pub fn not_copied(error: sandfork::Error) -> Failure {
    match error.kind() {
        ErrorKind::SessionEnded => {
            Failure::Request(format!("a context of the sandbox has ended, {RESTART}"))
        }
        _ => error.into(),
    }
}

/// Resumes a sandbox whose changes are held, if it is paused. If it cannot be resumed, it stays paused.
async fn to_running(app: &App, sandbox: &Sandbox, lifetime: Duration) -> Result<(), Failure> {
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
        *context.open.last_turn().await = Some(session);
        contexts.push(context);
    }
    sandbox.set_lifetime(lifetime);
    sandbox.set(State::Running(contexts));
    Ok(())
}

/// Brings sessions back when it is the tenant's turn.
async fn resume(
    app: &App,
    tenant: &Arc<Tenant>,
    paused: &Arc<Mutex<Vec<(Context, Session)>>>,
) -> Result<(), Failure> {
    let (running, paused) = (tenant.begin_setup()?, Arc::clone(paused));
    when_admitted(&app.admission, Arc::clone(&tenant.name), move |_| {
        let _running = running;
        for (_, session) in &mut *locked(&paused) {
            // Any use does so.
            session.stat(".")?;
        }
        Ok(())
    })
    .await
}
