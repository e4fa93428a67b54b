//! The control plane: sandboxes, from their beginning to their end.

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
use super::registry::{AtEnd, Sandbox, Settings, Texts};
use super::{Answer, ENVD_VERSION, pausing, snapshots};
use crate::failure::Failure;
use crate::http::{JsonBody, RawBody};
use crate::server::App;
use crate::tenant::Tenant;

pub type OfTenant = Extension<Arc<Tenant>>;

/// The longest that a sandbox may be asked to live, as at E2B.
const LONGEST: u64 = 24 * 60 * 60;
/// The templates of E2B's packages. Here they are the same: what the policy shows.
const TEMPLATES: [&str; 3] = ["base", "code-interpreter", "code-interpreter-v1"];
/// What a client may ask for elsewhere, and why it is not here.
const REFUSED: [(&str, &str); 5] = [
    (
        "autoResume",
        "a sandbox that is paused is resumed by `connect` alone",
    ),
    ("iam", "sandboxes have no identity of their own"),
    ("mcp", "the server itself speaks MCP, on `/mcp`"),
    (
        "network",
        "the policy of the tenant says which hosts its sandboxes reach",
    ),
    (
        "volumeMounts",
        "the policy of the tenant says what its sandboxes share",
    ),
];

#[derive(Debug, Deserialize)]
pub struct NewSandbox {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<i64>,
    metadata: Option<Texts>,
    #[serde(rename = "envVars")]
    environment: Option<Texts>,
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

/// The time that a client asks for.
pub fn lifetime(seconds: Option<i64>) -> Result<Duration, Failure> {
    let seconds = u64::try_from(seconds.unwrap_or(300)).unwrap_or_default();
    if !(1..=LONGEST).contains(&seconds) {
        return Err(Failure::Request(format!(
            "timeout: it is from 1 to {LONGEST} s"
        )));
    }
    Ok(Duration::from_secs(seconds))
}

/// Makes a sandbox: of a template, or of a snapshot.
pub async fn create(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    posted: JsonBody<NewSandbox>,
) -> Result<Response, Failure> {
    let asked = posted.value;
    for (key, reason) in REFUSED {
        let value = asked.more.get(key).unwrap_or(&Value::Null);
        let is_empty = matches!(value, Value::Null | Value::Bool(false))
            || *value == json!({ "enabled": false })
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty);
        if !is_empty {
            return Err(Failure::Unsupported(format!("{key}: {reason}")));
        }
    }
    pausing::check_memory(asked.pause_memory)?;
    if asked.internet == Some(false) && tenant.sandboxes.has_network() {
        let reason = "allow_internet_access: the policy of the tenant allows hosts, and a sandbox has what it allows";
        return Err(Failure::Unsupported(reason.to_owned()));
    }
    let settings = Settings {
        template: asked.template,
        metadata: asked.metadata.unwrap_or_default(),
        environment: asked.environment.unwrap_or_default(),
        lifetime: lifetime(asked.timeout)?,
        at_end: if asked.pause {
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
                "templateID: there are `{base}`, `{interpreter}` and the snapshots of the tenant"
            )));
        }
    };
    Ok((StatusCode::CREATED, Json(access(&sandbox))).into_response())
}

/// What a client needs to reach a sandbox.
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

/// What a list says of a sandbox.
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

/// One of the sandboxes.
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

/// Sets when a sandbox ends.
pub async fn set_timeout(
    named: Result<Named, Failure>,
    posted: JsonBody<Timeout>,
) -> Result<StatusCode, Failure> {
    named?.0.set_lifetime(lifetime(posted.value.timeout)?);
    Ok(StatusCode::NO_CONTENT)
}

/// No samples are kept: the server's own metrics have what its tenants use.
pub async fn metrics(_named: Named) -> Answer {
    Ok(Json(json!([])))
}

/// The network of a sandbox is that of its tenant's policy.
pub async fn network(
    named: Result<Named, Failure>,
    _read: Result<RawBody, Failure>,
) -> Result<StatusCode, Failure> {
    named?;
    let reason = "the network of a sandbox cannot be changed: the policy of the tenant says which hosts it reaches";
    Err(Failure::Unsupported(reason.to_owned()))
}
