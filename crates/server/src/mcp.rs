//! The Model Context Protocol (<https://modelcontextprotocol.io>): the sandbox as tools of a model, on `/mcp` and over the
//! standard streams (`sandfork mcp`).
//!
//! A session has an id that its tool returns, so that it depends on no connection.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use sandfork::session::{Cell, CellReport, Contents, Parents};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::display::{representations, value_text};
use crate::failure::Failure;
use crate::running::{blocking, in_turn, run_cell};
use crate::server::App;
use crate::shelf::Variant;
use crate::tenant::Tenant;

/// What a model reads of one output. The middle of more is left out.
const LONGEST_TEXT: usize = 20_000;

/// What the tools are for.
const INSTRUCTIONS: &str = "Runs Python in sealed sandboxes. `run_python_code` needs nothing and keeps nothing; \
    `open_session` is for code in several steps, which keeps its variables and files.";

/// The tools, for the tenant of a connection or, over HTTP, of each request.
#[derive(Clone, Debug)]
pub struct Tools {
    app: Arc<App>,
    tenant: Option<Arc<Tenant>>,
}

/// The route. What identifies tenants comes before it.
pub fn routes(app: &Arc<App>, longest: usize) -> Router<Arc<App>> {
    let tools = Tools {
        app: Arc::clone(app),
        tenant: None,
    };
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(longest);
    // Names of other hosts are for those that need a token, which a page in a browser does not have.
    let config = if app.has_tokens() {
        config.disable_allowed_hosts()
    } else {
        config.enforce_origin_validation()
    };
    let service = StreamableHttpService::new(
        move || Ok(tools.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    Router::new().route_service("/mcp", service)
}

/// Serves the process that has the other ends of the standard streams, until it closes them.
///
/// # Errors
/// If it does not speak the protocol.
pub async fn serve_streams(app: Arc<App>, tenant: Arc<Tenant>) -> Result<(), String> {
    let tools = Tools {
        app,
        tenant: Some(tenant),
    };
    let service = tools.serve(rmcp::transport::io::stdio_pipes()).await;
    let service = service.map_err(|error| format!("the client does not speak MCP: {error}"))?;
    service
        .waiting()
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("sandfork", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tenant = self.tenant_of(&context)?;
        let arguments = request.arguments.unwrap_or_default();
        let call = Call {
            app: &self.app,
            tenant: &tenant,
            arguments,
        };
        let called = tokio::select! {
            called = call.perform(&request.name) => called,
            // What runs is stopped with it.
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        };
        match called {
            Some(Ok(result)) => Ok(result.into()),
            // The model reads why, and can call again.
            Some(Err(failure)) => {
                Ok(CallToolResult::error(vec![ContentBlock::text(failure.to_string())]).into())
            }
            None => Err(ErrorData::invalid_params(
                format!("there is no tool `{}`", request.name),
                None,
            )),
        }
    }
}

impl Tools {
    fn tenant_of(&self, context: &RequestContext<RoleServer>) -> Result<Arc<Tenant>, ErrorData> {
        let of_request = || {
            let parts = context.extensions.get::<Parts>()?;
            parts.extensions.get::<Arc<Tenant>>().cloned()
        };
        let tenant = self.tenant.clone().or_else(of_request);
        tenant.ok_or_else(|| ErrorData::internal_error("the request has no tenant", None))
    }
}

/// A call of a tool.
struct Call<'a> {
    app: &'a Arc<App>,
    tenant: &'a Arc<Tenant>,
    arguments: JsonObject,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunPythonCode {
    python_code: String,
    #[serde(default)]
    global_variables: JsonObject,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunCell {
    session: String,
    python_code: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfSession {
    session: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfPath {
    session: String,
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    session: String,
    path: String,
    text: String,
}

impl Call<'_> {
    /// `None` if there is no such tool.
    async fn perform(self, name: &str) -> Option<Result<CallToolResult, Failure>> {
        Some(match name {
            "run_python_code" => self.run_python_code().await,
            "open_session" => self.open_session().await,
            "run_cell" => self.run_cell().await,
            "list_files" => self.list_files().await,
            "read_file" => self.read_file().await,
            "write_file" => self.write_file().await,
            "close_session" => self.close_session().await,
            _ => return None,
        })
    }

    fn arguments<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let arguments = Value::Object(self.arguments.clone());
        serde_json::from_value(arguments).map_err(|error| {
            Failure::Request(format!("the arguments are not what they must be: {error}"))
        })
    }

    /// A session of one cell, in which values of JSON are variables before it.
    async fn run_python_code(&self) -> Result<CallToolResult, Failure> {
        let RunPythonCode {
            python_code,
            global_variables,
        } = self.arguments()?;
        let running = self.tenant.begin_run(Variant::default())?;
        let tenant = Arc::clone(self.tenant);
        in_turn(self.app, self.tenant, running, move |turn| {
            let mut session = tenant.shelf.sandbox(Variant::default())?.session()?;
            turn.stop.reaches(session.interrupter());
            for (name, value) in global_variables {
                let set = session.set(name.clone(), value_of(value))?;
                if !set.outcome().is_ok() {
                    return Err(Failure::Request(format!(
                        "global_variables: `{name}` cannot be one"
                    )));
                }
            }
            let report = session.run(Cell::new(python_code))?;
            turn.ended(report.outcome());
            Ok(described(&report))
        })
        .await
    }

    async fn open_session(&self) -> Result<CallToolResult, Failure> {
        let open = self
            .app
            .sessions
            .open(self.tenant, self.app.session_idle)
            .await?;
        let minutes = self.app.session_idle.as_secs() / 60;
        Ok(text(format!(
            "session {}, which is closed after {minutes} minutes without use",
            open.id
        )))
    }

    async fn run_cell(&self) -> Result<CallToolResult, Failure> {
        let RunCell {
            session,
            python_code,
        } = self.arguments()?;
        let open = self.app.sessions.find(self.tenant, &session)?;
        let cell = Cell::new(python_code);
        Ok(described(
            &run_cell(self.app, self.tenant, open, cell, ()).await?,
        ))
    }

    async fn list_files(&self) -> Result<CallToolResult, Failure> {
        let OfPath { session, path } = self.arguments()?;
        let mut session = self.app.sessions.find(self.tenant, &session)?.turn().await;
        let entries = blocking(move || Ok(session.list(&path)?)).await?;
        let lines = entries
            .iter()
            .map(|entry| format!("{} {} {}", entry.kind, entry.size, entry.name));
        Ok(text(lines.collect::<Vec<_>>().join("\n")))
    }

    async fn read_file(&self) -> Result<CallToolResult, Failure> {
        let OfPath { session, path } = self.arguments()?;
        let mut session = self.app.sessions.find(self.tenant, &session)?.turn().await;
        let most = self.app.longest_answer;
        let bytes = blocking(move || {
            let (file, _) = session.open_read(&path)?;
            let mut bytes = Vec::new();
            let read = file.take(most).read_to_end(&mut bytes);
            read.map_err(|error| Failure::Request(format!("`{path}`: {error}")))?;
            Ok(bytes)
        });
        Ok(text(shortened(&String::from_utf8_lossy(&bytes.await?))))
    }

    async fn write_file(&self) -> Result<CallToolResult, Failure> {
        let WriteFile {
            session,
            path,
            text: contents,
        } = self.arguments()?;
        let mut session = self.app.sessions.find(self.tenant, &session)?.turn().await;
        blocking(move || {
            if let Some((directory, _)) = path.rsplit_once('/') {
                session.make_dir(directory, Parents::Made)?;
            }
            let mut file = session.open_write(&path, Contents::Replaced)?;
            let written = file.write_all(contents.as_bytes());
            written.map_err(|error| Failure::Request(format!("`{path}`: {error}")))?;
            Ok(text(format!("{} bytes are written", contents.len())))
        })
        .await
    }

    async fn close_session(&self) -> Result<CallToolResult, Failure> {
        let OfSession { session } = self.arguments()?;
        self.app.sessions.close(self.tenant, &session).await?;
        Ok(text("the session is closed".to_owned()))
    }
}

/// A value of JSON, as Python has it.
fn value_of(value: Value) -> sandfork::Value {
    match value {
        Value::Null => ().into(),
        Value::Bool(truth) => truth.into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            _ => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Value::String(text) => text.into(),
        Value::Array(items) => items.into_iter().map(value_of).collect::<Vec<_>>().into(),
        Value::Object(pairs) => sandfork::Value::dict(
            pairs
                .into_iter()
                .map(|(name, value)| (name, value_of(value))),
        ),
    }
}

/// What a model reads of a cell: how it ended, what it wrote, its value, and its pictures.
fn described(report: &CellReport) -> CallToolResult {
    let outcome = report.outcome();
    let mut said = format!("<status>{}</status>", outcome.status());
    // Text is for reading, and needs no quotes.
    let own = outcome
        .value()
        .and_then(|value| value.text(&report.buffers()).map(String::from));
    let traceback = outcome.error().map(|error| error.traceback.clone());
    let limit = outcome.limit().map(|hit| hit.name.key().to_owned());
    for (name, part) in [
        ("output", Some(outcome.stdout().into_owned())),
        ("error_output", Some(outcome.stderr().into_owned())),
        ("return_value", own.or_else(|| value_text(report))),
        ("error", traceback),
        ("limit", limit),
    ] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            // Writing to a string does not fail.
            let _ = write!(
                said,
                "\n<{name}>\n{}\n</{name}>",
                shortened(part.trim_end())
            );
        }
    }
    let mut content = vec![ContentBlock::text(said)];
    for display in report.shown() {
        let shown = representations(display);
        let picture = ["image/png", "image/jpeg"]
            .into_iter()
            .find_map(|kind| Some((kind, shown.get(kind)?)));
        if let Some((kind, Value::String(data))) = picture {
            content.push(ContentBlock::image(data.clone(), kind));
        }
    }
    if outcome.is_ok() {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    }
}

fn text(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// The beginning and the end of a long text.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= LONGEST_TEXT {
        return text.to_owned();
    }
    let half = LONGEST_TEXT / 2;
    let begin: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - half).collect();
    format!(
        "{begin}\n[{} characters are left out]\n{end}",
        count - LONGEST_TEXT
    )
}

