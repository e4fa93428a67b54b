//! `POST /v1/batches`: many tasks, whose results come as lines of JSON when they are there.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream::{iter, unfold};
use sandfork::batch::{Done, Task};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

use crate::failure::Failure;
use crate::http::{Held, JsonBody, memory_as_values, unwritten};
use crate::running::{blocking, run};
use crate::sandboxes::Variant;
use crate::server::App;
use crate::tenant::Tenant;

/// More are several batches.
const MOST_TASKS: usize = 100_000;
/// How long a task waits before it asks again for what others have.
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(100);
/// The longest wait for processor time of the tenant's quota.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Reading a task takes so many times its memory: for its text, a string of it without its escapes, and its values.
const TIMES_TO_READ: u64 = 3;

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
    let JsonBody { value, mut held } = posted;
    if value.tasks.len() > MOST_TASKS {
        let problem = format!("a batch has at most {MOST_TASKS} tasks");
        return Err(Failure::Request(problem));
    }
    tenant.may_begin_within(Duration::ZERO)?;
    let (value, memory) = blocking(move || {
        check_ids(&value)?;
        let of_common = memory_as_values(&value.common)?;
        let memory = |keys| Ok(of_common + memory_as_values(keys)?);
        let memory = value.tasks.iter().map(memory);
        let memory = memory.collect::<Result<Vec<u64>, Failure>>()?;
        Ok((value, memory))
    })
    .await?;
    if let Some(largest) = memory.iter().max() {
        held.grow_by(largest * (TIMES_TO_READ + 1))?;
    }
    let jobs = app.jobs;
    let tasks = Arc::new(Tasks {
        app,
        tenant,
        common: value.common,
        reserve: Mutex::new(()),
    });
    let each = value.tasks.into_iter().zip(memory).enumerate();
    let lines = iter(each).map(move |(number, (keys, memory))| {
        let tasks = Arc::clone(&tasks);
        async move { tasks.line(number, keys, memory).await }
    });
    let lines = Box::pin(lines.buffer_unordered(jobs));
    let begin = (lines, None, held);
    let lines = unfold(begin, |(mut lines, sent, until_all_sent)| async move {
        // The next one is asked for when this one is sent, and may need its memory.
        drop::<Option<Held>>(sent);
        let (mut line, of_line) = lines.next().await?;
        line.push(b'\n');
        Some((Ok::<_, Infallible>(line), (lines, of_line, until_all_sent)))
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

/// The result of a task without what the guest wrote, and why.
fn without_output(done: &Done, why: &Failure) -> Result<Value, Failure> {
    let mut result = serde_json::to_value(done).map_err(|error| unwritten(&error))?;
    result["stdout"] = "".into();
    result["stderr"] = "".into();
    result["value"] = Value::Null;
    if let Some(error) = result["error"].as_object_mut() {
        error.insert("traceback".to_owned(), "".into());
    }
    result["left_out"] = format!("stdout, stderr, value and traceback: {why}").into();
    Ok(result)
}

/// The tasks of a batch. Its body holds memory for one of them, and for reading one: they are read one after the other.
struct Tasks {
    app: Arc<App>,
    tenant: Arc<Tenant>,
    common: Map<String, Value>,
    /// Whose task has the memory that the body holds. So one of them always goes on.
    reserve: Mutex<()>,
}

/// The memory of a task until its run has ended.
struct Place<'t> {
    _own: Option<Held>,
    _reserved: Option<MutexGuard<'t, ()>>,
}

/// The keys of a task, with those of all tasks that it has not.
struct Merged<'t> {
    common: &'t Map<String, Value>,
    keys: &'t Map<String, Value>,
}

impl Serialize for Merged<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let common = self.common.iter();
        let common = common.filter(|(key, _)| !self.keys.contains_key(*key));
        serializer.collect_map(common.chain(self.keys))
    }
}

impl Tasks {
    /// Runs a task, and describes its result as `sandfork map` does. Returns the memory of that too.
    async fn line(
        self: &Arc<Self>,
        number: usize,
        keys: Map<String, Value>,
        memory: u64,
    ) -> (Vec<u8>, Option<Held>) {
        let id = keys.get("id").or(self.common.get("id")).cloned();
        match self.result(number, keys, memory).await {
            Ok((line, held)) => (line, Some(held)),
            Err(failure) => {
                self.app.metrics.refused(&self.tenant.name, failure.kind());
                let id = id.unwrap_or_else(|| number.into());
                let error = json!({ "name": failure.kind(), "message": failure.message(), "traceback": "" });
                // Another attempt would find the same request.
                let status = match failure {
                    Failure::Request(_) => "refused",
                    _ => "infrastructure",
                };
                let line = json!({ "id": id, "status": status, "error": error });
                (line.to_string().into_bytes(), None)
            }
        }
    }

    async fn result(
        self: &Arc<Self>,
        number: usize,
        keys: Map<String, Value>,
        memory: u64,
    ) -> Result<(Vec<u8>, Held), Failure> {
        let place = self.place(memory).await;
        let of = Arc::clone(self);
        // It may be long, as are all that have the same keys.
        let task = blocking(move || of.read(number, &keys)).await?;
        let outcome = loop {
            let request = task.request().clone();
            match run(&self.app, &self.tenant, Variant::default(), request, (), Ok).await {
                // Others are before it. Its client waits for all in any case.
                Err(failure) if failure.is_overload() => {
                    self.tenant.may_begin_within(LONGEST_WAIT)?;
                    sleep(UNTIL_NEXT_TRY).await;
                }
                outcome => break outcome?,
            }
        };
        // What is expected of it may be long.
        let done = blocking(move || Ok(Arc::new(task.done(outcome)))).await?;
        drop(place);
        self.written(&done).await
    }

    /// The line of a result. A task that has run keeps its status where there is no memory for its output: its client would
    /// run it again.
    async fn written(&self, done: &Arc<Done>) -> Result<(Vec<u8>, Held), Failure> {
        let begun = Instant::now();
        loop {
            let (of, budget) = (Arc::clone(done), self.tenant.budget.clone());
            match blocking(move || budget.json(&*of)).await {
                Err(Failure::Busy(_)) if begun.elapsed() < self.app.bodies.pause => {
                    sleep(UNTIL_NEXT_TRY).await;
                }
                Err(failure @ (Failure::Busy(_) | Failure::NeverFits { .. })) => {
                    let without = without_output(done, &failure)?;
                    break self.tenant.budget.json(&without);
                }
                written => break written,
            }
        }
    }

    /// The memory of a task: its own, or that which the body holds, when it is its turn.
    async fn place(&self, memory: u64) -> Place<'_> {
        match self.tenant.budget.hold(memory) {
            Ok(held) => Place {
                _own: Some(held),
                _reserved: None,
            },
            Err(_) => Place {
                _own: None,
                _reserved: Some(self.reserve.lock().await),
            },
        }
    }

    /// Reads a task as a line of a task file. Nothing else is kept of it.
    fn read(&self, number: usize, keys: &Map<String, Value>) -> Result<Task, Failure> {
        let common = &self.common;
        let merged = Merged { common, keys };
        let text = serde_json::to_vec(&merged).map_err(|error| unwritten(&error))?;
        Ok(Task::read(
            &text,
            i64::try_from(number).unwrap_or(i64::MAX),
        )?)
    }
}
