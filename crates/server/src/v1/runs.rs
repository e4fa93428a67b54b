//! `POST /v1/runs`: one program in a fresh sandbox.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use sandfork::{Outcome, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::events;
use crate::failure::Failure;
use crate::files::{Encoded, Fetched, decoded};
use crate::http::Posted;
use crate::running::{Turn, in_turn};
use crate::server::App;
use crate::shelf::{Shelf, Variant};
use crate::tenant::Tenant;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    code: Option<String>,
    module: Option<String>,
    program: Option<Vec<String>>,
    filename: Option<String>,
    args: Vec<String>,
    stdin: Option<String>,
    files: Encoded,
    fetch: Vec<String>,
    limits: RunLimits,
}

/// Limits below the policy's.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RunLimits {
    wall: Option<f64>,
    cpu: Option<f64>,
    output: Option<u64>,
    memory: Option<u64>,
}

/// Runs it, and answers with its outcome: `docs/cli.md` describes it.
pub async fn run(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Arc<Tenant>>,
    headers: HeaderMap,
    posted: Posted<Run>,
) -> Result<Response, Failure> {
    let Posted { value: asked, held } = posted;
    let variant = Variant {
        memory: asked.limits.memory,
        ..Variant::default()
    };
    let fetched = Fetched::new(&asked.fetch, app.longest_answer)?;
    let request = fetched.from(asked.request(&tenant.shelf)?);
    let running = tenant.begin_run(variant)?;
    let run = {
        let tenant = Arc::clone(&tenant);
        move |turn: &mut Turn, sink: &mut dyn sandfork::OutputSink| -> Result<Value, Failure> {
            let sandbox = tenant.shelf.sandbox(variant)?;
            let outcome = sandbox.run_streaming(request.cancel(turn.stop.cancel()), sink)?;
            turn.ended(&outcome);
            Ok(answer(&outcome, &fetched))
        }
    };
    if events::is_asked(&headers) {
        let begin = move |mut sink| async move {
            in_turn(&app, &tenant, running, move |turn| run(turn, &mut sink)).await
        };
        return events::answer(held, begin).await;
    }
    let value = in_turn(&app, &tenant, running, move |turn| run(turn, &mut ())).await?;
    app.answer(&value, held)
}

fn answer(outcome: &Outcome, fetched: &Fetched) -> Value {
    let mut value = json!(outcome);
    value["files"] = json!(fetched.encoded());
    value
}

impl Run {
    fn request(self, of: &Shelf) -> Result<Request, Failure> {
        let mut request = match (self.code, self.module, self.program) {
            (Some(code), None, None) => Request::python(code),
            (None, Some(module), None) => Request::module(module),
            (None, None, Some(argv)) if !argv.is_empty() => Request::program(argv),
            _ => {
                return Err(Failure::Request(
                    "a run has one of `code`, `module` and `program`".to_owned(),
                ));
            }
        };
        if let Some(name) = self.filename {
            request = request.filename(name);
        }
        request = request.args(self.args);
        for (path, contents) in decoded(&self.files)? {
            request = request.file(path, contents);
        }
        if let Some(stdin) = self.stdin {
            request = request.stdin_bytes(stdin);
        }
        if let Some(wall) = self.limits.wall {
            request = request.wall(of.time(wall)?);
        }
        if let Some(cpu) = self.limits.cpu {
            request = request.cpu(of.time(cpu)?);
        }
        if let Some(output) = self.limits.output {
            request = request.output(output);
        }
        Ok(request)
    }
}
