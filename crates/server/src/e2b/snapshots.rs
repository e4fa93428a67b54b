//! Snapshots of sandboxes, and forks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sandfork::session::Snapshot;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::Named;
use super::context::{Context, with_environment};
use super::control::{OfTenant, access, lifetime};
use super::pausing::not_copied;
use super::registry::{AtEnd, Registry, Sandbox, Settings, Texts};
use super::{Answer, described};
use crate::failure::{Failure, InPath};
use crate::http::JsonBody;
use crate::locked;
use crate::server::App;
use crate::sessions::new_id;
use crate::tenant::{Opened, Tenant};

/// The most forks of one request.
const MOST_FORKS: usize = 100;

/// The state of a sandbox. It counts as the sessions that it was made of, until it is removed.
#[derive(Debug)]
pub struct Saved {
    id: String,
    /// Those that were made later have a greater one.
    number: u64,
    name: Option<String>,
    tenant: Arc<Tenant>,
    /// The sandbox that it is of.
    of: String,
    template: String,
    environment: Texts,
    contexts: Vec<SavedContext>,
}

#[derive(Debug)]
struct SavedContext {
    id: String,
    cwd: String,
    executions: u64,
    snapshot: Arc<Snapshot>,
    /// `None` when a fork counts in its place.
    counts: Option<Opened>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NewSnapshot {
    name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fork {
    timeout: Option<i64>,
    count: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    #[serde(rename = "sandboxID")]
    sandbox: Option<String>,
    name: Option<String>,
}

impl Registry {
    /// A snapshot of this tenant by its id, or the one of this name that was made last.
    pub fn snapshot(&self, tenant: &Tenant, id: &str) -> Option<Arc<Saved>> {
        let saved = locked(&self.snapshots);
        let of_tenant = saved
            .values()
            .filter(|saved| saved.tenant.name == tenant.name);
        of_tenant
            .filter(|saved| saved.id == id || saved.name.as_deref() == Some(id))
            .max_by_key(|saved| (saved.id == id, saved.number))
            .cloned()
    }
}

impl Saved {
    async fn new(app: &App, sandbox: &Sandbox, name: Option<String>) -> Result<Self, Failure> {
        let mut contexts = Vec::new();
        for context in sandbox.contexts()? {
            let counts = sandbox.tenant.open_session()?;
            let taken = context.open.with_turn(&app.admission, |session| {
                let snapshot = session.snapshot().map_err(not_copied)?;
                Ok((snapshot, counts))
            });
            let (snapshot, counts) = taken.await?;
            contexts.push(SavedContext {
                id: context.id,
                cwd: context.cwd,
                executions: context.executions.load(Ordering::Relaxed),
                snapshot: Arc::new(snapshot),
                counts: Some(counts),
            });
        }
        Ok(Self {
            id: new_id()?,
            number: app.e2b.next_number(),
            name,
            tenant: Arc::clone(&sandbox.tenant),
            of: sandbox.id.clone(),
            template: sandbox.template.clone(),
            environment: sandbox.environment.clone(),
            contexts,
        })
    }

    fn described(&self) -> Value {
        let names: Vec<_> = self.name.iter().collect();
        json!({ "snapshotID": self.id, "names": names })
    }
}

impl SavedContext {
    /// A context with this state.
    async fn fork(&self, app: &App, counts: Opened) -> Result<Context, Failure> {
        let snapshot = Arc::clone(&self.snapshot);
        let fork = move |_: &Tenant| Ok(snapshot.fork()?);
        Ok(Context {
            id: self.id.clone(),
            cwd: self.cwd.clone(),
            open: app.sessions.owned(counts, Duration::MAX, fork).await?,
            executions: Arc::new(self.executions.into()),
        })
    }
}

/// A sandbox that begins with the state of a snapshot.
pub async fn revive(
    app: &Arc<App>,
    saved: &Saved,
    mut settings: Settings,
) -> Result<Arc<Sandbox>, Failure> {
    let code = with_environment(&settings.environment);
    let mut environment = saved.environment.clone();
    environment.append(&mut settings.environment);
    settings.environment = environment;
    // Each generation may add to it.
    settings.check()?;
    let mut contexts = Vec::new();
    for of in &saved.contexts {
        let context = of.fork(app, saved.tenant.open_session()?).await?;
        context.set_up(app, &saved.tenant, code.clone()).await?;
        contexts.push(context);
    }
    app.e2b.add(&saved.tenant, settings, contexts)
}

/// Keeps the state of a sandbox.
pub async fn create(
    State(app): State<Arc<App>>,
    named: Result<Named, Failure>,
    posted: JsonBody<NewSnapshot>,
) -> Result<Response, Failure> {
    let name = posted.value.name;
    if name.as_ref().is_some_and(|name| name.len() > 128) {
        return Err(Failure::Request(
            "name: it has more than 128 bytes".to_owned(),
        ));
    }
    let Named(sandbox) = named?;
    let saved = Arc::new(Saved::new(&app, &sandbox, name).await?);
    let described = saved.described();
    let mut all = locked(&app.e2b.snapshots);
    all.insert(saved.id.clone(), saved);
    Ok((StatusCode::CREATED, Json(described)).into_response())
}

/// The snapshots of the tenant.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Answer {
    let Query(asked) = asked?;
    let all = locked(&app.e2b.snapshots);
    let found = all.values().filter(|saved| {
        saved.tenant.name == tenant.name
            && asked.sandbox.as_ref().is_none_or(|of| *of == saved.of)
            && asked
                .name
                .as_ref()
                .is_none_or(|name| Some(name) == saved.name.as_ref())
    });
    Ok(Json(found.map(|saved| saved.described()).collect()))
}

/// Frees a snapshot. Clients call it a template.
pub async fn remove(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    id: InPath<String>,
) -> Result<StatusCode, Failure> {
    let Path(id) = id?;
    let found = app.e2b.snapshot(&tenant, &id);
    let found = found.ok_or_else(|| Failure::NotFound("there is no such snapshot".to_owned()))?;
    let mut all = locked(&app.e2b.snapshots);
    all.remove(&found.id);
    Ok(StatusCode::NO_CONTENT)
}

/// Makes sandboxes that begin with the state of one that lives. Each has a result of its own.
pub async fn fork(
    State(app): State<Arc<App>>,
    named: Result<Named, Failure>,
    posted: JsonBody<Fork>,
) -> Result<Response, Failure> {
    let asked = posted.value;
    let (count, lifetime) = (asked.count.unwrap_or(1), lifetime(asked.timeout)?);
    if !(1..=MOST_FORKS).contains(&count) {
        return Err(Failure::Request(format!(
            "count: it is from 1 to {MOST_FORKS}"
        )));
    }
    let Named(sandbox) = named?;
    let mut saved = Saved::new(&app, &sandbox, None).await?;
    let mut results = Vec::new();
    for number in 1..=count {
        if number == count {
            // The last fork takes the places of the snapshot, which ends with it.
            for context in &mut saved.contexts {
                context.counts = None;
            }
        }
        let settings = Settings {
            template: saved.template.clone(),
            metadata: sandbox.metadata.clone(),
            environment: Texts::new(),
            lifetime,
            at_end: AtEnd::Kill,
        };
        results.push(match revive(&app, &saved, settings).await {
            Ok(fork) => json!({ "sandbox": access(&fork) }),
            Err(failure) => json!({ "error": described(&failure).1 }),
        });
    }
    Ok((StatusCode::CREATED, Json(results)).into_response())
}
