//! The service `process.Process`: programs in the session of a sandbox's first context.

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

/// Bytes of a program's tag, which stays in memory.
const MOST_TAG: usize = 1 << 10;

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

/// Which program is meant.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selector {
    pid: Option<i32>,
    tag: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OfProcess {
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

/// What a list says of a program.
#[derive(Serialize)]
struct Described<'a> {
    config: &'a Config,
    pid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
}

/// Starts a program, and sends what comes of it.
pub async fn start(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    mut posted: RawBody,
) -> Result<Response, Failure> {
    check_header(&headers)?;
    let asked: Start = message(&mut posted)?;
    if asked.tag.as_ref().is_some_and(|tag| tag.len() > MOST_TAG) {
        return Err(Failure::Request(format!(
            "tag: it has more than {MOST_TAG} bytes"
        )));
    }
    let config = asked.process;
    let mut program = Program::new([&config.cmd].into_iter().chain(&config.args).cloned());
    if let Some(cwd) = &config.cwd {
        program = program.cwd(at_home(cwd));
    }
    for (name, text) in sandbox.environment.iter().chain(&config.envs) {
        program = program.env(name.clone(), text.clone());
    }
    if asked.stdin != Some(false) {
        program = program.stdin();
    }
    // A client that waits no longer wants it no longer.
    if let Some(timeout) = timeout(&headers) {
        program = program.timeout(timeout);
    }
    let mut output = Output::Streams;
    if let Some(Terminal { size }) = asked.pty {
        program = program.terminal(size.rows, size.cols);
        output = Output::Terminal;
    }
    let what = (config.shortened(), asked.tag, output);
    let events = Command::started(sandbox, program, what).await?;
    Ok(answer(events))
}

/// Sends what comes of a program that runs.
pub async fn connect(
    Extension(sandbox): OfSandbox,
    mut posted: RawBody,
) -> Result<Response, Failure> {
    let asked: OfProcess = message(&mut posted)?;
    Ok(answer(asked.process.find(&sandbox)?.listen()?))
}

/// How long a client waits for a call, if it says so.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("connect-timeout-ms")?.to_str().ok()?;
    Some(Duration::from_millis(value.parse().ok()?))
}

fn answer(events: Receiver<Bytes>) -> Response {
    stream(events, &json!({ "event": { "keepalive": {} } }), ())
}

impl Selector {
    fn find(&self, sandbox: &Sandbox) -> Result<Arc<Command>, Failure> {
        let is_meant = |command: &&Arc<Command>| match (self.pid, &self.tag) {
            (Some(pid), _) => command.process.pid() == pid,
            (None, tag) => tag.is_some() && command.tag == *tag,
        };
        let all = locked(&sandbox.commands);
        let found = all.iter().find(is_meant).cloned();
        found.ok_or_else(|| Failure::NotFound("there is no such process".to_owned()))
    }
}

/// The programs that run.
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

/// Writes to the standard input of a program, or types on its terminal.
pub async fn send_input(Extension(sandbox): OfSandbox, posted: JsonBody<OfProcess>) -> Answer {
    let asked = posted.value;
    drop(posted.held);
    let TextInput { stdin, pty } = asked.input;
    let text = stdin.or(pty).unwrap_or_default();
    let bytes = STANDARD.decode(text);
    let bytes = bytes.map_err(|_| Failure::Request("the input is not base64".to_owned()))?;
    let _held = sandbox.tenant.budget.hold(bytes.len() as u64)?;
    let command = asked.process.find(&sandbox)?;
    command.write(&bytes).await?;
    Ok(Json(json!({})))
}

/// Closes the standard input of a program.
pub async fn close_stdin(Extension(sandbox): OfSandbox, posted: JsonBody<OfProcess>) -> Answer {
    let command = posted.value.process.find(&sandbox)?;
    command.close_input().await?;
    Ok(Json(json!({})))
}

/// Sends a signal to a program.
pub async fn send_signal(Extension(sandbox): OfSandbox, posted: JsonBody<OfProcess>) -> Answer {
    let asked = posted.value;
    let signal = asked
        .signal
        .ok_or_else(|| Failure::Request("signal: it is missing".to_owned()))?;
    asked.process.find(&sandbox)?.process.kill(signal as i32)?;
    Ok(Json(json!({})))
}

/// Tells the terminal of a program its size.
pub async fn update(Extension(sandbox): OfSandbox, posted: JsonBody<OfProcess>) -> Answer {
    let asked = posted.value;
    let command = asked.process.find(&sandbox)?;
    if let Some(Terminal { size }) = asked.pty {
        command.process.resize(size.rows, size.cols);
    }
    Ok(Json(json!({})))
}