/// The tools, with their arguments.
fn tools() -> Vec<Tool> {
    let session = json!({ "type": "string", "description": "The id that open_session returned" });
    let code = json!({ "type": "string", "description": "Python source; the value of its last expression is returned" });
    let path = json!({ "type": "string", "description": "A path in the session's work directory" });
    [
        (
            "run_python_code",
            "Run Python in a fresh sandbox, of which nothing is kept",
            json!({ "python_code": code, "global_variables": { "type": "object", "description": "Variables that the code has" } }),
            vec!["python_code"],
        ),
        ("open_session", "Open a session, which keeps variables and files from cell to cell", json!({}), vec![]),
        (
            "run_cell",
            "Run Python in an open session",
            json!({ "session": session, "python_code": code }),
            vec!["session", "python_code"],
        ),
        (
            "list_files",
            "List a directory of a session: kind, bytes and name of each entry",
            json!({ "session": session, "path": path }),
            vec!["session", "path"],
        ),
        ("read_file", "Read a text file of a session", json!({ "session": session, "path": path }), vec!["session", "path"]),
        (
            "write_file",
            "Write a text file of a session, with the directories above it",
            json!({ "session": session, "path": path, "text": { "type": "string" } }),
            vec!["session", "path", "text"],
        ),
        ("close_session", "Close a session", json!({ "session": session }), vec!["session"]),
    ]
    .into_iter()
    .map(|(name, description, properties, required)| {
        let mut schema = JsonObject::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties);
        schema.insert("required".to_owned(), required.into());
        schema.insert("additionalProperties".to_owned(), false.into());
        Tool::new(name, description, schema)
    })
    .collect()
}
