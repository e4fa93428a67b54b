//! `POST /v1/runs`: runs a program in a fresh sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use sandfork::{LimitName, Outcome, Request};
use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::events;
use crate::failure::Failure;
use crate::files::{Encoded, Fetched, decoded};
use crate::http::JsonBody;
use crate::running::run as run_request;
use crate::sandboxes::{Sandboxes, Variant};
use crate::server::App;
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

/// Limits, which must not exceed the policy's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RunLimits {
    wall: Option<Amount>,
    cpu: Option<Amount>,
    output: Option<Amount>,
    memory: Option<Amount>,
}

/// Runs the program, and responds with its outcome (docs/cli.md).
pub async fn run(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Arc<Tenant>>,
    headers: HeaderMap,
    posted: JsonBody<Run>,
) -> Result<Response, Failure> {
    let JsonBody {
        value: params,
        held,
    } = posted;
    let memory = params.limits.memory.as_ref();
    let memory = memory.map(|memory| memory.bytes(LimitName::Memory, &tenant.sandboxes));
    let variant = Variant {
        memory: memory.transpose()?,
        ..Variant::default()
    };
    let fetched = Fetched::new(&params.fetch, app.max_response)?;
    let wall = params.limits.wall.as_ref();
    let wall = wall.map(|wall| wall.time(LimitName::Wall, &tenant.sandboxes));
    let output_timeout = app.output_timeout(&tenant, wall.transpose()?);
    let request = fetched.add_to(params.request(&tenant.sandboxes)?);
    if !events::are_accepted(&headers) {
        let answer = move |outcome| held.answer(&Answer::of(&outcome, &fetched));
        return run_request(&app, &tenant, variant, request, (), answer).await;
    }
    let budget = held.budget.clone();
    let begin = move |sink| async move {
        let answer = move |outcome| budget.json(&Answer::of(&outcome, &fetched));
        run_request(&app, &tenant, variant, request, sink, answer).await
    };
    events::answer(held, output_timeout, begin).await
}

/// The outcome of a run, and the requested files.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    files: BTreeMap<String, String>,
}

impl<'a> Answer<'a> {
    fn of(outcome: &'a Outcome, fetched: &Fetched) -> Self {
        Self {
            outcome,
            files: fetched.encoded(),
        }
    }
}

impl Run {
    fn request(self, of: &Sandboxes) -> Result<Request, Failure> {
        let mut request = match (self.code, self.module, self.program) {
            (Some(code), None, None) => Request::python(code),
            (None, Some(module), None) => Request::module(module),
            (None, None, Some(argv)) if !argv.is_empty() => Request::program(argv),
            _ => {
                return Err(Failure::Request(
                    "a run needs exactly one of `code`, `module` and `program`".to_owned(),
                ));
            }
        };
        if let Some(name) = self.filename {
            request = request.filename(name);
        }
        request = request.args(self.args);
        for (path, contents) in decoded(self.files)? {
            request = request.file(path, contents);
        }
        if let Some(stdin) = self.stdin {
            request = request.stdin_bytes(stdin);
        }
        if let Some(wall) = self.limits.wall {
            request = request.wall(wall.time(LimitName::Wall, of)?);
        }
        if let Some(cpu) = self.limits.cpu {
            request = request.cpu(cpu.time(LimitName::Cpu, of)?);
        }
        if let Some(output) = self.limits.output {
            request = request.output(output.bytes(LimitName::Output, of)?);
        }
        Ok(request)
    }
}
