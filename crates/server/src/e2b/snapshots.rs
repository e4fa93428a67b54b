//! Snapshots and forks of sandboxes.

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
use super::context::{Context, environment_code};
use super::control::{OfTenant, access, lifetime};
use super::pausing::copy_failure;
use super::registry::{AtEnd, Registry, Sandbox, Settings, StringMap};
use super::{Answer, described};
use crate::failure::{Failure, InPath};
use crate::http::JsonBody;
use crate::locked;
use crate::server::App;
use crate::sessions::new_id;
use crate::tenant::{Opened, Tenant};

/// The maximum number of forks of a request.
const MAX_FORKS: usize = 100;

/// A snapshot of a sandbox. It counts as many sessions as the sandbox had, until it is removed.
#[derive(Debug)]
pub struct Saved {
    id: String,
    /// Increases with the time of creation.
    number: u64,
    name: Option<String>,
    tenant: Arc<Tenant>,
    /// The id of the sandbox that was captured.
    of: String,
    template: String,
    environment: StringMap,
    contexts: Vec<SavedContext>,
}

#[derive(Debug)]
struct SavedContext {
    id: String,
    cwd: String,
    executions: u64,
    snapshot: Arc<Snapshot>,
    /// The counted session; `None` when a fork counts in its place.
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
pub struct SnapshotQuery {
    #[serde(rename = "sandboxID")]
    sandbox: Option<String>,
    name: Option<String>,
}

impl Registry {
    /// Returns a tenant's snapshot by its id, or the newest snapshot with this name.
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
            let taken = context.open.with_admission(&app.admission, |session| {
                let snapshot = session.snapshot().map_err(copy_failure)?;
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
    /// Creates a context with this state.
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

/// Creates a sandbox from a snapshot.
pub async fn revive(
    app: &Arc<App>,
    saved: &Saved,
    mut settings: Settings,
) -> Result<Arc<Sandbox>, Failure> {
    let code = environment_code(&settings.environment);
    let mut environment = saved.environment.clone();
    environment.append(&mut settings.environment);
    settings.environment = environment;
    // The environment grows with each generation, so check its size again.
    settings.check()?;
    let mut contexts = Vec::new();
    for of in &saved.contexts {
        let context = of.fork(app, saved.tenant.open_session()?).await?;
        context.set_up(app, &saved.tenant, code.clone()).await?;
        contexts.push(context);
    }
    app.e2b.add(&saved.tenant, settings, contexts)
}

/// Takes a snapshot of a sandbox.
pub async fn create(
    State(app): State<Arc<App>>,
    named: Result<Named, Failure>,
    posted: JsonBody<NewSnapshot>,
) -> Result<Response, Failure> {
    let name = posted.value.name;
    if name.as_ref().is_some_and(|name| name.len() > 128) {
        return Err(Failure::Request("name: more than 128 bytes".to_owned()));
    }
    let Named(sandbox) = named?;
    let saved = Arc::new(Saved::new(&app, &sandbox, name).await?);
    let described = saved.described();
    let mut all = locked(&app.e2b.snapshots);
    all.insert(saved.id.clone(), saved);
    Ok((StatusCode::CREATED, Json(described)).into_response())
}

/// Lists the tenant's snapshots.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    params: Result<Query<SnapshotQuery>, QueryRejection>,
) -> Answer {
    let Query(params) = params?;
    let all = locked(&app.e2b.snapshots);
    let found = all.values().filter(|saved| {
        saved.tenant.name == tenant.name
            && params.sandbox.as_ref().is_none_or(|of| *of == saved.of)
            && params
                .name
                .as_ref()
                .is_none_or(|name| Some(name) == saved.name.as_ref())
    });
    Ok(Json(found.map(|saved| saved.described()).collect()))
}

/// Removes a snapshot, which clients call a template.
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

/// Forks a running sandbox. Each fork has its own result.
pub async fn fork(
    State(app): State<Arc<App>>,
    named: Result<Named, Failure>,
    posted: JsonBody<Fork>,
) -> Result<Response, Failure> {
    let params = posted.value;
    let (count, lifetime) = (params.count.unwrap_or(1), lifetime(params.timeout)?);
    if !(1..=MAX_FORKS).contains(&count) {
        return Err(Failure::Request(format!(
            "count: must be from 1 to {MAX_FORKS}"
        )));
    }
    let Named(sandbox) = named?;
    let mut saved = Saved::new(&app, &sandbox, None).await?;
    let mut results = Vec::new();
    for number in 1..=count {
        if number == count {
            // The last fork takes over the counted sessions of the temporary snapshot.
            for context in &mut saved.contexts {
                context.counts = None;
            }
        }
        let settings = Settings {
            template: saved.template.clone(),
            metadata: sandbox.metadata.clone(),
            environment: StringMap::new(),
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
