//! The open sessions of all tenants, by their ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use sandfork::Cancel;
use sandfork::session::{Interrupter, Programs, Session, Watcher};
use tokio::sync::{Mutex as Turns, OwnedMappedMutexGuard, OwnedMutexGuard};

use crate::failure::Failure;
use crate::http::Budget;
use crate::locked;
use crate::meter::{Meter, Meters};
use crate::metrics::Metrics;
use crate::running::blocking;
use crate::tenant::{Opened, Tenant};

/// The open sessions.
#[derive(Debug)]
pub struct Sessions {
    open: Mutex<HashMap<String, Arc<Open>>>,
    /// What they use between cells, also those that are their owners'.
    pub meters: Meters,
    metrics: Arc<Metrics>,
}

/// An open session.
#[derive(Debug)]
pub struct Open {
    /// Its id.
    pub id: String,
    /// When it was opened.
    pub opened: SystemTime,
    idle: Duration,
    tenant: Arc<Tenant>,
    /// Requests for it take turns, in their order. Without it, the session has ended.
    session: Arc<Turns<Option<Session>>>,
    interrupter: Interrupter,
    end: Mutex<End>,
    /// What it uses between its cells.
    meter: Arc<Meter>,
    /// Its programs, which run beside its cells.
    pub programs: Programs,
    /// Watches its directories.
    pub watcher: Watcher,
    used: Mutex<Instant>,
    /// Until it has ended.
    counts: Mutex<Option<Counts>>,
}

/// Counts as a session, of its tenant and in the metrics.
#[derive(Debug)]
struct Counts {
    _of_tenant: Opened,
    metrics: Arc<Metrics>,
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

impl Sessions {
    /// None is open yet.
    pub fn new(metrics: &Arc<Metrics>) -> Self {
        Self {
            open: Mutex::default(),
            meters: Meters::new(metrics),
            metrics: Arc::clone(metrics),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Open>>> {
        locked(&self.open)
    }

    /// Opens a session, which is closed when it has not been used for `idle`.
    ///
    /// # Errors
    /// If the tenant may have no more, or no sandbox can be provided.
    pub async fn open(&self, tenant: &Arc<Tenant>, idle: Duration) -> Result<Arc<Open>, Failure> {
        let fresh = |tenant: &Tenant| Ok(tenant.sandboxes.sandbox(<_>::default())?.session()?);
        let open = self.owned(tenant.open_session()?, idle, fresh).await?;
        Ok(self.kept(open))
    }

    /// Opens another session, which begins with the state of this one.
    ///
    /// # Errors
    /// If the tenant may have no more, or the state cannot be copied.
    pub async fn fork(&self, of: &Open) -> Result<Arc<Open>, Failure> {
        let counts = of.tenant.open_session()?;
        let taken = of.with(move |session| Ok((session.snapshot()?, counts)));
        let (snapshot, counts) = taken.await?;
        let open = self.owned(counts, of.idle, move |_| Ok(snapshot.fork()?));
        Ok(self.kept(open.await?))
    }

    fn kept(&self, open: Arc<Open>) -> Arc<Open> {
        self.all().insert(open.id.clone(), Arc::clone(&open));
        open
    }

    /// Opens a session that is its owner's: it is not found here, and is closed when its owner drops it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub async fn owned(
        &self,
        counts: Opened,
        idle: Duration,
        make: impl FnOnce(&Tenant) -> Result<Session, Failure> + Send + 'static,
    ) -> Result<Arc<Open>, Failure> {
        let (id, tenant) = (new_id()?, Arc::clone(counts.tenant()));
        // It counts as long as it is being made, also for a client that has left.
        let session = blocking(move || Ok((make(counts.tenant())?, counts)));
        let (session, counts) = session.await?;
        self.metrics.sessions.inc();
        Ok(Arc::new(Open {
            id,
            opened: SystemTime::now(),
            idle,
            meter: self.meters.add(&tenant, &session),
            tenant,
            interrupter: session.interrupter(),
            end: Mutex::default(),
            programs: session.programs(),
            watcher: session.watcher(),
            session: Arc::new(Turns::new(Some(session))),
            used: Mutex::new(Instant::now()),
            counts: Mutex::new(Some(Counts {
                _of_tenant: counts,
                metrics: Arc::clone(&self.metrics),
            })),
        }))
    }

    /// A session of this tenant. That another tenant has one of this id is not said.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self, tenant: &Tenant, id: &str) -> Result<Arc<Open>, Failure> {
        let all = self.all();
        let found = all.get(id).filter(|open| open.tenant.name == tenant.name);
        let found =
            found.ok_or_else(|| Failure::NotFound("there is no such session".to_owned()))?;
        found.is_used();
        Ok(Arc::clone(found))
    }

