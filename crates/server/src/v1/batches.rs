//! `POST /v1/batches`: runs many tasks, and streams their results as JSON lines in the order of completion.

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
use crate::http::{Held, JsonBody, memory_as_values, serialization_failure};
use crate::running::{blocking, run};
use crate::sandboxes::Variant;
use crate::server::App;
use crate::tenant::Tenant;

/// The maximum number of tasks of a batch.
const MAX_TASKS: usize = 100_000;
/// The retry interval while the tenant's quota or memory is in use.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for CPU time of the tenant's quota.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The factor by which parsing a task exceeds its memory: its text, an unescaped string of it, and its values.
const PARSE_FACTOR: u64 = 3;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Default keys of all tasks.
    #[serde(default)]
    common: Map<String, Value>,
    /// The tasks, whose keys override the defaults.
    tasks: Vec<Map<String, Value>>,
}

/// Runs the tasks, as many concurrently as the server allows. No task starts while the client does not read results.
pub async fn batch(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Arc<Tenant>>,
    posted: JsonBody<Batch>,
) -> Result<Response, Failure> {
    let JsonBody { value, mut held } = posted;
    if value.tasks.len() > MAX_TASKS {
        let problem = format!("a batch has at most {MAX_TASKS} tasks");
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
        held.grow_by(largest * (PARSE_FACTOR + 1))?;
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
        // The stream is polled for the next line once this one was sent, so its memory can be released first.
        drop::<Option<Held>>(sent);
        let (mut line, of_line) = lines.next().await?;
        line.push(b'\n');
        Some((Ok::<_, Infallible>(line), (lines, of_line, until_all_sent)))
    });
    let kind = [(CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

/// Checks that the ids of the tasks are unique. A task without an id is identified by its index.
fn check_ids(batch: &Batch) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for (number, keys) in batch.tasks.iter().enumerate() {
        let number = Value::from(number);
        let id = keys.get("id").or(batch.common.get("id")).unwrap_or(&number);
        // Other types are invalid, which the result of the task reports.
        let is_id = id.is_string() || id.is_i64() || id.is_u64();
        if is_id && !seen.insert(id.clone()) {
            return Err(Failure::Request(format!(
                "tasks: the id {id} occurs twice: use a unique id for each task"
            )));
        }
    }
    Ok(())
}

/// Builds the result of a task without its output, and states the reason.
fn without_output(done: &Done, why: &Failure) -> Result<Value, Failure> {
    let mut result = serde_json::to_value(done).map_err(|error| serialization_failure(&error))?;
    result["stdout"] = "".into();
    result["stderr"] = "".into();
    result["value"] = Value::Null;
    if let Some(error) = result["error"].as_object_mut() {
        error.insert("traceback".to_owned(), "".into());
    }
    result["left_out"] = format!("stdout, stderr, value and traceback: {why}").into();
    Ok(result)
}

/// The tasks of a batch. The request's reservation includes memory to run and to parse one task, which the tasks share.
struct Tasks {
    app: Arc<App>,
    tenant: Arc<Tenant>,
    common: Map<String, Value>,
    /// Protects the shared memory, with which at least one task can always proceed.
    reserve: Mutex<()>,
}

/// The memory of a task until its run has ended.
struct TaskMemory<'t> {
    _own: Option<Held>,
    _reserved: Option<MutexGuard<'t, ()>>,
}

/// The keys of a task, merged with the defaults.
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
    /// Runs a task. Returns its result as `sandfork map` would write it, and the reserved memory of that.
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
                // A retry would fail in the same way.
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
        let reserved = self.task_memory(memory).await;
        let of = Arc::clone(self);
        // The keys of a task may be large, including the shared ones.
        let task = blocking(move || of.read(number, &keys)).await?;
        let outcome = loop {
            let request = task.request().clone();
            match run(&self.app, &self.tenant, Variant::default(), request, (), Ok).await {
                // The quota or the queue is full. Retry, because the client waits for all tasks in any case.
                Err(failure) if failure.is_overload() => {
                    self.tenant.may_begin_within(MAX_WAIT)?;
                    sleep(RETRY_INTERVAL).await;
                }
                outcome => break outcome?,
            }
        };
        // Comparing the output with what the task expects may take a while.
        let done = blocking(move || Ok(Arc::new(task.done(outcome)))).await?;
        drop(reserved);
        self.written(&done).await
    }

    /// Serializes a result. If there is no memory for the output, a task that has run keeps its status without the
    /// output, because the client would otherwise run it again.
    async fn written(&self, done: &Arc<Done>) -> Result<(Vec<u8>, Held), Failure> {
        let begun = Instant::now();
        loop {
            let (of, budget) = (Arc::clone(done), self.tenant.budget.clone());
            match blocking(move || budget.json(&*of)).await {
                Err(Failure::Busy(_)) if begun.elapsed() < self.app.bodies.pause => {
                    sleep(RETRY_INTERVAL).await;
                }
                Err(failure @ (Failure::Busy(_) | Failure::NeverFits { .. })) => {
                    let without = without_output(done, &failure)?;
                    break self.tenant.budget.json(&without);
                }
                written => break written,
            }
        }
    }

    /// Reserves the memory of a task, or waits for the shared memory of the batch.
    async fn task_memory(&self, memory: u64) -> TaskMemory<'_> {
        match self.tenant.budget.hold(memory) {
            Ok(held) => TaskMemory {
                _own: Some(held),
                _reserved: None,
            },
            Err(_) => TaskMemory {
                _own: None,
                _reserved: Some(self.reserve.lock().await),
            },
        }
    }

    /// Parses a task like a line of a task file. Keeps nothing else in memory.
    fn read(&self, number: usize, keys: &Map<String, Value>) -> Result<Task, Failure> {
        let common = &self.common;
        let merged = Merged { common, keys };
        let text = serde_json::to_vec(&merged).map_err(|error| serialization_failure(&error))?;
        Ok(Task::read(
            &text,
            i64::try_from(number).unwrap_or(i64::MAX),
        )?)
    }
}
