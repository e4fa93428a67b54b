//! The open sessions of all tenants, by their ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandfork::Admission;
use sandfork::session::Session;

use crate::descriptors::{SessionPlace, SessionPlaces};
use crate::failure::Failure;
use crate::locked;
use crate::meter::Meters;
use crate::metrics::Metrics;
use crate::open::{Counts, Open};
use crate::running::{blocking, when_admitted};
use crate::tenant::{Opened, Tenant};

/// The open sessions.
#[derive(Debug)]
pub struct Sessions {
    open: Mutex<HashMap<String, Arc<Open>>>,
    /// What they use between cells, also those that are their owners'.
    pub meters: Meters,
    metrics: Arc<Metrics>,
    /// Which are opened and copied now, and which wait.
    admission: Admission,
    /// How many may be open.
    places: SessionPlaces,
}

impl Sessions {
    /// None is open yet.
    pub fn new(metrics: &Arc<Metrics>, admission: &Admission, places: SessionPlaces) -> Self {
        Self {
            open: Mutex::default(),
            meters: Meters::new(metrics),
            metrics: Arc::clone(metrics),
            admission: admission.clone(),
            places,
        }
    }

    /// Opens a session, which is closed when it has not been used for `idle`.
    ///
    /// # Errors
    /// If the tenant may have no more, or no sandbox can be provided.
    pub async fn open(&self, tenant: &Arc<Tenant>, idle: Duration) -> Result<Arc<Open>, Failure> {
        let fresh = |tenant: &Tenant| Ok(tenant.session()?);
        let open = self.owned(tenant.open_session()?, idle, fresh).await?;
        Ok(self.kept(open))
    }

    /// Opens another session, which begins with the state of this one.
    ///
    /// # Errors
    /// If the tenant may have no more, or the state cannot be copied.
    pub async fn fork(&self, of: &Open) -> Result<Arc<Open>, Failure> {
        let counts = of.tenant.open_session()?;
        let taken = of.with_turn(&self.admission, |session| Ok((session.snapshot()?, counts)));
        let (snapshot, counts) = taken.await?;
        let open = self.owned(counts, of.idle, move |_| Ok(snapshot.fork()?));
        Ok(self.kept(open.await?))
    }

    /// The place of a session of this tenant.
    ///
    /// # Errors
    /// If none is left.
    pub fn place(&self, tenant: &Tenant) -> Result<SessionPlace, Failure> {
        self.places.take(&tenant.name)
    }

    fn kept(&self, open: Arc<Open>) -> Arc<Open> {
        locked(&self.open).insert(open.id.clone(), Arc::clone(&open));
        open
    }

    /// Opens a session that is its owner's, when it is its tenant's turn: it is not found here, and is closed when its owner
    /// drops it.
    ///
    /// # Errors
    /// If the tenant's quota is used up, or it cannot be made.
    pub async fn owned(
        &self,
        counts: Opened,
        idle: Duration,
        make: impl FnOnce(&Tenant) -> Result<Session, Failure> + Send + 'static,
    ) -> Result<Arc<Open>, Failure> {
        let (id, tenant) = (new_id()?, Arc::clone(&counts.tenant));
        let (running, client) = (tenant.begin_setup()?, Arc::clone(&tenant.name));
        let counts = Counts::new(counts, self.place(&tenant)?, &self.metrics);
        // It counts as long as it is being made, also for a client that has left.
        let session = when_admitted(&self.admission, client, move |_| {
            let _running = running;
            Ok((make(&counts.of_tenant.tenant)?, counts))
        });
        let (session, counts) = session.await?;
        let meter = self.meters.add(&tenant, &session);
        Ok(Arc::new(Open::new(id, idle, (session, meter), counts)))
    }

    /// A session of this tenant. That another tenant has one of this id is not said.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self, tenant: &Tenant, id: &str) -> Result<Arc<Open>, Failure> {
        let all = locked(&self.open);
        let found = all.get(id).filter(|open| open.tenant.name == tenant.name);
        let found =
            found.ok_or_else(|| Failure::NotFound("there is no such session".to_owned()))?;
        found.is_used();
        Ok(Arc::clone(found))
    }

    /// The sessions of this tenant, the oldest first.
    pub fn of(&self, tenant: &Tenant) -> Vec<Arc<Open>> {
        let all = locked(&self.open);
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
        locked(&self.open).remove(&found.id);
        found.close().await;
        Ok(())
    }

    /// Closes the sessions that were not used for as long as they may be. Does not wait for their ends.
    pub fn close_idle(&self) {
        // A request that finds one before this uses it, and one that comes later does not find it.
        let idle: Vec<_> = locked(&self.open)
            .extract_if(|_, open| open.is_idle())
            .collect();
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
    use std::num::NonZeroUsize;
    use std::sync::mpsc::channel;

    use tokio::sync::oneshot;

    use super::*;
    use crate::account::Quota;
    use crate::config::Profile;
    use crate::http::{Budget, Places};

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
        let (tenant, admission) = (tenant(), Admission::new(NonZeroUsize::MIN, 0));
        let (metrics, places) = (Arc::new(Metrics::new()), SessionPlaces::new(1, 1));
        let sessions = Sessions::new(&metrics, &admission, places);
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
