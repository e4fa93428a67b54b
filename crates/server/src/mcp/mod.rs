//! The Model Context Protocol (<https://modelcontextprotocol.io>): serves sandboxes as tools, on `/mcp` and on standard
//! input and output (`sandfork mcp`).
//!
//! A tool opens a session and returns its id, so that sessions are independent of connections.

mod call;
mod content;
mod variables;

use std::sync::Arc;

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{FromRequest, Request, State};
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use opentelemetry::Context;
use opentelemetry::trace::FutureExt;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::json;

use self::call::{Call, ENDED};
use crate::failure::Failure;
use crate::http::{BLOCKING_THRESHOLD, RawBody, keep_until_sent, memory_of_values};
use crate::running::compute_heavy;
use crate::server::App;
use crate::tenant::Tenant;

/// The instructions for the model.
const INSTRUCTIONS: &str = "Runs Python in sealed sandboxes. Use `run_python_code` for independent code; \
    use `open_session` for code in several steps that share variables and files.";

/// The factor by which parsing a message exceeds the memory of its values: the library first parses into a generic
/// value, then converts it.
const PARSE_FACTOR: u64 = 3;
/// The factor by which strings with escapes exceed the length of the body while they are parsed.
const ESCAPE_FACTOR: u64 = 2;

/// The tools. The tenant is that of the connection, or `None` over HTTP, where each request has its own.
#[derive(Clone, Debug)]
pub struct Tools {
    app: Arc<App>,
    tenant: Option<Arc<Tenant>>,
}

/// Returns the route. The caller adds the middleware that identifies tenants.
pub fn routes(app: &Arc<App>, max_body: usize) -> Router<Arc<App>> {
    let tools = Tools {
        app: Arc::clone(app),
        tenant: None,
    };
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(max_body);
    // Any host name is accepted where requests need a token, which a page in a browser does not have.
    let config = if app.authenticator.has_tokens() {
        config.disable_allowed_hosts()
    } else {
        config.enforce_origin_validation()
    };
    let service = StreamableHttpService::new(
        move || Ok(tools.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    Router::new()
        .route_service("/mcp", service)
        .layer(from_fn_with_state(Arc::clone(app), in_budget))
}

/// Middleware that reads the body within the memory budget, and reserves the memory of the response until it is sent.
async fn in_budget(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let mut whole = Request::new(body);
    whole.headers_mut().clone_from(&parts.headers);
    whole.extensions_mut().clone_from(&parts.extensions);
    let RawBody { bytes, mut held } = RawBody::from_request(whole, &app).await?;
    held.grow(PARSE_FACTOR * memory_of_values(&bytes) + ESCAPE_FACTOR * bytes.len() as u64)?;
    // The library parses the body when the future is polled.
    let takes_long = bytes.len() > BLOCKING_THRESHOLD;
    let answering = next.run(Request::from_parts(parts, bytes.into()));
    let response = if takes_long {
        compute_heavy(answering).await
    } else {
        answering.await
    };
    let budget = held.budget.clone();
    drop(held);
    // A stream has no known length, but it carries no tool results.
    let length = response.body().size_hint().exact();
    let held = budget.hold(length.unwrap_or_default())?;
    Ok(response.map(|body| keep_until_sent(body, held)))
}

/// Serves the client on standard input and output, until it closes them.
///
/// # Errors
/// Returns an error if the client violates the protocol.
pub async fn serve_stdio(app: Arc<App>, tenant: Arc<Tenant>) -> Result<(), String> {
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
        let parts = context.extensions.get::<Parts>();
        let tenant = self.tenant_of(parts)?;
        let answering = parts.and_then(|parts| parts.extensions.get::<Context>());
        let answering = answering.cloned().unwrap_or_default();
        let arguments = request.arguments.unwrap_or_default();
        let call = Call {
            app: &self.app,
            tenant: &tenant,
            arguments,
        };
        let called = tokio::select! {
            called = call.perform(&request.name).with_context(answering) => called,
            // Dropping the call cancels what it runs.
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        };
        match called {
            Some(Ok(result)) => Ok(result.into()),
            // A failure is a tool result, so that the model can read it and retry.
            Some(Err(failure)) => {
                self.app.metrics.refused(&tenant.name, failure.kind());
                let message = match failure {
                    Failure::Ended(_) => ENDED.to_owned(),
                    failure => failure.message(),
                };
                Ok(CallToolResult::error(vec![ContentBlock::text(message)]).into())
            }
            None => Err(ErrorData::invalid_params(
                format!("there is no tool `{}`", request.name),
                None,
            )),
        }
    }
}

impl Tools {
    fn tenant_of(&self, parts: Option<&Parts>) -> Result<Arc<Tenant>, ErrorData> {
        let of_request = || parts?.extensions.get::<Arc<Tenant>>().cloned();
        let tenant = self.tenant.clone().or_else(of_request);
        tenant.ok_or_else(|| ErrorData::internal_error("the request has no tenant", None))
    }
}

/// Returns the definitions of the tools.
fn tools() -> Vec<Tool> {
    let session = json!({ "type": "string", "description": "The id that open_session or fork_session returned" });
    let code = json!({ "type": "string", "description": "Python source; the value of its last expression is returned" });
    let path = json!({ "type": "string", "description": "A path in the session's work directory" });
    let directory = json!({ "type": "string", "description": "A path in the session's work directory", "default": "." });
    [
        (
            "run_python_code",
            "Run Python in a fresh sandbox, which is discarded afterwards",
            json!({ "python_code": code, "global_variables": { "type": "object", "description": "Variables to define before the code runs" } }),
            vec!["python_code"],
        ),
        ("open_session", "Open a session, which keeps variables and files from cell to cell", json!({}), vec![]),
        (
            "fork_session",
            "Open another session with a copy of this session's variables and files, for example to try something out",
            json!({ "session": session }),
            vec!["session"],
        ),
        (
            "run_cell",
            "Run Python in an open session",
            json!({ "session": session, "python_code": code }),
            vec!["session", "python_code"],
        ),
        (
            "list_files",
            "List a directory of a session: kind, size in bytes and name of each entry",
            json!({ "session": session, "path": directory }),
            vec!["session"],
        ),
        ("read_file", "Read a text file of a session", json!({ "session": session, "path": path }), vec!["session", "path"]),
        (
            "write_file",
            "Write a text file of a session, creating its parent directories",
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
