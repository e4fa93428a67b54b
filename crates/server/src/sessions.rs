//! The open sessions of all tenants, by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandfork::Admission;
use sandfork::session::Session;

use crate::descriptors::{SessionSlot, SessionSlots};
use crate::failure::Failure;
use crate::locked;
use crate::meter::Meters;
use crate::metrics::Metrics;
use crate::open::{Counts, Open};
use crate::running::{blocking, when_admitted};
use crate::tenant::{Opened, Tenant};

/// The open sessions of all tenants.
#[derive(Debug)]
pub struct Sessions {
    open: Mutex<HashMap<String, Arc<Open>>>,
    /// The meters of all sessions, including those that are registered elsewhere.
    pub meters: Meters,
    metrics: Arc<Metrics>,
    /// Decides which sessions are opened and copied now, and which wait.
    admission: Admission,
    /// The slots for open sessions.
    slots: SessionSlots,
}

impl Sessions {
    /// Creates an empty registry.
    pub fn new(metrics: &Arc<Metrics>, admission: &Admission, slots: SessionSlots) -> Self {
        Self {
            open: Mutex::default(),
            meters: Meters::new(metrics),
            metrics: Arc::clone(metrics),
            admission: admission.clone(),
            slots,
        }
    }

    /// Opens a session, which is closed after `idle` without use.
    ///
    /// # Errors
    /// Returns an error if the tenant's quota is used up, or no sandbox can be provided.
    pub async fn open(&self, tenant: &Arc<Tenant>, idle: Duration) -> Result<Arc<Open>, Failure> {
        let fresh = |tenant: &Tenant| Ok(tenant.session()?);
        let open = self.owned(tenant.open_session()?, idle, fresh).await?;
        Ok(self.register(open))
    }

    /// Opens a session with a copy of another session's state.
    ///
    /// # Errors
    /// Returns an error if the tenant's quota is used up, or the state cannot be copied.
    pub async fn fork(&self, of: &Open) -> Result<Arc<Open>, Failure> {
        let counts = of.tenant.open_session()?;
        let taken = of.with_admission(&self.admission, |session| Ok((session.snapshot()?, counts)));
        let (snapshot, counts) = taken.await?;
        let open = self.owned(counts, of.idle, move |_| Ok(snapshot.fork()?));
        Ok(self.register(open.await?))
    }

    /// Takes a slot for a session of this tenant.
    ///
    /// # Errors
    /// Returns an error if no slot is free.
    pub fn slot(&self, tenant: &Tenant) -> Result<SessionSlot, Failure> {
        self.slots.take(&tenant.name)
    }

    fn register(&self, open: Arc<Open>) -> Arc<Open> {
        locked(&self.open).insert(open.id.clone(), Arc::clone(&open));
        open
    }

    /// Opens a session when the tenant is admitted, without registering it here: `find` does not return it, and it is
    /// closed when its owner drops it.
    ///
    /// # Errors
    /// Returns an error if the tenant's quota is used up, or the session cannot be opened.
    pub async fn owned(
        &self,
        counts: Opened,
        idle: Duration,
        make: impl FnOnce(&Tenant) -> Result<Session, Failure> + Send + 'static,
    ) -> Result<Arc<Open>, Failure> {
        let (id, tenant) = (new_id()?, Arc::clone(&counts.tenant));
        let (running, client) = (tenant.begin_setup()?, Arc::clone(&tenant.name));
        let counts = Counts::new(counts, self.slot(&tenant)?, &self.metrics);
        // It counts while it is being opened, even if the client has disconnected.
        let session = when_admitted(&self.admission, client, move |_| {
            let _running = running;
            Ok((make(&counts.of_tenant.tenant)?, counts))
        });
        let (session, counts) = session.await?;
        let meter = self.meters.add(&tenant, &session);
        Ok(Arc::new(Open::new(id, idle, (session, meter), counts)))
    }

