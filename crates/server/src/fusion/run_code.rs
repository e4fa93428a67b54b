//! `POST /run_code`: runs a program in a fresh sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use sandfork::{Ending, LimitName, Outcome, Request};
use serde::{Deserialize, Serialize};

use super::language::{COMPILED, Language, Launch};
use super::{ProgramResult, RunStatus};
use crate::failure::Failure;
use crate::files::{Encoded, Fetched, decoded, guest_path};
use crate::http::JsonBody;
use crate::running::run;
use crate::sandboxes::{Executes, Variant};
use crate::server::App;
use crate::tenant::Tenant;

#[derive(Debug, Deserialize)]
#[serde(default)]
pub struct RunCode {
    compile_timeout: f64,
    run_timeout: f64,
    #[serde(rename = "memory_limit_MB")]
    memory_limit_mb: i64,
    code: Option<String>,
    stdin: Option<String>,
    language: Language,
    files: Encoded,
    fetch_files: Vec<String>,
}

impl Default for RunCode {
    fn default() -> Self {
        Self {
            compile_timeout: 10.0,
            run_timeout: 10.0,
            memory_limit_mb: -1,
            code: None,
            stdin: None,
            language: Language::default(),
            files: Encoded::new(),
            fetch_files: Vec::new(),
        }
    }
}

#[derive(Debug, Serialize)]
struct CodeResult {
    status: RunStatus,
    message: String,
    compile_result: Option<ProgramResult>,
    run_result: Option<ProgramResult>,
    executor_pod_name: Option<String>,
    files: BTreeMap<String, String>,
}

/// Compiles the code if necessary, and runs it.
pub async fn run_code(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Arc<Tenant>>,
    posted: JsonBody<RunCode>,
) -> Result<Response, Failure> {
    let JsonBody {
        value: params,
        held,
    } = posted;
    let code = params.code.ok_or_else(|| missing("code"))?;
    let fetched = Fetched::new(&params.fetch_files, app.max_response)?;
    let mut request = Job {
        app: &app,
        tenant: &tenant,
        variant: Variant {
            memory: super::megabytes(params.memory_limit_mb),
            executes: Executes::default(),
        },
        files: decoded(params.files)?,
    };
    let (file, launch) = params.language.program();
    let source = code.into_bytes();
    let mut compilation = None;
    let run = match launch {
        Launch::Interpreter => {
            request.add(file, source.clone())?;
            Request::python(source).filename(format!("/work/{file}"))
        }
        Launch::Module(module) => {
            request.add(file, source)?;
            Request::module(module).args([file])
        }
        Launch::Program(argv) => {
            request.add(file, source)?;
            program(argv, &[file])
        }
        Launch::Compiled(argv) => {
            request.add(file, source)?;
            request.variant.executes = Executes::Written;
            let made = Fetched::new(&[COMPILED.to_owned()], app.max_response)?;
            let compiler = made.add_to(program(argv, &[]));
            // Keep the files for the program too.
            let outcome = request
                .clone()
                .run(compiler, ("compile_timeout", params.compile_timeout), Ok)
                .await?;
            check_started(&outcome, argv[0])?;
            let result = ProgramResult::of(&outcome);
            let program = made.take(COMPILED).filter(|_| result.is_success());
            let Some(program) = program else {
                return held.answer(&CodeResult::of(Some(result), None, &fetched));
            };
            compilation = Some(result);
            request.add(COMPILED, program)?;
            // Files of a request are not executable.
            let start = format!("chmod +x {COMPILED} && exec ./{COMPILED}");
            Request::program(vec!["sh".to_owned(), "-c".to_owned(), start])
        }
    };
    let run = match params.stdin {
        Some(stdin) => run.stdin_bytes(stdin),
        None => run,
    };
    let run = fetched.add_to(run);
    let answer = move |outcome| {
        if let Launch::Program(argv) = launch {
            check_started(&outcome, argv[0])?;
        }
        let result = CodeResult::of(compilation, Some(ProgramResult::of(&outcome)), &fetched);
        held.answer(&result)
    };
    request
        .run(run, ("run_timeout", params.run_timeout), answer)
        .await
}

/// A run of a request, with its files.
#[derive(Clone)]
struct Job<'a> {
    app: &'a Arc<App>,
    tenant: &'a Arc<Tenant>,
    variant: Variant,
    files: Vec<(sandfork::GuestPath, Vec<u8>)>,
}

impl Job<'_> {
    fn add(&mut self, path: &str, contents: Vec<u8>) -> Result<(), Failure> {
        self.files.push((guest_path(path)?, contents));
        Ok(())
    }

    async fn run<T: Send + 'static>(
        self,
        mut request: Request,
        (field, seconds): (&str, f64),
        answer: impl FnOnce(Outcome) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        for (path, contents) in self.files {
            request = request.file(path, contents);
        }
        let wall = self
            .tenant
            .sandboxes
            .time(LimitName::Wall, field, seconds)?;
        let request = request.wall(wall);
        run(self.app, self.tenant, self.variant, request, (), answer).await
    }
}

fn program(argv: &[&str], more: &[&str]) -> Request {
    Request::program(
        argv.iter()
            .chain(more)
            .map(|&word| word.to_owned())
            .collect(),
    )
}

fn missing(field: &str) -> Failure {
    Failure::Request(format!("{field}: required"))
}

/// Rejects a language whose program the sandbox lacks, because a retry would not help.
fn check_started(outcome: &Outcome, program: &str) -> Result<(), Failure> {
    match outcome.ending() {
        Ending::NotStarted(_) => Err(Failure::Request(format!(
            "language: `{program}` is not available in sandboxes; install it on the server's host"
        ))),
        _ => Ok(()),
    }
}

impl CodeResult {
    fn of(compile: Option<ProgramResult>, run: Option<ProgramResult>, fetched: &Fetched) -> Self {
        let is_success = run.as_ref().is_some_and(ProgramResult::is_success);
        Self {
            status: if is_success {
                RunStatus::Success
            } else {
                RunStatus::Failed
            },
            message: String::new(),
            compile_result: compile,
            run_result: run,
            executor_pod_name: None,
            files: fetched.encoded(),
        }
    }
}
