//! `POST /v1/batches`: many tasks, whose results come as lines of JSON when they are there.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream::iter;
use sandfork::batch::Task;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use crate::failure::Failure;
use crate::http::{Held, JsonBody};
use crate::running::run;
use crate::sandboxes::Variant;
use crate::server::App;
use crate::tenant::Tenant;

/// More are several batches.
const MOST_TASKS: usize = 100_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Keys of all tasks.
    #[serde(default)]
    common: Map<String, Value>,
    /// The tasks, with the keys that differ.
    tasks: Vec<Map<String, Value>>,
}

/// Runs the tasks. As many run at once as the server runs, and none begins while the client takes no results.
pub async fn batch(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Arc<Tenant>>,
    posted: JsonBody<Batch>,
) -> Result<Response, Failure> {
    let JsonBody { value, held } = posted;
    if value.tasks.len() > MOST_TASKS {
        let problem = format!("a batch has at most {MOST_TASKS} tasks");
        return Err(Failure::Request(problem));
    }
    check_ids(&value)?;
    let (jobs, common) = (app.jobs, Arc::new(value.common));
    let lines = iter(value.tasks.into_iter().enumerate()).map(move |(number, keys)| {
        let (app, tenant, common) = (Arc::clone(&app), Arc::clone(&tenant), Arc::clone(&common));
        async move { line(&app, &tenant, number, &common, keys).await }
    });
    let mut until_next = None;
    let lines = lines
        .buffer_unordered(jobs)
        .map(move |(mut line, of_line)| {
            let _until_sent = &held;
            // The next one is asked for when this one is sent.
            until_next.replace(of_line);
            line.push(b'\n');
            Ok::<_, Infallible>(line)
        });
    let kind = [(CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

/// Each task has an id of its own, by which its result is found. Its number is that of one without.
fn check_ids(batch: &Batch) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for (number, keys) in batch.tasks.iter().enumerate() {
        let number = Value::from(number);
        let id = keys.get("id").or(batch.common.get("id")).unwrap_or(&number);
        // Others are no id, which their result says.
        let is_id = id.is_string() || id.is_i64() || id.is_u64();
        if is_id && !seen.insert(id.clone()) {
            return Err(Failure::Request(format!(
                "tasks: the id {id} occurs twice, and each task has one of its own"
            )));
        }
    }
    Ok(())
}

/// Runs a task, and describes its result as `sandfork map` does. Returns the memory of that too.
async fn line(
    app: &Arc<App>,
    tenant: &Arc<Tenant>,
    number: usize,
    common: &Map<String, Value>,
    keys: Map<String, Value>,
) -> (Vec<u8>, Option<Held>) {
    let mut task = common.clone();
    task.extend(keys);
    let id = task.get("id").cloned().unwrap_or_else(|| number.into());
    let result = result(app, tenant, number, task).await;
    let held = result.and_then(|line| {
        let held = tenant.budget.hold(line.len() as u64)?;
        Ok((line, Some(held)))
    });
    held.unwrap_or_else(|failure| {
        let error =
            json!({ "name": failure.kind(), "message": failure.to_string(), "traceback": "" });
        let line = json!({ "id": id, "status": "infrastructure", "error": error });
        (line.to_string().into_bytes(), None)
    })
}

async fn result(
    app: &Arc<App>,
    tenant: &Arc<Tenant>,
    number: usize,
    task: Map<String, Value>,
) -> Result<Vec<u8>, Failure> {
    let text = Value::Object(task).to_string();
    let task = Task::read(text.as_bytes(), i64::try_from(number).unwrap_or(i64::MAX))?;
    loop {
        let request = task.request().clone();
        match run(app, tenant, Variant::default(), request, ()).await {
            // Others are before it. Its client waits for all in any case.
            Err(failure) if failure.is_overload() => sleep(Duration::from_millis(100)).await,
            outcome => {
                return serde_json::to_vec(&task.done(outcome?)).map_err(|error| {
                    tracing::error!("a result cannot be written: {error}");
                    Failure::Mistake
                });
            }
        }
    }
}
