//! A tenant: its sandboxes and its account.

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
use crate::http::{Budget, Places};
use crate::locked;
use crate::sandboxes::{Sandboxes, Variant};

/// The most directories of its sandboxes that a tenant's clients watch at once. The kernel counts them for the user of
/// the server, of which all tenants have the same.
pub const MOST_WATCHES: usize = 8;

/// Why a tenant cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// Its policy cannot be read, or the host cannot provide a sandbox of it.
    #[error("the tenant `{0}`: {1}")]
    Sandbox(Arc<str>, sandfork::Error),
    /// Its quota lets nothing begin.
    #[error("the tenant `{0}`: {1}")]
    Quota(Arc<str>, String),
}

impl From<TenantError> for Failure {
    fn from(error: TenantError) -> Self {
        match error {
            TenantError::Sandbox(_, error) => error.into(),
            TenantError::Quota(_, problem) => {
                tracing::error!("a tenant has a quota that lets nothing begin: {problem}");
                Self::Mistake
            }
        }
    }
}

/// The id that a path has, before what else it has.
#[derive(Deserialize)]
struct WithId {
    id: String,
}

/// The tenant of a request, and the id in its path.
///
/// # Errors
/// If the path is not UTF-8.
pub async fn tenant_and_id(parts: &mut Parts) -> Result<(Arc<Tenant>, String), Failure> {
    let tenant = parts.extensions.get::<Arc<Tenant>>().cloned();
    let tenant = tenant.ok_or(Failure::Mistake)?;
    let path = Path::<WithId>::from_request_parts(parts, &()).await;
    let Path(WithId { id }) = path?;
    Ok((tenant, id))
}

/// Clients that share one policy and one quota.
#[derive(Debug)]
pub struct Tenant {
    /// Its name, also in metrics and logs.
    pub name: Arc<str>,
    /// Its sandboxes.
    pub sandboxes: Sandboxes,
    /// The watches that it may still begin.
    pub watches: Arc<Semaphore>,
    /// Its requests in progress.
    pub places: Places,
    /// The memory of its bodies and answers.
    pub budget: Budget,
    account: Mutex<Account>,
    activity: Mutex<Activity>,
}

impl Tenant {
    /// Makes a tenant that uses nothing yet.
    ///
    /// # Errors
    /// If its policy cannot be read, or its quota lets nothing begin.
    pub fn new(
        name: Arc<str>,
        profile: &Profile,
        places: Places,
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
            watches: Arc::new(Semaphore::new(MOST_WATCHES)),
            places,
            budget,
            account: Mutex::new(account),
            activity: Mutex::default(),
        })
    }

    /// What it has running, and may still begin.
    pub fn account(&self) -> MutexGuard<'_, Account> {
        locked(&self.account)
    }

    /// How its runs ended lately.
    pub fn activity(&self) -> MutexGuard<'_, Activity> {
        locked(&self.activity)
    }

    /// Counts a run until the result is dropped.
    ///
    /// # Errors
    /// If the quota is used up.
    pub fn begin_run(self: &Arc<Self>, variant: Variant) -> Result<Running, Refusal> {
        self.begin(self.sandboxes.memory(variant))
    }

    /// Counts a cell of an open session, whose memory is the session's.
    ///
    /// # Errors
    /// If the quota is used up.
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

    /// Counts another cell of a run as one that begins now.
    ///
    /// # Errors
    /// If the rate lets none begin.
    pub fn begin_another(&self) -> Result<(), Refusal> {
        self.account().begin_another(Instant::now())
    }

    /// Checks that a run can begin within this time, as far as the quota says it now.
    ///
    /// # Errors
    /// If its processor time comes back later, or its open sessions have the memory.
    pub fn may_begin_within(&self, time: Duration) -> Result<(), Refusal> {
        let memory = self.sandboxes.memory(Variant::default());
        self.account()
            .may_begin_within(time, memory, Instant::now())
    }

    /// Counts work on a session, which is opened, copied or restarted.
    ///
    /// # Errors
    /// If the quota is used up.
    pub fn begin_setup(self: &Arc<Self>) -> Result<Running, Refusal> {
        self.account().begin_setup(Instant::now())?;
        Ok(Running {
            tenant: Arc::clone(self),
            memory: 0,
        })
    }

    /// The sandbox of a variant. Blocks while it is made. The tenant is charged with the time of that, in which an
    /// interpreter starts, unless it is the one that it has in any case.
    ///
    /// # Errors
    /// If the host cannot provide it.
    pub fn sandbox(&self, variant: Variant) -> Result<Arc<Sandbox>, sandfork::Error> {
        self.sandboxes.sandbox(variant, |variant, taken| {
            if variant != Variant::default() {
                self.used(taken);
            }
        })
    }

    /// A fresh session of the tenant's own policy. Blocks while it is made.
    ///
    /// # Errors
    /// If the host cannot provide it.
    pub fn session(&self) -> Result<Session, sandfork::Error> {
        self.sandbox(Variant::default())?.session()
    }

    /// Counts processor time that no run has used.
    pub fn used(&self, time: Duration) {
        self.account().used(time);
    }

    /// Counts a session until the result is dropped.
    ///
    /// # Errors
    /// If the quota is used up.
    pub fn open_session(self: &Arc<Self>) -> Result<Opened, Refusal> {
        let memory = self.sandboxes.memory(Variant::default());
        self.account().open_session(memory)?;
        Ok(Opened {
            tenant: Arc::clone(self),
            memory,
        })
    }
}

/// A run that counts.
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

/// A session that counts.
#[derive(Debug)]
pub struct Opened {
    /// Whose session it is.
    pub tenant: Arc<Tenant>,
    memory: u64,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.tenant.account().close_session(self.memory);
    }
}
