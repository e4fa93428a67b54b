//! Contexts: sessions of a sandbox, and the code that prepares them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sandfork::session::{Cell, Session};
use serde_json::json;

use super::registry::StringMap;
use crate::failure::Failure;
use crate::open::Open;
use crate::running::{Turn, in_session};
use crate::server::App;
use crate::sessions::new_id;
use crate::tenant::Tenant;

/// A context of the code interpreter: a session.
#[derive(Clone, Debug)]
pub struct Context {
    pub id: String,
    /// The initial working directory.
    pub cwd: String,
    pub open: Arc<Open>,
    pub executions: Arc<AtomicU64>,
}

impl Context {
    /// Creates a context with a fresh session.
    pub async fn fresh(app: &App, tenant: &Arc<Tenant>, cwd: String) -> Result<Self, Failure> {
        let fresh = |tenant: &Tenant| Ok(tenant.session()?);
        let counts = tenant.open_session()?;
        let open = app.sessions.owned(counts, Duration::MAX, fresh).await?;
        Ok(Self {
            id: new_id()?,
            cwd,
            open,
            executions: Arc::default(),
        })
    }

    /// Sets the environment variables and the working directory.
    pub async fn prepare(
        &self,
        app: &Arc<App>,
        sandbox: (&Arc<Tenant>, &StringMap),
    ) -> Result<(), Failure> {
        let (tenant, environment) = sandbox;
        let mut code = environment_code(environment);
        if self.cwd != "/work" {
            let cwd = json!(self.cwd);
            code = format!(
                "{code}__import__('os').makedirs({cwd}, exist_ok=True)\n__import__('os').chdir({cwd})"
            );
        }
        self.set_up(app, tenant, code).await
    }

    /// Runs the server's own code in the session.
    pub async fn set_up(
        &self,
        app: &Arc<App>,
        tenant: &Arc<Tenant>,
        code: String,
    ) -> Result<(), Failure> {
        if code.is_empty() {
            return Ok(());
        }
        let open = Arc::clone(&self.open);
        in_session(app, tenant, open, move |session, turn| {
            set_up(session, turn, code)
        })
        .await
    }
}

/// Returns code that adds variables to the environment of a session.
pub fn environment_code(environment: &StringMap) -> String {
    if environment.is_empty() {
        return String::new();
    }
    // JSON string literals are valid Python.
    format!("__import__('os').environ.update({})\n", json!(environment))
}

/// Runs the server's own code in a session. Its client sees the result only on failure.
pub fn set_up(session: &mut Session, turn: &mut Turn, code: String) -> Result<(), Failure> {
    let report = turn.run(session, Cell::new(code).filename("<sandfork>"), &mut ())?;
    match crate::display::error(report.outcome()) {
        None => Ok(()),
        Some(error) if error.name == "FileNotFoundError" => Err(Failure::NotFound(error.value)),
        Some(error) => Err(Failure::Request(format!("{}: {}", error.name, error.value))),
    }
}
