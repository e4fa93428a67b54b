//! The control plane: creates, describes and removes sandboxes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sandfork::LimitName;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::access::Named;
use super::context::Context;
use super::registry::{AtEnd, Sandbox, Settings, StringMap};
use super::{Answer, ENVD_VERSION, pausing, snapshots};
use crate::failure::Failure;
use crate::http::{JsonBody, RawBody};
use crate::server::App;
use crate::tenant::Tenant;

pub type OfTenant = Extension<Arc<Tenant>>;

/// The longest lifetime of a sandbox in seconds, as at E2B.
const MAX_LIFETIME: u64 = 24 * 60 * 60;
/// The templates of E2B's packages. Here they are equivalent: the policy decides the contents.
const TEMPLATES: [&str; 3] = ["base", "code-interpreter", "code-interpreter-v1"];
/// Features of E2B that this server rejects, with the reasons.
const UNSUPPORTED: [(&str, &str); 5] = [
    (
        "autoResume",
        "a paused sandbox is resumed only by `connect`",
    ),
    ("iam", "sandboxes have no identity"),
    ("mcp", "use the server's own MCP endpoint, `/mcp`"),
    (
        "network",
        "the tenant's policy decides which hosts sandboxes may connect to",
    ),
    (
        "volumeMounts",
        "the tenant's policy decides which files sandboxes share",
    ),
];

#[derive(Debug, Deserialize)]
pub struct NewSandbox {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<i64>,
    metadata: Option<StringMap>,
    #[serde(rename = "envVars")]
    environment: Option<StringMap>,
    #[serde(rename = "allow_internet_access")]
    internet: Option<bool>,
    #[serde(rename = "autoPause", default)]
    pause: bool,
    #[serde(rename = "autoPauseMemory")]
    pause_memory: Option<bool>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Timeout {
    timeout: Option<i64>,
}

/// Validates the requested lifetime.
pub fn lifetime(seconds: Option<i64>) -> Result<Duration, Failure> {
    let seconds = u64::try_from(seconds.unwrap_or(300)).unwrap_or_default();
    if !(1..=MAX_LIFETIME).contains(&seconds) {
        return Err(Failure::Request(format!(
            "timeout: must be from 1 to {MAX_LIFETIME} s"
        )));
    }
    Ok(Duration::from_secs(seconds))
}

/// Creates a sandbox from a template or a snapshot.
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    posted: JsonBody<NewSandbox>,
) -> Result<Response, Failure> {
    let params = posted.value;
    for (key, reason) in UNSUPPORTED {
        let value = params.more.get(key).unwrap_or(&Value::Null);
        let is_empty = matches!(value, Value::Null | Value::Bool(false))
            || *value == json!({ "enabled": false })
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty);
        if !is_empty {
            return Err(Failure::Unsupported(format!("{key}: {reason}")));
        }
    }
    pausing::check_memory(params.pause_memory)?;
    if params.internet == Some(false) && tenant.sandboxes.has_network() {
        let reason = "allow_internet_access: cannot be false, because the tenant's policy allows network access";
        return Err(Failure::Unsupported(reason.to_owned()));
    }
    let settings = Settings {
        template: params.template,
        metadata: params.metadata.unwrap_or_default(),
        environment: params.environment.unwrap_or_default(),
        lifetime: lifetime(params.timeout)?,
        at_end: if params.pause {
            AtEnd::Pause
        } else {
            AtEnd::Kill
        },
    };
    settings.check()?;
    let sandbox = match app.e2b.snapshot(&tenant, &settings.template) {
        Some(saved) => snapshots::revive(&app, &saved, settings).await?,
        None if TEMPLATES.contains(&settings.template.as_str()) => {
            let context = Context::fresh(&app, &tenant, "/work".to_owned()).await?;
            context
                .prepare(&app, (&tenant, &settings.environment))
                .await?;
            app.e2b.add(&tenant, settings, vec![context])?
        }
        None => {
            let [base, _, interpreter] = TEMPLATES;
            return Err(Failure::NotFound(format!(
                "templateID: use `{base}`, `{interpreter}` or a snapshot of the tenant"
            )));
        }
    };
    Ok((StatusCode::CREATED, Json(access(&sandbox))).into_response())
}

/// Returns the ids and tokens that a client needs to access a sandbox.
pub fn access(sandbox: &Sandbox) -> Value {
    json!({
        "templateID": sandbox.template,
        "sandboxID": sandbox.id,
        "clientID": "sandfork",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": sandbox.token,
        "trafficAccessToken": sandbox.token,
        "domain": null,
    })
}

/// Describes a sandbox in lists.
pub fn described(sandbox: &Sandbox) -> Value {
    const MIB: u64 = 1 << 20;
    let time = |time: SystemTime| humantime::format_rfc3339_millis(time).to_string();
    let limit = |name| sandbox.tenant.sandboxes.policy.limit(name);
    json!({
        "templateID": sandbox.template,
        "sandboxID": sandbox.id,
        "clientID": "sandfork",
        "envdVersion": ENVD_VERSION,
        "startedAt": time(sandbox.started),
        "endAt": time(sandbox.end()),
        "state": sandbox.state_name(),
        "metadata": sandbox.metadata,
        "cpuCount": limit(LimitName::Cores).div_ceil(1000),
        "memoryMB": limit(LimitName::Memory) / MIB,
        "diskSizeMB": limit(LimitName::WorkSize) / MIB,
    })
}

/// Describes a sandbox.
pub async fn show(Named(sandbox): Named) -> Answer {
    Ok(Json(described(&sandbox)))
}

/// Ends a sandbox.
pub async fn remove(
    State(app): State<Arc<App>>,
    Named(sandbox): Named,
) -> Result<StatusCode, Failure> {
    app.e2b.end(sandbox).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets the remaining lifetime of a sandbox.
pub async fn set_timeout(
    named: Result<Named, Failure>,
    posted: JsonBody<Timeout>,
) -> Result<StatusCode, Failure> {
    named?.0.set_lifetime(lifetime(posted.value.timeout)?);
    Ok(StatusCode::NO_CONTENT)
}

/// Returns no samples: the server's own metrics report the usage of tenants.
pub async fn metrics(_named: Named) -> Answer {
    Ok(Json(json!([])))
}

/// Rejects changes of a sandbox's network, which the tenant's policy decides.
pub async fn network(
    named: Result<Named, Failure>,
    _read: Result<RawBody, Failure>,
) -> Result<StatusCode, Failure> {
    named?;
    let reason = "the network of a sandbox cannot be changed: the tenant's policy decides its network access";
    Err(Failure::Unsupported(reason.to_owned()))
}