    /// The sessions of this tenant, the oldest first.
    pub fn of(&self, tenant: &Tenant) -> Vec<Arc<Open>> {
        let all = self.all();
        let of_tenant = all.values().filter(|open| open.tenant.name == tenant.name);
        let mut sessions: Vec<_> = of_tenant.cloned().collect();
        sessions.sort_by_key(|open| open.opened);
        sessions
    }

    /// Closes a session of this tenant. What it runs ends.
    ///
    /// # Errors
    /// If there is none.
    pub async fn close(&self, tenant: &Tenant, id: &str) -> Result<(), Failure> {
        let found = self.find(tenant, id)?;
        self.all().remove(&found.id);
        found.close().await;
        Ok(())
    }

    /// Closes the sessions that were not used for as long as they may be. Does not wait for their ends.
    pub fn close_idle(&self) {
        // A request that finds one before this uses it, and one that comes later does not find it.
        let idle: Vec<_> = self.all().extract_if(|_, open| open.is_idle()).collect();
        for (_, open) in idle {
            tokio::spawn(async move { open.close().await });
        }
    }
}

/// Drops what owns sessions, on a thread that may wait: they end there.
pub async fn closed<T: Send + 'static>(owner: T) {
    _ = blocking(move || {
        drop(owner);
        Ok(())
    })
    .await;
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
        self.charge();
        self.is_used();
    }

    /// Ends what runs, and refuses what waits for its turn. Then the session ends, whoever still holds this: a request
    /// whose body is not complete may do so for a day. Returns after that, unless something uses the session now.
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

    /// Charges the tenant with what the session has used between its cells.
    pub fn charge(&self) {
        self.meter.charge();
    }

    /// The memory of its tenant's bodies and answers.
    pub fn budget(&self) -> Budget {
        self.tenant.budget.clone()
    }

    /// Interrupts the cell that runs.
    pub fn interrupt(&self) {
        self.interrupter.interrupt();
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

    fn is_idle(&self) -> bool {
        let used = *locked(&self.used);
        used.elapsed() >= self.idle && !self.is_busy()
    }
}

/// A session that ended while a request waited for its turn.
pub fn ended() -> Failure {
    Failure::NotFound("the session has ended".to_owned())
}

/// An id that cannot be guessed: letters and digits, as clients of other protocols expect it.
///
/// # Errors
/// If the kernel has no random bytes.
pub fn new_id() -> Result<String, Failure> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!("the kernel gives no random bytes: {error}");
        Failure::Mistake
    })?;
    let letters = bytes
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    Ok(letters.collect())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::sync::oneshot;

    use super::*;
    use crate::account::Quota;
    use crate::config::Profile;
    use crate::http::Places;

    /// A tenant that may have one session.
    fn tenant() -> Arc<Tenant> {
        let profile = Profile {
            policy: "standard".to_owned(),
            set: Vec::new(),
            quota: Quota {
                sessions: 1,
                ..Quota::default()
            },
        };
        let (places, budget) = (Places::new(1), Budget::new(0));
        Arc::new(Tenant::new("one".into(), &profile, places, budget).expect("a tenant"))
    }

    #[tokio::test]
    async fn a_session_counts_while_it_is_made_for_a_client_that_has_left() {
        let (tenant, sessions) = (tenant(), Sessions::new(&Arc::new(Metrics::new())));
        let (begin, is_being_made) = oneshot::channel();
        let (go_on, may_go_on) = channel();
        let counts = tenant.open_session().expect("it is the first");
        let made = sessions.owned(counts, Duration::MAX, move |_| {
            begin.send(()).expect("the test waits");
            may_go_on.recv().expect("the test says so");
            Err(Failure::Mistake)
        });
        tokio::select! {
            _ = made => panic!("it goes on without a word"),
            is_so = is_being_made => is_so.expect("it begins"),
        }
        assert!(tenant.open_session().is_err());
        go_on.send(()).expect("it waits");
        while tenant.open_session().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
