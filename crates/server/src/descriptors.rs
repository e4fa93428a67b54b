//! How many sessions the descriptors of this process are for, so that connections and the runs of others find some too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;
use crate::failure::Failure;
use crate::locked;
use crate::tenant::Tenant;

/// What a session takes, or a run: the cgroups, pipes and sockets of a worker. `/proc/PID/fd` has one less.
const OF_WORKER: usize = 20;
/// What a tenant takes: an interpreter, and a worker that is ready.
const OF_TENANT: usize = 2 * OF_WORKER;

/// Raises the limit on descriptors to what this process may have: each connection and each run takes some, and the usual
/// limit is for programs that use select(2). Guests have a limit of their own.
///
/// # Errors
/// If the kernel does not let it.
pub fn raise() -> std::io::Result<usize> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    Ok(usize::try_from(most).unwrap_or(usize::MAX))
}

/// How many sessions so many descriptors are for, beside so many tenants, of which so many runs are active at once.
fn for_sessions(descriptors: usize, tenants: usize, jobs: usize) -> usize {
    let others = tenants
        .saturating_mul(OF_TENANT)
        .saturating_add(jobs.saturating_mul(OF_WORKER));
    (descriptors.saturating_sub(others) / OF_WORKER).max(1)
}

/// What a client hears when no descriptor is left: others end.
pub fn none_left() -> Failure {
    let said = "the server has as many sessions open as it has descriptors for: try again later";
    Failure::Busy(said.to_owned())
}

/// The places of sessions.
#[derive(Clone, Debug)]
pub struct SessionPlaces {
    most: usize,
    of_tenant: usize,
    taken: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// The place of a session, until it is dropped.
#[derive(Debug)]
pub struct SessionPlace {
    tenant: Arc<str>,
    of: SessionPlaces,
}

impl SessionPlaces {
    /// Those that these descriptors are for. The log names each tenant whose quota is more than its share.
    pub fn of(config: &Config, descriptors: usize, tenants: &[Arc<Tenant>], jobs: usize) -> Self {
        let most = for_sessions(descriptors, tenants.len(), jobs);
        let of_tenant = usize::try_from(config.share(most as u64)).unwrap_or(usize::MAX);
        for tenant in tenants {
            let wanted = config.profile(&tenant.name).quota.sessions;
            if wanted > of_tenant {
                tracing::warn!(
                    tenant = %tenant.name,
                    "there are descriptors for {of_tenant} of the {wanted} sessions that the tenant may have: raise \
                     `ulimit -n` (`LimitNOFILE=` of a unit), or lower `sessions`"
                );
            }
        }
        Self::new(most, of_tenant)
    }

    /// So many, of which one tenant has at most this part.
    pub fn new(most: usize, of_tenant: usize) -> Self {
        Self {
            most,
            of_tenant,
            taken: Arc::default(),
        }
    }

    /// Takes one for a session of this tenant.
    ///
    /// # Errors
    /// If none is left.
    pub fn take(&self, tenant: &Arc<str>) -> Result<SessionPlace, Failure> {
        let mut taken = locked(&self.taken);
        let own = taken.get(tenant).copied().unwrap_or_default();
        if own >= self.of_tenant {
            return Err(Failure::Busy(format!(
                "{own} sessions of this tenant are open, as many as the server has descriptors for: close one"
            )));
        }
        if taken.values().sum::<usize>() >= self.most {
            return Err(none_left());
        }
        taken.insert(Arc::clone(tenant), own + 1);
        Ok(SessionPlace {
            tenant: Arc::clone(tenant),
            of: self.clone(),
        })
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        let mut taken = locked(&self.of.taken);
        if let Some(own) = taken.get_mut(&self.tenant) {
            *own -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_what_tenants_and_runs_leave() {
        assert_eq!(for_sessions(512, 3, 2), 17);
        assert_eq!(for_sessions(100, 3, 2), 1);
        assert!(for_sessions(usize::MAX, 3, 2) > 1 << 32);
    }

    #[test]
    fn a_tenant_leaves_places_to_others() {
        let places = SessionPlaces::new(3, 2);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let held = [places.take(&one), places.take(&one)];
        assert!(held.iter().all(Result::is_ok));
        let refused = |tenant| {
            places
                .take(tenant)
                .is_err_and(|refused| refused.is_overload())
        };
        assert!(refused(&one));
        let last = places.take(&other);
        assert!(last.is_ok() && refused(&other));
        drop(held);
        assert!(places.take(&one).is_ok());
    }
}
