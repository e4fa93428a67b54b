//! Implements the tools.

use std::mem;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use sandfork::session::{Cell, CellReport, ResultMode, SessionState};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::content::{MAX_TEXT, described, quote_if_needed, text};
use super::variables::{set_failure, variables};
use crate::failure::Failure;
use crate::files::{self, put};
use crate::open::Open;
use crate::running::{in_turn, run_cell};
use crate::sandboxes::Variant;
use crate::server::App;
use crate::shortened;
use crate::tenant::Tenant;

/// The maximum number of variables of a call. Each is a message to the guest.
const MAX_VARIABLES: usize = 1000;

/// The text about an ended session. No tool restarts a session.
pub const ENDED: &str = "the session has ended, with its variables and files: close it (`close_session`), and open another (`open_session`)";

/// A tool call.
pub struct Call<'a> {
    pub app: &'a Arc<App>,
    pub tenant: &'a Arc<Tenant>,
    pub arguments: JsonObject,
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
struct SessionRequest {
    session: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathRequest {
    session: String,
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    session: String,
    #[serde(default = "work_directory")]
    path: String,
}

fn work_directory() -> String {
    ".".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    session: String,
    path: String,
    text: String,
}

impl Call<'_> {
    /// Performs the call. Returns `None` for an unknown tool.
    pub async fn perform(mut self, name: &str) -> Option<Result<CallToolResult, Failure>> {
        Some(match name {
            "run_python_code" => self.run_python_code().await,
            "open_session" => self.open_session().await,
            "fork_session" => self.fork_session().await,
            "run_cell" => self.run_cell().await,
            "list_files" => self.list_files().await,
            "read_file" => self.read_file().await,
            "write_file" => self.write_file().await,
            "close_session" => self.close_session().await,
            _ => return None,
        })
    }

    fn arguments<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let arguments = Value::Object(mem::take(&mut self.arguments));
        serde_json::from_value(arguments)
            .map_err(|error| Failure::Request(format!("invalid arguments: {error}")))
    }

    /// Runs the code in a fresh session, after setting the variables.
    async fn run_python_code(&mut self) -> Result<CallToolResult, Failure> {
        let RunPythonCode {
            python_code,
            global_variables,
        } = self.arguments()?;
        if global_variables.len() > MAX_VARIABLES {
            return Err(Failure::Request(format!(
                "global_variables: more than {MAX_VARIABLES}: pass them as one dict"
            )));
        }
        let running = self.tenant.begin_run(Variant::default())?;
        let tenant = Arc::clone(self.tenant);
        in_turn(self.app, self.tenant, running, move |turn| {
            // On this blocking thread, because a conversion of many values would delay other requests.
            let variables = variables(global_variables)?;
            let mut session = tenant.session()?;
            for (name, value) in variables {
                // The client has disconnected, so the cell below is cancelled at once.
                if turn.cancel.is_used() {
                    break;
                }
                let set = session.set(name.clone(), value);
                let set = set.map_err(|error| set_failure(&name, error))?;
                turn.used(set.outcome());
                if !set.outcome().is_ok() {
                    return Err(Failure::Request(format!(
                        "global_variables: `{name}` could not be set"
                    )));
                }
            }
            let report = turn.run(&mut session, cell(python_code), &mut ())?;
            described(&report, &tenant.budget)
        })
        .await
    }

    async fn open_session(&self) -> Result<CallToolResult, Failure> {
        let open = self
            .app
            .sessions
            .open(self.tenant, self.app.session_idle)
            .await?;
        Ok(self.opened(&open))
    }

    async fn fork_session(&mut self) -> Result<CallToolResult, Failure> {
        let SessionRequest { session } = self.arguments()?;
        let of = self.app.sessions.find(self.tenant, &session)?;
        Ok(self.opened(&*self.app.sessions.fork(&of).await?))
    }

    fn opened(&self, open: &Open) -> CallToolResult {
        let minutes = self.app.session_idle.as_secs() / 60;
        text(format!(
            "session {}, which is closed after {minutes} minutes without use",
            open.id
        ))
    }

    async fn run_cell(&mut self) -> Result<CallToolResult, Failure> {
        let RunCell {
            session,
            python_code,
        } = self.arguments()?;
        let open = self.app.sessions.find(self.tenant, &session)?;
        let budget = self.tenant.budget.clone();
        let answer = move |report: &CellReport| {
            let mut result = described(report, &budget)?;
            if report.session() == SessionState::Ended {
                result.content.push(ContentBlock::text(ENDED));
            }
            Ok(result)
        };
        run_cell(self.app, self.tenant, open, cell(python_code), (), answer).await
    }

    async fn list_files(&mut self) -> Result<CallToolResult, Failure> {
        let ListFiles { session, path } = self.arguments()?;
        let open = self.app.sessions.find(self.tenant, &session)?;
        open.with_session(move |session| {
            let entries = session.list(&path)?;
            let lines = entries.iter().map(|entry| {
                format!(
                    "{} {} {}",
                    entry.kind,
                    entry.size,
                    quote_if_needed(&entry.name)
                )
            });
            let lines = lines.collect::<Vec<_>>().join("\n");
            Ok(text(shortened(lines.as_bytes(), MAX_TEXT)))
        })
        .await
    }

    async fn read_file(&mut self) -> Result<CallToolResult, Failure> {
        let PathRequest { session, path } = self.arguments()?;
        let open = self.app.sessions.find(self.tenant, &session)?;
        let (most, budget) = (self.app.max_response, open.tenant.budget.clone());
        open.with_session(move |session| {
            let (bytes, _held) = files::read(most, &budget, session, &path)?;
            Ok(text(shortened(&bytes, MAX_TEXT)))
        })
        .await
    }

    async fn write_file(&mut self) -> Result<CallToolResult, Failure> {
        let WriteFile {
            session,
            path,
            text: contents,
        } = self.arguments()?;
        let open = self.app.sessions.find(self.tenant, &session)?;
        open.with_session(move |session| {
            put(session, &path, contents.as_bytes())?;
            Ok(text(format!("{} bytes written", contents.len())))
        })
        .await
    }

    async fn close_session(&mut self) -> Result<CallToolResult, Failure> {
        let SessionRequest { session } = self.arguments()?;
        self.app.sessions.close(self.tenant, &session).await?;
        Ok(text("the session is closed".to_owned()))
    }
}

/// Returns a cell whose value is shown to a model.
fn cell(source: String) -> Cell {
    Cell::new(source).last(ResultMode::Notebook)
}
