//! The sandboxes of a tenant: one of its policy, and a few that differ in what single requests ask for.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sandfork::{Error, FileSystem, LimitName, Policy, Sandbox};

use crate::config::Profile;
use crate::failure::Failure;
use crate::locked;

/// Sandboxes beside the tenant's own that are kept. Each is an interpreter.
const MOST_VARIANTS: usize = 8;

/// How a request's sandbox differs from that of the policy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Variant {
    /// Bytes of memory, if they are fewer than the policy's.
    pub memory: Option<u64>,
    /// What is written may be executed.
    pub executes: Executes,
}

/// Whether a guest can execute what it has written, as a compiler needs it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Executes {
    /// As the policy says.
    #[default]
    AsAllowed,
    /// It can.
    Written,
}

/// The sandboxes of a policy.
#[derive(Debug)]
pub struct Sandboxes {
    profile: Profile,
    /// The policy as requests find it.
    pub policy: Policy,
    /// The sandbox that was used last comes last.
    made: Mutex<Vec<(Variant, Arc<Slot>)>>,
}

/// A sandbox that one thread makes while others wait for it.
#[derive(Debug, Default)]
struct Slot {
    making: Mutex<()>,
    made: OnceLock<Arc<Sandbox>>,
}

impl Sandboxes {
    /// Reads the policy. No sandbox is made yet.
    ///
    /// # Errors
    /// If the policy cannot be read.
    pub fn new(profile: Profile) -> Result<Self, Error> {
        let policy = policy(&profile, Variant::default())?;
        Ok(Self {
            policy,
            profile,
            made: Mutex::default(),
        })
    }

    /// The most memory of a run of this variant, in bytes.
    pub fn memory(&self, variant: Variant) -> u64 {
        let most = self.policy.limit(LimitName::Memory);
        variant.memory.map_or(most, |memory| memory.min(most))
    }

    /// The longest time of a run.
    pub fn wall(&self) -> Duration {
        Duration::from_millis(self.policy.limit(LimitName::Wall))
    }

    /// Whether guests reach other hosts.
    pub fn has_network(&self) -> bool {
        let text: Option<toml::Table> = self.policy.to_toml().parse().ok();
        let mode = text
            .as_ref()
            .and_then(|policy| policy.get("network")?.get("mode")?.as_str());
        mode != Some("none")
    }

    /// The time that a request asks for in this field, or the policy's if that is less.
    ///
    /// # Errors
    /// If it is no time.
    pub fn time(&self, limit: LimitName, field: &str, seconds: f64) -> Result<Duration, Failure> {
        let most = Duration::from_millis(self.policy.limit(limit));
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() => Ok(time.min(most)),
            // More than a Duration holds, which the policy bounds.
            Err(_) if seconds > 1.0 => Ok(most),
            _ => Err(Failure::Request(format!(
                "{field}: {seconds} s are no time for a run"
            ))),
        }
    }

    /// The sandbox of a variant. Blocks while it is made, and says then how long that took.
    ///
    /// # Errors
    /// If the host cannot provide it.
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
                // It waits until its interpreter has ended, which other runs of the tenant need not.
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
        let found = found.map(|place| made.remove(place));
        let (_, slot) = found.unwrap_or_else(|| (variant, Arc::default()));
        made.push((variant, Arc::clone(&slot)));
        slot
    }

    /// Takes a variant away if there are too many. What still runs there goes on: its runs hold the sandbox.
    fn take_oldest(&self) -> Option<Arc<Slot>> {
        let mut made = locked(&self.made);
        let is_made = |(variant, slot): &(Variant, Arc<Slot>)| {
            *variant != Variant::default() && slot.made.get().is_some()
        };
        if made.iter().filter(|one| is_made(one)).count() <= MOST_VARIANTS {
            return None;
        }
        let oldest = made.iter().position(is_made)?;
        let (_, slot) = made.remove(oldest);
        Some(slot)
    }
}

fn policy(profile: &Profile, variant: Variant) -> Result<Policy, Error> {
    let mut set = profile.set.clone();
    // A request's input comes from the client that sent its code.
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
    fn a_variant_that_cannot_be_made_takes_no_place() {
        let profile = Profile {
            policy: "standard".to_owned(),
            set: Vec::new(),
            quota: crate::account::Quota::default(),
        };
        let sandboxes = Sandboxes::new(profile).expect("it is a policy");
        let variant = |memory| Variant {
            memory: Some(memory),
            ..Variant::default()
        };
        let is_there = |slot: &Arc<Slot>| {
            let made = locked(&sandboxes.made);
            made.iter().any(|(_, other)| Arc::ptr_eq(slot, other))
        };
        let slots: Vec<_> = (0..=MOST_VARIANTS as u64)
            .map(|number| sandboxes.slot(variant(number << 30)))
            .collect();
        sandboxes
            .sandbox(variant(1), |_, _| ())
            .expect_err("it is too little");
        assert!(slots.iter().all(is_there));
        assert_eq!(locked(&sandboxes.made).len(), slots.len());
    }
}
