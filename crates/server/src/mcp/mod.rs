//! The Model Context Protocol (<https://modelcontextprotocol.io>): the sandbox as tools of a model, on `/mcp` and over the
//! standard streams (`sandfork mcp`).
//!
//! A session has an id that its tool returns, so that it depends on no connection.

mod call;
mod said;
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
use crate::http::{RawBody, keeping, memory_of_values};
use crate::server::App;
use crate::tenant::Tenant;

/// What the tools are for.
const INSTRUCTIONS: &str = "Runs Python in sealed sandboxes. `run_python_code` needs nothing and keeps nothing; \
    `open_session` is for code in several steps, which keeps its variables and files.";

/// Reading a message takes so many times the memory of its values: the library first keeps what any message may have, and then
/// makes one of it.
const TIMES_TO_READ: u64 = 3;
/// A string with escapes is longer than its text meanwhile, by so many times the body.
const TIMES_FOR_ESCAPES: u64 = 2;

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

/// Reads the body as those of other protocols, whose memory counts, and hands it on. The memory of the answer counts until it
/// is sent.
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
    held.grow(TIMES_TO_READ * memory_of_values(&bytes) + TIMES_FOR_ESCAPES * bytes.len() as u64)?;
    let response = next.run(Request::from_parts(parts, bytes.into())).await;
    let budget = held.budget.clone();
    drop(held);
    // A stream, whose length is not known, has no results of tools.
    let length = response.body().size_hint().exact();
    let held = budget.hold(length.unwrap_or_default())?;
    Ok(response.map(|body| keeping(body, held)))
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
            // What runs is stopped with it.
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        };
        match called {
            Some(Ok(result)) => Ok(result.into()),
            // The model reads why, and can call again.
            Some(Err(failure)) => {
                self.app.metrics.refused(&tenant.name, failure.kind());
                let said = match failure {
                    Failure::Ended(_) => ENDED.to_owned(),
                    failure => failure.message(),
                };
                Ok(CallToolResult::error(vec![ContentBlock::text(said)]).into())
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

/// The tools, with their arguments.
fn tools() -> Vec<Tool> {
    let session = json!({ "type": "string", "description": "The id that open_session or fork_session returned" });
    let code = json!({ "type": "string", "description": "Python source; the value of its last expression is returned" });
    let path = json!({ "type": "string", "description": "A path in the session's work directory" });
    let directory = json!({ "type": "string", "description": "A path in the session's work directory", "default": "." });
    [
        (
            "run_python_code",
            "Run Python in a fresh sandbox, of which nothing is kept",
            json!({ "python_code": code, "global_variables": { "type": "object", "description": "Variables that the code has" } }),
            vec!["python_code"],
        ),
        ("open_session", "Open a session, which keeps variables and files from cell to cell", json!({}), vec![]),
        (
            "fork_session",
            "Open another session that begins with the variables and files of this one, to try something that can be dropped",
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
            "List a directory of a session: kind, bytes and name of each entry",
            json!({ "session": session, "path": directory }),
            vec!["session"],
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
