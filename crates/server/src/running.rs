//! Runs blocking work on blocking threads, in the order of admission, and cancels work whose client has disconnected.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use opentelemetry::Context;
use sandfork::session::{Cell, CellReport, Session};
use sandfork::{Admission, Cancel, ErrorKind, Outcome, OutputSink, Request};
use tokio::task::{block_in_place, spawn_blocking};

use crate::descriptors::no_descriptors;
use crate::failure::Failure;
use crate::open::Open;
use crate::sandboxes::Variant;
use crate::server::App;
use crate::tenant::{Running, Tenant};
use crate::traces;

/// Runs a function on a blocking thread.
///
/// # Errors
/// Returns an error if the function fails or panics.
pub async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    spawn_blocking(act).await.unwrap_or_else(|panic| {
        tracing::error!("a thread panicked: {panic}");
        Err(Failure::Internal)
    })
}

/// Polls a future whose polls take long. Meanwhile, other threads run the tasks of this thread. Needs the
/// multi-threaded runtime.
pub async fn compute_heavy<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| block_in_place(|| future.as_mut().poll(context))).await
}

/// Runs a request in a fresh sandbox of this tenant, and passes its output to the sink as it arrives. `answer` is part
/// of the tenant's turn, because guests decide how much CPU time it takes. If the client disconnects, the run is
/// cancelled.
///
/// # Errors
/// Returns an error if the quota is used up, no sandbox can be provided, or `answer` fails.
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
            // The tenant's own policy is known to be valid, so the error is due to the request's memory limit.
            if error.kind() == ErrorKind::Policy && variant.memory.is_some() {
                // The limit came from a request rather than a command line.
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

/// Runs a cell of an open session after the previous ones, and passes its output to the sink as it arrives. `answer` is
/// as in [`run`]. If the client disconnects, the cell is interrupted.
///
/// # Errors
/// Returns an error if the quota is used up, the session has ended, or `answer` fails.
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

/// Runs a function that executes guest code in an open session, like [`run_cell`].
///
/// # Errors
/// Returns an error if the quota is used up, or the function fails.
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
        // If the worker is gone, later requests fail too, until the session is restarted or closed.
        let done = act(&mut session, turn);
        open.done();
        done
    })
    .await
}

/// Runs a function that executes guest code when the tenant is admitted. If the client disconnects, it is cancelled.
///
/// # Errors
/// Returns an error if the tenant is not admitted, or the function fails.
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

/// Runs a CPU-intensive function when the client is admitted. If the future is dropped before that, the function does
/// not run.
///
/// # Errors
/// Returns an error if the client is not admitted, or the function fails.
pub async fn when_admitted<T: Send + 'static>(
    admission: &Admission,
    client: Arc<str>,
    act: impl FnOnce(&Cancel) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let cancel = Cancel::new().map_err(|_| no_descriptors())?;
    let _cancelled_with_this = CancelOnDrop(cancel.clone());
    let admission = admission.clone();
    blocking(move || admission.admit(&client, Some(&cancel), || act(&cancel))?).await
}

/// A turn to execute guest code.
#[derive(Debug)]
pub struct Turn {
    /// The shared state of the server.
    pub app: Arc<App>,
    /// The tenant whose turn it is.
    pub tenant: Arc<Tenant>,
    /// Counts the run until the turn is over.
    _running: Arc<Running>,
    /// The span of the response that the turn is for.
    answering: Context,
    /// Cancels the run when the client disconnects.
    pub cancel: Cancel,
}

impl Turn {
    /// Runs a cell, and records its outcome.
    ///
    /// # Errors
    /// Returns an error if the session has ended.
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

    /// Charges the CPU time of guest code that is not a run or a cell of its own.
    pub fn used(&self, outcome: &Outcome) {
        self.tenant.used(outcome.usage().cpu);
    }

    /// Records and traces a run or a cell that has ended.
    pub fn ended(&mut self, outcome: &Outcome) {
        self.used(outcome);
        self.app.metrics.ended(&self.tenant.name, outcome);
        self.tenant.activity().ended(outcome);
        traces::ended(&self.answering, outcome);
    }
}

/// Cancels the run when dropped. Has no effect on a run that has ended.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::compute_heavy;

    /// The poll on the only worker thread ends after another task has run.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_during_a_long_poll() {
        let (sender, receiver) = channel();
        let compute = async move { receiver.recv_timeout(Duration::from_secs(60)) };
        let computes = tokio::spawn(compute_heavy(compute));
        let sends = tokio::spawn(async move { sender.send(()) });
        assert_eq!(computes.await.expect("it does not panic"), Ok(()));
        sends
            .await
            .expect("it does not panic")
            .expect("it is received");
    }
}
