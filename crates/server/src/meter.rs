//! What sessions use between their cells, of which no outcome tells: their tenants are charged with it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sandfork::session::{Interrupter, Session};

use crate::locked;
use crate::metrics::Metrics;
use crate::tenant::Tenant;

/// The calls of which one counts what no quota bounds: counting takes time.
const FOR_METRICS: u64 = 10;

/// The count of one session. Dropped after the session, it charges for what the end of that counts.
#[derive(Debug)]
pub struct Meter {
    interrupter: Interrupter,
    tenant: Arc<Tenant>,
    metrics: Arc<Metrics>,
    /// What its tenant was charged with.
    charged: Mutex<Duration>,
}

/// A session, and what it uses between its cells, which is charged for the last time when the session has ended.
pub type Metered = (Session, Arc<Meter>);

impl Meter {
    /// Charges the tenant with what was counted since this was called last.
    pub fn charge(&self) {
        let mut charged = locked(&self.charged);
        let counted = self.interrupter.cpu_between_cells();
        let used = counted.saturating_sub(*charged);
        *charged = counted;
        self.tenant.used(used);
        self.metrics.used(&self.tenant.name, used);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.charge();
    }
}

/// The counts of all sessions.
#[derive(Debug)]
pub struct Meters {
    all: Mutex<Vec<Weak<Meter>>>,
    /// How often all were charged.
    calls: AtomicU64,
    metrics: Arc<Metrics>,
}

impl Meters {
    /// None yet.
    pub fn new(metrics: &Arc<Metrics>) -> Self {
        Self {
            all: Mutex::default(),
            calls: AtomicU64::new(0),
            metrics: Arc::clone(metrics),
        }
    }

    /// Counts what a session of this tenant uses, until the result is dropped.
    pub fn add(&self, tenant: &Arc<Tenant>, session: &Session) -> Arc<Meter> {
        let meter = Arc::new(Meter {
            interrupter: session.interrupter(),
            tenant: Arc::clone(tenant),
            metrics: Arc::clone(&self.metrics),
            charged: Mutex::default(),
        });
        locked(&self.all).push(Arc::downgrade(&meter));
        meter
    }

    /// Charges for all sessions. Those of tenants whose processor time is bounded count again for the next call; others,
    /// which only metrics need, each [`FOR_METRICS`] calls. Waits for none of them.
    pub fn charge(&self) {
        let for_metrics = self
            .calls
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(FOR_METRICS);
        let mut all = locked(&self.all);
        all.retain(|meter| {
            let meter = meter.upgrade();
            if let Some(meter) = &meter {
                meter.charge();
                if for_metrics || meter.tenant.account().bounds_cpu() {
                    meter.interrupter.count_cpu();
                }
            }
            meter.is_some()
        });
    }
}
