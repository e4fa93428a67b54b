//! An open session: who uses it, and its end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use sandfork::session::{Interrupter, Programs, Session, Watcher};
use sandfork::{Admission, Cancel};
use tokio::sync::{Mutex as Turns, OwnedMappedMutexGuard, OwnedMutexGuard};

use crate::descriptors::SessionPlace;
use crate::failure::Failure;
use crate::locked;
use crate::meter::{Meter, Metered};
use crate::metrics::Metrics;
use crate::running::{blocking, when_admitted};
use crate::sessions::closed;
use crate::tenant::{Opened, Tenant};

/// An open session.
#[derive(Debug)]
pub struct Open {
    /// Its id.
    pub id: String,
    /// When it was opened.
    pub opened: SystemTime,
    /// How long it may be without use.
    pub idle: Duration,
    /// Whose it is.
    pub tenant: Arc<Tenant>,
    /// Requests for it take turns, in their order. Without it, the session has ended.
    session: Arc<Turns<Option<Session>>>,
    /// Interrupts the cell that runs.
    pub interrupter: Interrupter,
    end: Mutex<End>,
    /// Charges the tenant with what it uses between its cells.
    pub meter: Arc<Meter>,
    /// Its programs, which run beside its cells.
    pub programs: Programs,
    /// Watches its directories.
    pub watcher: Watcher,
    used: Mutex<Instant>,
    /// Until it has ended.
    counts: Mutex<Option<Counts>>,
}

/// Counts as a session: of its tenant, in the metrics, and for its descriptors.
#[derive(Debug)]
pub struct Counts {
    /// As one of its tenant.
    pub of_tenant: Opened,
    _place: SessionPlace,
    metrics: Arc<Metrics>,
}

impl Counts {
    /// Begins with that.
    pub fn new(of_tenant: Opened, place: SessionPlace, metrics: &Arc<Metrics>) -> Self {
        metrics.sessions.inc();
        Self {
            of_tenant,
            _place: place,
            metrics: Arc::clone(metrics),
        }
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.metrics.sessions.dec();
    }
}

/// How far its end has come.
#[derive(Debug, Default)]
struct End {
    is_near: bool,
    /// Ends what runs.
    running: Option<Cancel>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Before its meter, which charges for what its end counts. Another one has it if it is paused, and it uses nothing.
        if let Ok(mut session) = self.session.try_lock() {
            drop(session.take());
        }
    }
}

impl Open {
    /// A session that was opened just now, and closes when it was not used for `idle`.
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
            used: Mutex::new(Instant::now()),
            counts: Mutex::new(Some(counts)),
        }
    }

    /// Waits until no other request uses the session.
    ///
    /// # Errors
    /// If the session has ended.
    pub async fn turn(&self) -> Result<OwnedMappedMutexGuard<Option<Session>, Session>, Failure> {
        let mut turn = self.last_turn().await;
        if locked(&self.end).is_near {
            // Those that wait behind this request find none.
            closed(turn.take()).await;
        }
        OwnedMutexGuard::try_map(turn, Option::as_mut).map_err(|_| ended())
    }

    /// Waits until no other request uses the session, to take it away.
    pub async fn last_turn(&self) -> OwnedMutexGuard<Option<Session>> {
        Arc::clone(&self.session).lock_owned().await
    }

    /// Has [`close`](Self::close) end what runs now by this.
    ///
    /// # Errors
    /// If it is closed already.
    pub fn begin(&self, cancel: &Cancel) -> Result<(), Failure> {
        let mut end = locked(&self.end);
        if end.is_near {
            return Err(ended());
        }
        end.running = Some(cancel.clone());
        Ok(())
    }

    /// Nothing runs any more.
    pub fn done(&self) {
        locked(&self.end).running = None;
        self.meter.charge();
        self.is_used();
    }

    /// Ends what runs, and refuses what waits for its turn. Then the session ends, also while requests still hold this: one
    /// whose body is not complete may hold it for a day. Returns after that, unless something uses the session now.
    pub async fn close(self: &Arc<Self>) {
        let running = {
            let mut end = locked(&self.end);
            end.is_near = true;
            end.running.take()
        };
        if let Some(running) = running {
            running.cancel();
        }
        let (is_busy, open) = (self.is_busy(), Arc::clone(self));
        // A task of its own goes on if the client that closes the session leaves.
        let ending = tokio::spawn(async move {
            let session = open.last_turn().await.take();
            let counts = locked(&open.counts).take();
            closed((session, counts)).await;
        });
        if !is_busy {
            _ = ending.await;
        }
    }

    /// Does this with the session in its turn, on a thread that may block.
    ///
    /// # Errors
    /// If it fails, or the session has ended.
    pub async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Session) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut session = self.turn().await?;
        blocking(move || act(&mut session)).await
    }

    /// Does this as [`with`](Self::with), when it is also the tenant's turn: it takes a processor for a while.
    ///
    /// # Errors
    /// If the tenant's quota is used up, it fails, or the session has ended.
    pub async fn with_turn<T: Send + 'static>(
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

    /// Whether a request uses it.
    pub fn is_busy(&self) -> bool {
        self.session.try_lock().is_err()
    }

    /// Whether it is paused (`session.pause_after` of its policy).
    pub fn is_paused(&self) -> bool {
        let session = self.session.try_lock();
        session.is_ok_and(|session| session.as_ref().is_some_and(Session::is_paused))
    }

    /// Restarts its idle time.
    pub fn is_used(&self) {
        *locked(&self.used) = Instant::now();
    }

    /// Whether it was not used for as long as it may be.
    pub fn is_idle(&self) -> bool {
        let used = *locked(&self.used);
        used.elapsed() >= self.idle && !self.is_busy()
    }
}

/// A session that ended while a request waited for its turn.
pub fn ended() -> Failure {
    Failure::NotFound("the session has ended".to_owned())
}
