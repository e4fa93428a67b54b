//! Runs and sessions block a thread. This has threads do it, and ends what no client waits for any more.

use std::sync::Arc;

use opentelemetry::Context;
use sandfork::session::{Cell, CellReport, Session};
use sandfork::{Admission, Cancel, ErrorKind, Outcome, OutputSink, Request};
use tokio::task::spawn_blocking;

use crate::descriptors::none_left;
use crate::failure::Failure;
use crate::open::Open;
use crate::sandboxes::Variant;
use crate::server::App;
use crate::tenant::{Running, Tenant};
use crate::traces;

/// Does what blocks on a thread that may.
///
/// # Errors
/// If it fails, or panics.
pub async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    spawn_blocking(act).await.unwrap_or_else(|panic| {
        tracing::error!("a thread panicked: {panic}");
        Err(Failure::Mistake)
    })
}

/// Runs a request in a fresh sandbox of this tenant, and hands its output on as it comes. What `answer` makes of the outcome
/// may take a processor for a while, as guests decide, and belongs to the turn. If the client goes away meanwhile, the run
/// is cancelled.
///
/// # Errors
/// If the tenant may not run it, no sandbox can be provided, or it cannot be answered.
pub async fn run<T: Send + 'static>(
    app: &Arc<App>,
    tenant: &Arc<Tenant>,
    variant: Variant,
    request: Request,
    mut sink: impl OutputSink + Send + 'static,
    answer: impl FnOnce(Outcome) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let running = tenant.begin_run(variant)?;
    let tenant = Arc::clone(tenant);
    in_turn(app, &Arc::clone(&tenant), running, move |turn| {
        let sandbox = tenant.sandbox(variant).map_err(|error| {
            // The tenant's own policy has been used before.
            if error.kind() == ErrorKind::Policy && variant.memory.is_some() {
                // It was set for a request, and not on a command line.
                let error = error.to_string();
                Failure::Request(error.trim_start_matches("--set: ").to_owned())
            } else {
                error.into()
            }
        })?;
        let request = request.cancel(&turn.cancel);
        let outcome = sandbox.run_streaming(request, &mut sink)?;
        turn.ended(&outcome);
        answer(outcome)
    })
    .await
}

/// Runs a cell of an open session when those before it have ended, and hands its output on as it comes. `answer` is as with
/// [`run`]. If the client goes away meanwhile, the cell is interrupted.
///
/// # Errors
/// If the tenant may not run it, the session has ended, or it cannot be answered.
pub async fn run_cell<T: Send + 'static>(
    app: &Arc<App>,
    tenant: &Arc<Tenant>,
    open: Arc<Open>,
    cell: Cell,
    mut sink: impl OutputSink + Send + 'static,
    answer: impl FnOnce(&CellReport) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    in_session(app, tenant, open, move |session, turn| {
        let report = turn.run(session, cell, &mut sink)?;
        answer(&report)
    })
    .await
}

/// Does what runs guest code in an open session, as [`run_cell`] does.
///
/// # Errors
/// If the tenant may not run it, or what is done fails.
pub async fn in_session<T: Send + 'static>(
    app: &Arc<App>,
    tenant: &Arc<Tenant>,
    open: Arc<Open>,
    act: impl FnOnce(&mut Session, &mut Turn) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    open.meter.charge();
    let running = tenant.begin_cell()?;
    let mut session = open.turn().await?;
    in_turn(app, tenant, running, move |turn| {
        open.begin(&turn.cancel)?;
        // A session whose worker is gone says so to later requests too, until it is restarted or closed.
        let done = act(&mut session, turn);
        open.done();
        done
    })
    .await
}

/// Does what runs guest code when it is the tenant's turn. If the client goes away meanwhile, that is stopped.
///
/// # Errors
/// If the turn does not come, or what is done fails.
pub async fn in_turn<T: Send + 'static>(
    app: &Arc<App>,
    tenant: &Arc<Tenant>,
    running: impl Into<Arc<Running>>,
    act: impl FnOnce(&mut Turn) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (of, tenant) = (Arc::clone(app), Arc::clone(tenant));
    let (client, running, answering) =
        (Arc::clone(&tenant.name), running.into(), Context::current());
    when_admitted(&app.admission, client, move |cancel| {
        act(&mut Turn {
            app: of,
            tenant,
            _running: running,
            answering,
            cancel: cancel.clone(),
        })
    })
    .await
}

/// Does what takes a processor when it is the client's turn. If the wait is left before, it is not done.
///
/// # Errors
/// If the turn does not come, or what is done fails.
pub async fn when_admitted<T: Send + 'static>(
    admission: &Admission,
    client: Arc<str>,
    act: impl FnOnce(&Cancel) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let cancel = Cancel::new().map_err(|_| none_left())?;
    let _cancelled_with_this = CancelOnDrop(cancel.clone());
    let admission = admission.clone();
    blocking(move || admission.admit(&client, Some(&cancel), || act(&cancel))?).await
}

/// A turn to run guest code.
#[derive(Debug)]
pub struct Turn {
    /// What handlers share.
    pub app: Arc<App>,
    /// Whose turn it is.
    pub tenant: Arc<Tenant>,
    /// Counts until the turn is over.
    _running: Arc<Running>,
    /// The span of the answer that it is for.
    answering: Context,
    /// Ends what runs, when the client has gone.
    pub cancel: Cancel,
}

impl Turn {
    /// Runs a cell, and counts it.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn run(
        &mut self,
        session: &mut Session,
        cell: Cell,
        sink: &mut dyn OutputSink,
    ) -> Result<CellReport, Failure> {
        let report = session.run_streaming(cell.cancel(&self.cancel), sink)?;
        self.ended(report.outcome());
        Ok(report)
    }

    /// Counts the processor time of what is no run or cell of its own.
    pub fn used(&self, outcome: &Outcome) {
        self.tenant.used(outcome.usage().cpu);
    }

    /// Counts and traces a run or a cell that has ended.
    pub fn ended(&mut self, outcome: &Outcome) {
        self.used(outcome);
        self.app.metrics.ended(&self.tenant.name, outcome);
        self.tenant.activity().ended(outcome);
        traces::ended(&self.answering, outcome);
    }
}

/// Cancels what runs when the client that waits for it has gone. What is over stays as it is.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
