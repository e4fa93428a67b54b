//! Contexts of sandboxes: sessions, and the code that prepares them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sandfork::session::{Cell, Session};
use serde_json::json;

use super::registry::Texts;
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
    /// The directory that it begins in.
    pub cwd: String,
    pub open: Arc<Open>,
    pub executions: Arc<AtomicU64>,
}

impl Context {
    /// A context of a fresh session.
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

    /// Gives it its environment and its directory.
    pub async fn prepare(
        &self,
        app: &Arc<App>,
        sandbox: (&Arc<Tenant>, &Texts),
    ) -> Result<(), Failure> {
        let (tenant, environment) = sandbox;
        let mut code = with_environment(environment);
        if self.cwd != "/work" {
            let cwd = json!(self.cwd);
            code = format!(
                "{code}__import__('os').makedirs({cwd}, exist_ok=True)\n__import__('os').chdir({cwd})"
            );
        }
        self.set_up(app, tenant, code).await
    }

    /// Runs code of the server's own in it.
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

/// Code that adds variables to the environment of a session.
pub fn with_environment(environment: &Texts) -> String {
    if environment.is_empty() {
        return String::new();
    }
    // Texts of JSON are texts of Python.
    format!("__import__('os').environ.update({})\n", json!(environment))
}

/// Runs code of the server's own in a session, which its client sees only if it fails.
pub fn set_up(session: &mut Session, turn: &mut Turn, code: String) -> Result<(), Failure> {
    let report = turn.run(session, Cell::new(code).filename("<sandfork>"), &mut ())?;
    match crate::display::error(report.outcome()) {
        None => Ok(()),
        Some(error) if error.name == "FileNotFoundError" => Err(Failure::NotFound(error.value)),
        Some(error) => Err(Failure::Request(format!("{}: {}", error.name, error.value))),
    }
}
