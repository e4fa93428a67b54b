//! Raises the descriptor limit, and derives from it the number of sessions that may be open, after a reserve for
//! connections and runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;
use crate::failure::Failure;
use crate::locked;
use crate::tenant::Tenant;

/// The descriptors of a session or a run: the cgroups, pipes and sockets of a worker. `/proc/PID/fd` shows one less.
const PER_WORKER: usize = 20;
/// The descriptors of a tenant: an interpreter and a ready worker.
const PER_TENANT: usize = 2 * PER_WORKER;

/// Raises the soft limit of descriptors to the hard limit, and returns it. Each connection and each run needs some, and
/// the usual soft limit exists for programs that use select(2). Guests have their own limit.
///
/// # Errors
/// Returns an error if the kernel refuses.
pub fn raise() -> std::io::Result<usize> {
    let (_, limit) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, limit, limit)?;
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Returns how many sessions fit into these descriptors, next to the tenants and the concurrent runs.
fn session_capacity(descriptors: usize, tenants: usize, jobs: usize) -> usize {
    let others = tenants
        .saturating_mul(PER_TENANT)
        .saturating_add(jobs.saturating_mul(PER_WORKER));
    (descriptors.saturating_sub(others) / PER_WORKER).max(1)
}

/// Returns the failure for a lack of descriptors. It is temporary: sessions end.
pub fn no_descriptors() -> Failure {
    let message =
        "the server has as many open sessions as it has file descriptors for: retry later";
    Failure::Busy(message.to_owned())
}

/// The slots for open sessions.
#[derive(Clone, Debug)]
pub struct SessionSlots {
    max: usize,
    max_per_tenant: usize,
    taken: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// The slot of a session, which is free again when this is dropped.
#[derive(Debug)]
pub struct SessionSlot {
    tenant: Arc<str>,
    slots: SessionSlots,
}

impl SessionSlots {
    /// Computes the number of slots. Logs each tenant whose quota exceeds its share.
    pub fn of(config: &Config, descriptors: usize, tenants: &[Arc<Tenant>], jobs: usize) -> Self {
        let max = session_capacity(descriptors, tenants.len(), jobs);
        let max_per_tenant = usize::try_from(config.share(max as u64)).unwrap_or(usize::MAX);
        for tenant in tenants {
            let wanted = config.profile(&tenant.name).quota.sessions;
            if wanted > max_per_tenant {
                tracing::warn!(
                    tenant = %tenant.name,
                    "there are file descriptors for only {max_per_tenant} of the {wanted} sessions that the tenant may \
                     have: raise `ulimit -n` (`LimitNOFILE=` in a systemd unit), or lower `sessions`"
                );
            }
        }
        Self::new(max, max_per_tenant)
    }

    /// Creates `max` slots, of which one tenant may take `max_per_tenant`.
    pub fn new(max: usize, max_per_tenant: usize) -> Self {
        Self {
            max,
            max_per_tenant,
            taken: Arc::default(),
        }
    }

    /// Takes a slot for a session of this tenant.
    ///
    /// # Errors
    /// Returns an error if no slot is free.
    pub fn take(&self, tenant: &Arc<str>) -> Result<SessionSlot, Failure> {
        let mut taken = locked(&self.taken);
        let own = taken.get(tenant).copied().unwrap_or_default();
        if own >= self.max_per_tenant {
            return Err(Failure::Busy(format!(
                "this tenant has {own} open sessions, as many as the server has file descriptors for: close one"
            )));
        }
        if taken.values().sum::<usize>() >= self.max {
            return Err(no_descriptors());
        }
        taken.insert(Arc::clone(tenant), own + 1);
        Ok(SessionSlot {
            tenant: Arc::clone(tenant),
            slots: self.clone(),
        })
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut taken = locked(&self.slots.taken);
        if let Some(own) = taken.get_mut(&self.tenant) {
            *own -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_get_the_descriptors_that_remain() {
        assert_eq!(session_capacity(512, 3, 2), 17);
        assert_eq!(session_capacity(100, 3, 2), 1);
        assert!(session_capacity(usize::MAX, 3, 2) > 1 << 32);
    }

    #[test]
    fn tenant_leaves_slots_to_others() {
        let slots = SessionSlots::new(3, 2);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let held = [slots.take(&one), slots.take(&one)];
        assert!(held.iter().all(Result::is_ok));
        let refused = |tenant| {
            slots
                .take(tenant)
                .is_err_and(|refused| refused.is_overload())
        };
        assert!(refused(&one));
        let last = slots.take(&other);
        assert!(last.is_ok() && refused(&other));
        drop(held);
        assert!(slots.take(&one).is_ok());
    }
}
