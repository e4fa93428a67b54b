//! The service `process.Process`: runs programs in the session of a sandbox's first context.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sandfork::session::Program;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::commands::{Command, Output, Signal, Size};
use super::config::Config;
use super::registry::Sandbox;
use super::rpc::{check_header, message, stream};
use super::{Answer, OfSandbox, at_home};
use crate::failure::Failure;
use crate::http::{JsonBody, RawBody};
use crate::locked;
use crate::running::blocking;

/// The maximum length in bytes of a program's tag, which stays in memory.
const MAX_TAG: usize = 1 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Start {
    process: Config,
    pty: Option<Terminal>,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub struct Terminal {
    size: Size,
}

/// Selects a program.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selector {
    pid: Option<i32>,
    tag: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProcessRequest {
    process: Selector,
    pty: Option<Terminal>,
    signal: Option<Signal>,
    input: TextInput,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TextInput {
    stdin: Option<String>,
    pty: Option<String>,
}

/// A program in a list.
#[derive(Serialize)]
struct Described<'a> {
    config: &'a Config,
    pid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
}

/// Starts a program, and streams its events.
pub async fn start(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    mut posted: RawBody,
) -> Result<Response, Failure> {
    check_header(&headers)?;
    let params: Start = message(&mut posted)?;
    if params.tag.as_ref().is_some_and(|tag| tag.len() > MAX_TAG) {
        return Err(Failure::Request(format!("tag: more than {MAX_TAG} bytes")));
    }
    let config = params.process;
    let mut program = Program::new([&config.cmd].into_iter().chain(&config.args).cloned());
    if let Some(cwd) = &config.cwd {
        program = program.cwd(at_home(cwd));
    }
    for (name, text) in sandbox.environment.iter().chain(&config.envs) {
        program = program.env(name.clone(), text.clone());
    }
    if params.stdin != Some(false) {
        program = program.stdin();
    }
    // The client's timeout ends the program too.
    if let Some(timeout) = timeout(&headers) {
        program = program.timeout(timeout);
    }
    let mut output = Output::Streams;
    if let Some(Terminal { size }) = params.pty {
        program = program.terminal(size.rows, size.cols);
        output = Output::Terminal;
    }
    let what = (config.shortened(), params.tag, output);
    let events = Command::spawn(sandbox, program, what).await?;
    Ok(answer(events))
}

/// Subscribes to the events of a running program.
pub async fn connect(
    Extension(sandbox): OfSandbox,
    mut posted: RawBody,
) -> Result<Response, Failure> {
    let params: ProcessRequest = message(&mut posted)?;
    Ok(answer(params.process.find(&sandbox)?.subscribe()?))
}

/// Returns the client's timeout for the call, if it sends one.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("connect-timeout-ms")?.to_str().ok()?;
    Some(Duration::from_millis(value.parse().ok()?))
}

fn answer(events: Receiver<Bytes>) -> Response {
    stream(events, &json!({ "event": { "keepalive": {} } }), ())
}

impl Selector {
    fn find(&self, sandbox: &Sandbox) -> Result<Arc<Command>, Failure> {
        let is_selected = |command: &&Arc<Command>| match (self.pid, &self.tag) {
            (Some(pid), _) => command.process.pid() == pid,
            (None, tag) => tag.is_some() && command.tag == *tag,
        };
        let all = locked(&sandbox.commands);
        let found = all.iter().find(is_selected).cloned();
        found.ok_or_else(|| Failure::NotFound("there is no such process".to_owned()))
    }
}

/// Lists the running programs.
pub async fn list(Extension(sandbox): OfSandbox) -> Result<Response, Failure> {
    let listed = blocking(move || {
        let all = locked(&sandbox.commands).clone();
        let described = all.iter().map(|command| Described {
            config: &command.config,
            pid: command.process.pid(),
            tag: command.tag.as_deref(),
        });
        let described: Vec<_> = described.collect();
        let budget = &sandbox.tenant.budget;
        budget.answer(&BTreeMap::from([("processes", described)]))
    });
    listed.await
}

/// Writes to the standard input or the terminal of a program.
pub async fn send_input(Extension(sandbox): OfSandbox, posted: JsonBody<ProcessRequest>) -> Answer {
    let params = posted.value;
    drop(posted.held);
    let TextInput { stdin, pty } = params.input;
    let text = stdin.or(pty).unwrap_or_default();
    let bytes = STANDARD.decode(text);
    let bytes = bytes.map_err(|_| Failure::Request("input: not valid base64".to_owned()))?;
    let _held = sandbox.tenant.budget.hold(bytes.len() as u64)?;
    let command = params.process.find(&sandbox)?;
    command.write(&bytes).await?;
    Ok(Json(json!({})))
}

/// Closes the standard input of a program.
pub async fn close_stdin(
    Extension(sandbox): OfSandbox,
    posted: JsonBody<ProcessRequest>,
) -> Answer {
    let command = posted.value.process.find(&sandbox)?;
    command.close_input().await?;
    Ok(Json(json!({})))
}

/// Sends a signal to a program.
pub async fn send_signal(
    Extension(sandbox): OfSandbox,
    posted: JsonBody<ProcessRequest>,
) -> Answer {
    let params = posted.value;
    let signal = params
        .signal
        .ok_or_else(|| Failure::Request("signal: required".to_owned()))?;
    params.process.find(&sandbox)?.process.kill(signal as i32)?;
    Ok(Json(json!({})))
}

/// Resizes the terminal of a program.
pub async fn update(Extension(sandbox): OfSandbox, posted: JsonBody<ProcessRequest>) -> Answer {
    let params = posted.value;
    let command = params.process.find(&sandbox)?;
    if let Some(Terminal { size }) = params.pty {
        command.process.resize(size.rows, size.cols);
    }
    Ok(Json(json!({})))
}