    /// Returns a session of this tenant. The error does not reveal whether another tenant has a session with this id.
    ///
    /// # Errors
    /// Returns an error if there is no such session.
    pub fn find(&self, tenant: &Tenant, id: &str) -> Result<Arc<Open>, Failure> {
        let all = locked(&self.open);
        let found = all.get(id).filter(|open| open.tenant.name == tenant.name);
        let found =
            found.ok_or_else(|| Failure::NotFound("there is no such session".to_owned()))?;
        found.touch();
        Ok(Arc::clone(found))
    }

    /// Returns the sessions of this tenant, the oldest first.
    pub fn of(&self, tenant: &Tenant) -> Vec<Arc<Open>> {
        let all = locked(&self.open);
        let of_tenant = all.values().filter(|open| open.tenant.name == tenant.name);
        let mut sessions: Vec<_> = of_tenant.cloned().collect();
        sessions.sort_by_key(|open| open.opened);
        sessions
    }

    /// Closes a session of this tenant, and ends what runs in it.
    ///
    /// # Errors
    /// Returns an error if there is no such session.
    pub async fn close(&self, tenant: &Tenant, id: &str) -> Result<(), Failure> {
        let found = self.find(tenant, id)?;
        locked(&self.open).remove(&found.id);
        found.close().await;
        Ok(())
    }

    /// Closes the sessions whose idle timeout is over. Does not wait for their ends.
    pub fn close_idle(&self) {
        // A request that found the session before this has restarted its idle timeout; a later one does not find it.
        let idle: Vec<_> = locked(&self.open)
            .extract_if(|_, open| open.is_idle())
            .collect();
        for (_, open) in idle {
            tokio::spawn(async move { open.close().await });
        }
    }
}

/// Drops an owner of sessions on a blocking thread, because ending a session waits.
pub async fn drop_blocking<T: Send + 'static>(owner: T) {
    _ = blocking(move || {
        drop(owner);
        Ok(())
    })
    .await;
}

/// Generates an id that cannot be guessed, of letters and digits, as clients of other protocols expect.
///
/// # Errors
/// Returns an error if the kernel provides no random bytes.
pub fn new_id() -> Result<String, Failure> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!("cannot read random bytes: {error}");
        Failure::Internal
    })?;
    let letters = bytes
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    Ok(letters.collect())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::mpsc::channel;

    use tokio::sync::oneshot;

    use super::*;
    use crate::account::Quota;
    use crate::config::Profile;
    use crate::http::{Budget, RequestSlots};

    /// Creates a tenant with a quota of one session.
    fn tenant() -> Arc<Tenant> {
        let profile = Profile {
            policy: "standard".to_owned(),
            set: Vec::new(),
            quota: Quota {
                sessions: 1,
                ..Quota::default()
            },
        };
        let (slots, budget) = (RequestSlots::new(1), Budget::new(0));
        Arc::new(Tenant::new("one".into(), &profile, slots, budget).expect("a tenant"))
    }

    #[tokio::test]
    async fn session_counts_while_it_is_opened_for_a_lost_client() {
        let (tenant, admission) = (tenant(), Admission::new(NonZeroUsize::MIN, 0));
        let (metrics, slots) = (Arc::new(Metrics::new()), SessionSlots::new(1, 1));
        let sessions = Sessions::new(&metrics, &admission, slots);
        let (begin, is_being_made) = oneshot::channel();
        let (go_on, may_go_on) = channel();
        let counts = tenant.open_session().expect("it is the first");
        let made = sessions.owned(counts, Duration::MAX, move |_| {
            begin.send(()).expect("the test waits");
            may_go_on.recv().expect("the test sends");
            Err(Failure::Internal)
        });
        tokio::select! {
            _ = made => panic!("it completes before the test allows it"),
            is_so = is_being_made => is_so.expect("it begins"),
        }
        assert!(tenant.open_session().is_err());
        go_on.send(()).expect("it waits");
        while tenant.open_session().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
