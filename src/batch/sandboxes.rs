//! Keeps one sandbox per policy, so that tasks under the same policy share a zygote.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::environments::provide;
use crate::error::Error;
use crate::policy::Policy;
use crate::sandbox::Sandbox;
use crate::supervisor::Cancel;
use crate::waiters::lock;

/// The sandboxes, built on demand.
#[derive(Debug)]
pub struct Sandboxes {
    default: Arc<Sandbox>,
    /// By the name and the effect of the policy, because an outcome reports both.
    others: Mutex<HashMap<(String, String), Slot>>,
}

type Slot = Arc<Mutex<Option<Arc<Sandbox>>>>;

impl Sandboxes {
    /// Creates the set. `default` serves tasks without their own policy.
    pub fn new(default: Arc<Sandbox>) -> Self {
        Self {
            default,
            others: Mutex::default(),
        }
    }

    /// Returns the sandbox of a policy. If it cannot be built now, the next task tries again. `cancel` cancels the
    /// installation of its packages.
    pub fn get(&self, policy: Option<&Policy>, cancel: &Cancel) -> Result<Arc<Sandbox>, Error> {
        let Some(policy) = policy else {
            return Ok(Arc::clone(&self.default));
        };
        let key = (policy.name().to_owned(), policy.sha256().to_owned());
        let slot = Arc::clone(lock(&self.others).entry(key).or_default());
        // Held while the sandbox is built, so that only its callers wait.
        let mut slot = lock(&slot);
        if let Some(sandbox) = &*slot {
            return Ok(Arc::clone(sandbox));
        }
        let builder = self.default.another().policy(policy.clone());
        provide(policy, &builder.caller_environment(), cancel)?;
        let sandbox = Arc::new(builder.build_provided()?);
        *slot = Some(Arc::clone(&sandbox));
        Ok(sandbox)
    }
}
