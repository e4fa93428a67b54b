//! Charges tenants for the CPU time that sessions use between their cells, which no outcome reports.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sandfork::session::{Interrupter, Session};

use crate::locked;
use crate::metrics::Metrics;
use crate::tenant::Tenant;

/// Sessions without a CPU quota are measured only in one of this many rounds, because measuring takes time.
const FOR_METRICS: u64 = 10;

/// The meter of one session. It is dropped after the session, and then charges for the session's end.
#[derive(Debug)]
pub struct Meter {
    interrupter: Interrupter,
    tenant: Arc<Tenant>,
    metrics: Arc<Metrics>,
    /// The CPU time that was already charged.
    charged: Mutex<Duration>,
}

/// A session and its meter, in this order: the meter charges for the last time after the session has ended.
pub type Metered = (Session, Arc<Meter>);

impl Meter {
    /// Charges the tenant for the CPU time since the last call.
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

/// The meters of all sessions.
#[derive(Debug)]
pub struct Meters {
    all: Mutex<Vec<Weak<Meter>>>,
    /// The number of calls of `charge`.
    calls: AtomicU64,
    metrics: Arc<Metrics>,
}

impl Meters {
    /// Creates an empty collection.
    pub fn new(metrics: &Arc<Metrics>) -> Self {
        Self {
            all: Mutex::default(),
            calls: AtomicU64::new(0),
            metrics: Arc::clone(metrics),
        }
    }

    /// Adds a session, which is metered until the returned value is dropped.
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

    /// Charges for all sessions, and requests new measurements for the next call: of tenants with a CPU quota each
    /// time, of the others, for the metrics only, every [`FOR_METRICS`] calls. Does not wait for the measurements.
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
