//! The sandboxes of a tenant: the one of its policy, and a few variants that requests asked for.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sandfork::{Error, FileSystem, LimitName, Policy, Sandbox};

use crate::config::Profile;
use crate::failure::Failure;
use crate::locked;

/// The maximum number of variants that are kept. Each is an interpreter.
const MAX_VARIANTS: usize = 8;

/// The differences between a request's sandbox and the policy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Variant {
    /// The memory limit in bytes, if lower than the policy's.
    pub memory: Option<u64>,
    /// Whether written files may be executed.
    pub executes: Executes,
}

/// Whether a guest may execute files that it has written, as the output of a compiler.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Executes {
    /// As in the policy.
    #[default]
    AsAllowed,
    /// Allowed.
    Written,
}

/// The sandboxes of a policy.
#[derive(Debug)]
pub struct Sandboxes {
    profile: Profile,
    /// The effective policy of requests.
    pub policy: Policy,
    /// The sandboxes, the most recently used one last.
    made: Mutex<Vec<(Variant, Arc<Slot>)>>,
}

/// A sandbox, which one thread builds while others wait for it.
#[derive(Debug, Default)]
struct Slot {
    making: Mutex<()>,
    made: OnceLock<Arc<Sandbox>>,
}

impl Sandboxes {
    /// Loads the policy. Builds no sandbox yet.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be loaded.
    pub fn new(profile: Profile) -> Result<Self, Error> {
        let policy = policy(&profile, Variant::default())?;
        Ok(Self {
            policy,
            profile,
            made: Mutex::default(),
        })
    }

    /// Returns the memory limit of a run of this variant, in bytes.
    pub fn memory(&self, variant: Variant) -> u64 {
        let most = self.policy.limit(LimitName::Memory);
        variant.memory.map_or(most, |memory| memory.min(most))
    }

    /// Returns the wall time limit of a run.
    pub fn wall(&self) -> Duration {
        Duration::from_millis(self.policy.limit(LimitName::Wall))
    }

    /// Returns whether the policy allows network access.
    pub fn has_network(&self) -> bool {
        let text: Option<toml::Table> = self.policy.to_toml().parse().ok();
        let mode = text
            .as_ref()
            .and_then(|policy| policy.get("network")?.get("mode")?.as_str());
        mode != Some("none")
    }

    /// Returns the time limit that a request asks for in this field, capped at the policy's.
    ///
    /// # Errors
    /// Returns an error if the number is not a valid time.
    pub fn time(&self, limit: LimitName, field: &str, seconds: f64) -> Result<Duration, Failure> {
        let most = Duration::from_millis(self.policy.limit(limit));
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() => Ok(time.min(most)),
            // Longer than a `Duration` can represent, so the policy's limit applies.
            Err(_) if seconds > 1.0 => Ok(most),
            _ => Err(Failure::Request(format!(
                "{field}: {seconds} s is not a valid time"
            ))),
        }
    }

    /// Returns the sandbox of a variant. Blocks while it is built, and then reports to `made` how long that took.
    ///
    /// # Errors
    /// Returns an error if the host cannot provide the sandbox.
    pub fn sandbox(
        &self,
        variant: Variant,
        made: impl FnOnce(Variant, Duration),
    ) -> Result<Arc<Sandbox>, Error> {
        let memory = variant
            .memory
            .filter(|memory| *memory < self.policy.limit(LimitName::Memory));
        let variant = Variant { memory, ..variant };
        let slot = self.slot(variant);
        if let Some(sandbox) = slot.made.get() {
            return Ok(Arc::clone(sandbox));
        }
        let making = locked(&slot.making);
        if let Some(sandbox) = slot.made.get() {
            return Ok(Arc::clone(sandbox));
        }
        let begun = Instant::now();
        let sandbox = policy(&self.profile, variant)
            .and_then(|policy| Sandbox::builder().policy(policy).build());
        made(variant, begun.elapsed());
        match sandbox {
            Ok(sandbox) => {
                let sandbox = Arc::clone(slot.made.get_or_init(|| Arc::new(sandbox)));
                let oldest = self.take_oldest();
                drop(making);
                // Dropping a sandbox waits until its interpreter has ended. Do that without the lock, so that other
                // runs of the tenant do not wait for it.
                drop(oldest);
                Ok(sandbox)
            }
            Err(error) => {
                locked(&self.made).retain(|(_, other)| !Arc::ptr_eq(other, &slot));
                Err(error)
            }
        }
    }

    fn slot(&self, variant: Variant) -> Arc<Slot> {
        let mut made = locked(&self.made);
        let found = made.iter().position(|(other, _)| *other == variant);
        let found = found.map(|index| made.remove(index));
        let (_, slot) = found.unwrap_or_else(|| (variant, Arc::default()));
        made.push((variant, Arc::clone(&slot)));
        slot
    }

    /// Removes the least recently used variant if there are too many. Active runs continue, because they hold a
    /// reference to the sandbox.
    fn take_oldest(&self) -> Option<Arc<Slot>> {
        let mut made = locked(&self.made);
        let is_made = |(variant, slot): &(Variant, Arc<Slot>)| {
            *variant != Variant::default() && slot.made.get().is_some()
        };
        if made.iter().filter(|one| is_made(one)).count() <= MAX_VARIANTS {
            return None;
        }
        let oldest = made.iter().position(is_made)?;
        let (_, slot) = made.remove(oldest);
        Some(slot)
    }
}

fn policy(profile: &Profile, variant: Variant) -> Result<Policy, Error> {
    let mut set = profile.set.clone();
    // A request's stdin comes from the same client as its code.
    let mut more = vec!["stdio.stdin=pass".to_owned()];
    more.extend(
        variant
            .memory
            .map(|memory| format!("limits.memory={memory}B")),
    );
    if variant.executes == Executes::Written {
        more.push("filesystem.work_exec=true".to_owned());
    }
    for key in more {
        set.push(key.parse()?);
    }
    Ok(Policy::load(&profile.policy, &set, &FileSystem)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variant_that_cannot_be_built_evicts_no_other() {
        let profile = Profile {
            policy: "standard".to_owned(),
            set: Vec::new(),
            quota: crate::account::Quota::default(),
        };
        let sandboxes = Sandboxes::new(profile).expect("a policy");
        let variant = |memory| Variant {
            memory: Some(memory),
            ..Variant::default()
        };
        let is_there = |slot: &Arc<Slot>| {
            let made = locked(&sandboxes.made);
            made.iter().any(|(_, other)| Arc::ptr_eq(slot, other))
        };
        let slots: Vec<_> = (0..=MAX_VARIANTS as u64)
            .map(|number| sandboxes.slot(variant(number << 30)))
            .collect();
        sandboxes
            .sandbox(variant(1), |_, _| ())
            .expect_err("it is too little");
        assert!(slots.iter().all(is_there));
        assert_eq!(locked(&sandboxes.made).len(), slots.len());
    }
}
