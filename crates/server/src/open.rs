//! An open session: serializes its users, and closes it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use sandfork::session::{Interrupter, Programs, Session, Watcher};
use sandfork::{Admission, Cancel};
use tokio::sync::{Mutex as Turns, OwnedMappedMutexGuard, OwnedMutexGuard};

use crate::descriptors::SessionSlot;
use crate::failure::Failure;
use crate::locked;
use crate::meter::{Meter, Metered};
use crate::metrics::Metrics;
use crate::running::{blocking, when_admitted};
use crate::sessions::drop_blocking;
use crate::tenant::{Opened, Tenant};

/// An open session.
#[derive(Debug)]
pub struct Open {
    /// The id of the session.
    pub id: String,
    /// The time at which it was opened.
    pub opened: SystemTime,
    /// The idle timeout.
    pub idle: Duration,
    /// The tenant that owns it.
    pub tenant: Arc<Tenant>,
    /// The session, which requests use in the order of their arrival; `None` once it has ended.
    session: Arc<Turns<Option<Session>>>,
    /// Interrupts the running cell.
    pub interrupter: Interrupter,
    end: Mutex<End>,
    /// Charges the tenant for CPU time between cells.
    pub meter: Arc<Meter>,
    /// The programs that run next to the cells.
    pub programs: Programs,
    /// Watches directories of the session.
    pub watcher: Watcher,
    last_used: Mutex<Instant>,
    /// The counted session, until it has ended.
    counts: Mutex<Option<Counts>>,
}

/// The accounting of an open session: in its tenant's quota, in the metrics, and in the descriptor limit.
#[derive(Debug)]
pub struct Counts {
    /// The session in its tenant's quota.
    pub of_tenant: Opened,
    _slot: SessionSlot,
    metrics: Arc<Metrics>,
}

impl Counts {
    /// Counts an open session.
    pub fn new(of_tenant: Opened, slot: SessionSlot, metrics: &Arc<Metrics>) -> Self {
        metrics.sessions.inc();
        Self {
            of_tenant,
            _slot: slot,
            metrics: Arc::clone(metrics),
        }
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.metrics.sessions.dec();
    }
}

/// The state of the end of a session.
#[derive(Debug, Default)]
struct End {
    has_begun: bool,
    /// Cancels the active run.
    running: Option<Cancel>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Drop the session before its meter, which charges for the session's end. If the session is paused, it has
        // another owner and uses nothing.
        if let Ok(mut session) = self.session.try_lock() {
            drop(session.take());
        }
    }
}

impl Open {
    /// Wraps a session that was just opened, and that is closed after `idle` without use.
    pub fn new(id: String, idle: Duration, (session, meter): Metered, counts: Counts) -> Self {
        Self {
            id,
            opened: SystemTime::now(),
            idle,
            tenant: Arc::clone(&counts.of_tenant.tenant),
            meter,
            interrupter: session.interrupter(),
            end: Mutex::default(),
            programs: session.programs(),
            watcher: session.watcher(),
            session: Arc::new(Turns::new(Some(session))),
            last_used: Mutex::new(Instant::now()),
            counts: Mutex::new(Some(counts)),
        }
    }

    /// Waits for exclusive use of the session.
    ///
    /// # Errors
    /// Returns an error if the session has ended.
    pub async fn turn(&self) -> Result<OwnedMappedMutexGuard<Option<Session>, Session>, Failure> {
        let mut turn = self.exclusive().await;
        if locked(&self.end).has_begun {
            // Requests that wait behind this one find no session.
            drop_blocking(turn.take()).await;
        }
        OwnedMutexGuard::try_map(turn, Option::as_mut).map_err(|_| ended())
    }

    /// Waits for exclusive use of the session, to take the session out.
    pub async fn exclusive(&self) -> OwnedMutexGuard<Option<Session>> {
        Arc::clone(&self.session).lock_owned().await
    }

    /// Registers the active run, which [`close`](Self::close) cancels.
    ///
    /// # Errors
    /// Returns an error if the session is already closed.
    pub fn begin(&self, cancel: &Cancel) -> Result<(), Failure> {
        let mut end = locked(&self.end);
        if end.has_begun {
            return Err(ended());
        }
        end.running = Some(cancel.clone());
        Ok(())
    }

    /// Unregisters the active run.
    pub fn done(&self) {
        locked(&self.end).running = None;
        self.meter.charge();
        self.touch();
    }

    /// Cancels the active run, rejects the requests that wait, and ends the session, even while requests still hold a
    /// reference: a request with an incomplete body may hold it for long. Waits for the end, unless the session is in
    /// use.
    pub async fn close(self: &Arc<Self>) {
        let running = {
            let mut end = locked(&self.end);
            end.has_begun = true;
            end.running.take()
        };
        if let Some(running) = running {
            running.cancel();
        }
        let (is_busy, open) = (self.is_busy(), Arc::clone(self));
        // A separate task completes even if the client that closes the session disconnects.
        let ending = tokio::spawn(async move {
            let session = open.exclusive().await.take();
            let counts = locked(&open.counts).take();
            drop_blocking((session, counts)).await;
        });
        if !is_busy {
            _ = ending.await;
        }
    }

    /// Runs a function with exclusive use of the session, on a blocking thread.
    ///
    /// # Errors
    /// Returns an error if the function fails or the session has ended.
    pub async fn with_session<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Session) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut session = self.turn().await?;
        blocking(move || act(&mut session)).await
    }

    /// Runs a CPU-intensive function like [`with_session`](Self::with_session), once the tenant is admitted.
    ///
    /// # Errors
    /// Returns an error if the tenant's quota is used up, the function fails, or the session has ended.
    pub async fn with_admission<T: Send + 'static>(
        &self,
        admission: &Admission,
        act: impl FnOnce(&mut Session) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.meter.charge();
        let running = self.tenant.begin_setup()?;
        let mut session = self.turn().await?;
        when_admitted(admission, Arc::clone(&self.tenant.name), move |_| {
            let _running = running;
            act(&mut session)
        })
        .await
    }

    /// Returns whether a request is using the session.
    pub fn is_busy(&self) -> bool {
        self.session.try_lock().is_err()
    }

    /// Returns whether the session is paused (`session.pause_after` of its policy).
    pub fn is_paused(&self) -> bool {
        let session = self.session.try_lock();
        session.is_ok_and(|session| session.as_ref().is_some_and(Session::is_paused))
    }

    /// Restarts the idle timeout.
    pub fn touch(&self) {
        *locked(&self.last_used) = Instant::now();
    }

    /// Returns whether the idle timeout is over.
    pub fn is_idle(&self) -> bool {
        let last_used = *locked(&self.last_used);
        last_used.elapsed() >= self.idle && !self.is_busy()
    }
}

/// Returns the failure of a request whose session ended before its turn.
pub fn ended() -> Failure {
    Failure::NotFound("the session has ended".to_owned())
}
