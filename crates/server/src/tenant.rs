//! A tenant: its sandboxes, its quota and its usage.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use sandfork::Sandbox;
use sandfork::session::Session;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::account::{Account, Refusal};
use crate::activity::Activity;
use crate::config::Profile;
use crate::failure::Failure;
use crate::http::{Budget, RequestSlots};
use crate::locked;
use crate::sandboxes::{Sandboxes, Variant};

/// The maximum number of directories that a tenant's clients watch. The kernel limits inotify watches per user, and all
/// tenants share the user of the server.
pub const MAX_WATCHES: usize = 8;

/// The reason why a tenant cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// The policy cannot be loaded, or the host cannot provide its sandbox.
    #[error("tenant `{0}`: {1}")]
    Sandbox(Arc<str>, sandfork::Error),
    /// The quota prevents every run.
    #[error("tenant `{0}`: {1}")]
    Quota(Arc<str>, String),
}

impl From<TenantError> for Failure {
    fn from(error: TenantError) -> Self {
        match error {
            TenantError::Sandbox(_, error) => error.into(),
            TenantError::Quota(_, problem) => {
                tracing::error!("the quota of a tenant prevents every run: {problem}");
                Self::Internal
            }
        }
    }
}

/// The id in a path, which may have further parameters.
#[derive(Deserialize)]
struct WithId {
    id: String,
}

/// Returns the tenant of a request, and the id in its path.
///
/// # Errors
/// Returns an error if the path is not valid UTF-8.
pub async fn tenant_and_id(parts: &mut Parts) -> Result<(Arc<Tenant>, String), Failure> {
    let tenant = parts.extensions.get::<Arc<Tenant>>().cloned();
    let tenant = tenant.ok_or(Failure::Internal)?;
    let path = Path::<WithId>::from_request_parts(parts, &()).await;
    let Path(WithId { id }) = path?;
    Ok((tenant, id))
}

/// A group of clients with one policy and one quota.
#[derive(Debug)]
pub struct Tenant {
    /// The name, which also appears in metrics and logs.
    pub name: Arc<str>,
    /// The sandboxes of its policy.
    pub sandboxes: Sandboxes,
    /// The permits for directory watches.
    pub watches: Arc<Semaphore>,
    /// The slots for concurrent requests.
    pub slots: RequestSlots,
    /// The memory budget of its bodies and responses.
    pub budget: Budget,
    account: Mutex<Account>,
    activity: Mutex<Activity>,
}

impl Tenant {
    /// Creates a tenant without usage.
    ///
    /// # Errors
    /// Returns an error if its policy cannot be loaded, or if its quota prevents every run.
    pub fn new(
        name: Arc<str>,
        profile: &Profile,
        slots: RequestSlots,
        budget: Budget,
    ) -> Result<Self, TenantError> {
        let sandboxes = Sandboxes::new(profile.clone());
        let sandboxes =
            sandboxes.map_err(|cause| TenantError::Sandbox(Arc::clone(&name), cause))?;
        let check = profile.quota.check(sandboxes.memory(Variant::default()));
        check.map_err(|problem| TenantError::Quota(Arc::clone(&name), problem))?;
        let account = Account::new(profile.quota.clone(), Instant::now());
        Ok(Self {
            name,
            sandboxes,
            watches: Arc::new(Semaphore::new(MAX_WATCHES)),
            slots,
            budget,
            account: Mutex::new(account),
            activity: Mutex::default(),
        })
    }

    /// Locks the usage of the tenant.
    pub fn account(&self) -> MutexGuard<'_, Account> {
        locked(&self.account)
    }

    /// Locks the statistics of the tenant's recent runs.
    pub fn activity(&self) -> MutexGuard<'_, Activity> {
        locked(&self.activity)
    }

    /// Counts a run until the returned value is dropped.
    ///
    /// # Errors
    /// Returns an error if the quota is used up.
    pub fn begin_run(self: &Arc<Self>, variant: Variant) -> Result<Running, Refusal> {
        self.begin(self.sandboxes.memory(variant))
    }

    /// Counts a cell of an open session, which already reserves its memory.
    ///
    /// # Errors
    /// Returns an error if the quota is used up.
    pub fn begin_cell(self: &Arc<Self>) -> Result<Running, Refusal> {
        self.begin(0)
    }

    fn begin(self: &Arc<Self>, memory: u64) -> Result<Running, Refusal> {
        self.account().begin_run(memory, Instant::now())?;
        Ok(Running {
            tenant: Arc::clone(self),
            memory,
        })
    }

    /// Counts another cell of a run.
    ///
    /// # Errors
    /// Returns an error if the rate limit is reached.
    pub fn begin_next_cell(&self) -> Result<(), Refusal> {
        self.account().begin_next_cell(Instant::now())
    }

    /// Checks that a run can start within this time, judging by the current usage.
    ///
    /// # Errors
    /// Returns an error if the CPU time refills later, or if open sessions reserve the memory.
    pub fn may_begin_within(&self, time: Duration) -> Result<(), Refusal> {
        let memory = self.sandboxes.memory(Variant::default());
        self.account()
            .may_begin_within(time, memory, Instant::now())
    }

    /// Counts setup work on a session: opening, copying or restarting it.
    ///
    /// # Errors
    /// Returns an error if the quota is used up.
    pub fn begin_setup(self: &Arc<Self>) -> Result<Running, Refusal> {
        self.account().begin_setup(Instant::now())?;
        Ok(Running {
            tenant: Arc::clone(self),
            memory: 0,
        })
    }

    /// Returns the sandbox of a variant. Blocks while it is built. Building a variant starts an interpreter, whose time
    /// is charged to the tenant; the sandbox of the policy itself is free.
    ///
    /// # Errors
    /// Returns an error if the host cannot provide the sandbox.
    pub fn sandbox(&self, variant: Variant) -> Result<Arc<Sandbox>, sandfork::Error> {
        self.sandboxes.sandbox(variant, |variant, taken| {
            if variant != Variant::default() {
                self.used(taken);
            }
        })
    }

    /// Opens a session of the tenant's own policy. Blocks while it is opened.
    ///
    /// # Errors
    /// Returns an error if the host cannot provide the session.
    pub fn session(&self) -> Result<Session, sandfork::Error> {
        self.sandbox(Variant::default())?.session()
    }

    /// Charges CPU time that is not part of a run.
    pub fn used(&self, time: Duration) {
        self.account().used(time);
    }

    /// Counts a session until the returned value is dropped.
    ///
    /// # Errors
    /// Returns an error if the quota is used up.
    pub fn open_session(self: &Arc<Self>) -> Result<Opened, Refusal> {
        let memory = self.sandboxes.memory(Variant::default());
        self.account().open_session(memory)?;
        Ok(Opened {
            tenant: Arc::clone(self),
            memory,
        })
    }
}

/// A counted run, until it is dropped.
#[derive(Debug)]
pub struct Running {
    tenant: Arc<Tenant>,
    memory: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tenant.account().end_run(self.memory);
    }
}

/// A counted session, until it is dropped.
#[derive(Debug)]
pub struct Opened {
    /// The tenant that owns the session.
    pub tenant: Arc<Tenant>,
    memory: u64,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.tenant.account().close_session(self.memory);
    }
}
