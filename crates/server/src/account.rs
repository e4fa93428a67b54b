//! The quota of a tenant and its current usage. Does no I/O: the caller passes the time.

use std::time::{Duration, Instant};

/// The limits of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// Concurrent runs and cells, including those in the queue.
    pub runs: usize,
    /// Open sessions.
    pub sessions: usize,
    /// Runs and cells that may start per second. The burst is twice as large.
    pub rate: Option<f64>,
    /// CPU time per hour.
    pub cpu: Option<Duration>,
    /// The sum of the memory limits of all runs and open sessions, in bytes.
    pub memory: Option<u64>,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            runs: 256,
            sessions: 64,
            rate: None,
            cpu: None,
            memory: None,
        }
    }
}

impl Quota {
    /// Checks that a run with this memory limit can ever start.
    ///
    /// # Errors
    /// Returns the key that prevents it.
    pub fn check(&self, memory: u64) -> Result<(), String> {
        if self.runs == 0 {
            return Err("runs: 0 lets no code run: set 1 or more".to_owned());
        }
        if self.cpu == Some(Duration::ZERO) {
            return Err("cpu_an_hour: 0 lets no code run: set a longer time".to_owned());
        }
        match self.memory {
            Some(max) if max < memory => Err(format!(
                "memory: {max} bytes are less than the {memory} bytes of one run: raise it, or lower `limits.memory` of \
                 the policy"
            )),
            _ => Ok(()),
        }
    }
}

/// The limit that prevents another run or session from starting.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Concurrent runs.
    #[error("this tenant already has {0} runs active or queued, its limit: retry later")]
    Runs(usize),
    /// Open sessions.
    #[error("this tenant already has {0} open sessions, its limit: close one")]
    Sessions(usize),
    /// Runs per second.
    #[error("this tenant may start {0} runs per second: retry later")]
    Rate(f64),
    /// CPU time per hour.
    #[error("this tenant has used its CPU time of {} s per hour: retry later", .0.as_secs())]
    Cpu(Duration),
    /// The sum of the memory limits.
    #[error(
        "the runs and open sessions of this tenant already reserve its {0} bytes of memory: close a session or \
         retry later"
    )]
    Memory(u64),
}

/// The current usage of a tenant.
#[derive(Debug)]
pub struct Account {
    quota: Quota,
    runs: usize,
    sessions: usize,
    memory: u64,
    rate: Option<Bucket>,
    cpu: Option<Bucket>,
}

/// A token bucket: an amount that is spent and refills over time.
#[derive(Debug)]
struct Bucket {
    level: f64,
    capacity: f64,
    per_second: f64,
    at: Instant,
}

impl Bucket {
    fn full(capacity: f64, per_second: f64, at: Instant) -> Self {
        Self {
            level: capacity,
            capacity,
            per_second,
            at,
        }
    }

    fn level(&mut self, now: Instant) -> f64 {
        self.level = self.level_at(now);
        self.at = now;
        self.level
    }

    fn level_at(&self, at: Instant) -> f64 {
        let passed = at.saturating_duration_since(self.at).as_secs_f64();
        (self.level + passed * self.per_second).min(self.capacity)
    }
}

impl Account {
    /// Creates an account without usage.
    pub fn new(quota: Quota, now: Instant) -> Self {
        const HOUR: f64 = 3600.0;
        let rate = quota
            .rate
            .map(|rate| Bucket::full((rate * 2.0).max(1.0), rate, now));
        let cpu = quota.cpu.map(|cpu| cpu.as_secs_f64());
        let cpu = cpu.map(|cpu| Bucket::full(cpu, cpu / HOUR, now));
        Self {
            quota,
            runs: 0,
            sessions: 0,
            memory: 0,
            rate,
            cpu,
        }
    }

    /// Counts a run or a cell that starts. `memory` is 0 for a cell, whose session already reserves memory.
    ///
    /// # Errors
    /// Returns the limit that is reached. Nothing is counted then.
    pub fn begin_run(&mut self, memory: u64, now: Instant) -> Result<(), Refusal> {
        self.check_run(memory, now)?;
        self.begin_next_cell(now)?;
        self.runs += 1;
        self.memory += memory;
        Ok(())
    }

    /// Counts a cell that starts within a run, which already reserves memory.
    ///
    /// # Errors
    /// Returns the rate limit if it is reached.
    pub fn begin_next_cell(&mut self, now: Instant) -> Result<(), Refusal> {
        if let (Some(rate), Some(quota)) = (&mut self.rate, self.quota.rate) {
            if rate.level(now) < 1.0 {
                return Err(Refusal::Rate(quota));
            }
            rate.level -= 1.0;
        }
        Ok(())
    }

    /// Checks that a run can start within `time`. Only lasting obstacles count: other runs end, and a rate limit
    /// passes.
    ///
    /// # Errors
    /// Returns the limit if the CPU time refills later, or if open sessions reserve the memory.
    pub fn may_begin_within(
        &self,
        time: Duration,
        memory: u64,
        now: Instant,
    ) -> Result<(), Refusal> {
        if self.runs == 0 {
            self.check_memory(memory)?;
        }
        match (&self.cpu, self.quota.cpu) {
            (Some(cpu), Some(quota)) if cpu.level_at(now + time) <= 0.0 => Err(Refusal::Cpu(quota)),
            _ => Ok(()),
        }
    }

    /// Counts setup work on a session (open, copy or restart) as a run. The rate limit does not apply to it.
    ///
    /// # Errors
    /// Returns the limit that is reached. Nothing is counted then.
    pub fn begin_setup(&mut self, now: Instant) -> Result<(), Refusal> {
        self.check_run(0, now)?;
        self.runs += 1;
        Ok(())
    }

    /// Returns whether the quota limits CPU time.
    pub const fn bounds_cpu(&self) -> bool {
        self.quota.cpu.is_some()
    }

    /// Counts the end of a run.
    pub fn end_run(&mut self, memory: u64) {
        self.runs -= 1;
        self.memory -= memory;
    }

    /// Charges CPU time, which may exceed the rest of the quota.
    pub fn used(&mut self, time: Duration) {
        if let Some(cpu) = &mut self.cpu {
            cpu.level -= time.as_secs_f64();
        }
    }

    /// Counts a session that opens.
    ///
    /// # Errors
    /// Returns the limit that is reached. Nothing is counted then.
    pub fn open_session(&mut self, memory: u64) -> Result<(), Refusal> {
        if self.sessions >= self.quota.sessions {
            return Err(Refusal::Sessions(self.quota.sessions));
        }
        self.check_memory(memory)?;
        self.sessions += 1;
        self.memory += memory;
        Ok(())
    }

    /// Counts the end of a session.
    pub fn close_session(&mut self, memory: u64) {
        self.sessions -= 1;
        self.memory -= memory;
    }

    fn check_run(&mut self, memory: u64, now: Instant) -> Result<(), Refusal> {
        if self.runs >= self.quota.runs {
            return Err(Refusal::Runs(self.quota.runs));
        }
        self.check_memory(memory)?;
        if let (Some(cpu), Some(quota)) = (&mut self.cpu, self.quota.cpu)
            && cpu.level(now) <= 0.0
        {
            return Err(Refusal::Cpu(quota));
        }
        Ok(())
    }

    fn check_memory(&self, more: u64) -> Result<(), Refusal> {
        match self.quota.memory {
            Some(max) if self.memory.saturating_add(more) > max => Err(Refusal::Memory(max)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(quota: Quota) -> (Account, Instant) {
        let now = Instant::now();
        (Account::new(quota, now), now)
    }

    #[test]
    fn runs_and_sessions_are_counted_until_they_end() {
        let (mut account, now) = account(Quota {
            runs: 1,
            sessions: 1,
            ..Quota::default()
        });
        assert_eq!(account.begin_run(0, now), Ok(()));
        assert_eq!(account.begin_run(0, now), Err(Refusal::Runs(1)));
        account.end_run(0);
        assert_eq!(account.begin_run(0, now), Ok(()));
        assert_eq!(account.open_session(0), Ok(()));
        assert_eq!(account.open_session(0), Err(Refusal::Sessions(1)));
        account.close_session(0);
        assert_eq!(account.open_session(0), Ok(()));
    }

    #[test]
    fn quota_that_prevents_every_run_is_rejected() {
        let has = |quota: Quota| quota.check(10).err();
        assert_eq!(has(Quota::default()), None);
        let memory = |most| Quota {
            memory: Some(most),
            ..Quota::default()
        };
        assert_eq!(has(memory(10)), None);
        let none = Quota {
            runs: 0,
            ..Quota::default()
        };
        let idle = Quota {
            cpu: Some(Duration::ZERO),
            ..Quota::default()
        };
        for (quota, key) in [
            (memory(9), "memory:"),
            (none, "runs:"),
            (idle, "cpu_an_hour:"),
        ] {
            assert!(
                has(quota).is_some_and(|problem| problem.starts_with(key)),
                "{key}"
            );
        }
    }

    #[test]
    fn memory_of_runs_and_sessions_is_summed() {
        let (mut account, now) = account(Quota {
            memory: Some(10),
            ..Quota::default()
        });
        assert_eq!(account.open_session(6), Ok(()));
        assert_eq!(account.begin_run(5, now), Err(Refusal::Memory(10)));
        assert_eq!(account.begin_run(4, now), Ok(()));
        assert_eq!(account.open_session(u64::MAX), Err(Refusal::Memory(10)));
        // Runs end by themselves, so memory that runs reserve is not an obstacle.
        assert_eq!(account.may_begin_within(Duration::ZERO, 10, now), Ok(()));
        account.end_run(4);
        let refused = account.may_begin_within(Duration::ZERO, 10, now);
        assert_eq!(refused, Err(Refusal::Memory(10)));
        account.close_session(6);
        assert_eq!(account.begin_run(10, now), Ok(()));
    }

    #[test]
    fn rate_limit_allows_a_burst_of_twice_the_rate() {
        let (mut account, now) = account(Quota {
            rate: Some(2.0),
            ..Quota::default()
        });
        let begun = |account: &mut Account, at| {
            (0..10).filter(|_| account.begin_run(0, at).is_ok()).count()
        };
        assert_eq!(begun(&mut account, now), 4);
        assert_eq!(begun(&mut account, now + Duration::from_secs(1)), 2);
        assert_eq!(begun(&mut account, now + Duration::from_secs(60)), 4);
        assert_eq!(account.begin_run(0, now), Err(Refusal::Rate(2.0)));
        assert_eq!(account.begin_setup(now), Ok(()));
    }

    #[test]
    fn cpu_time_refills_within_an_hour() {
        let hour = Duration::from_secs(3600);
        let (mut account, now) = account(Quota {
            cpu: Some(Duration::from_secs(36)),
            ..Quota::default()
        });
        assert_eq!(account.begin_run(0, now), Ok(()));
        account.used(Duration::from_secs(40));
        account.end_run(0);
        assert_eq!(
            account.begin_run(0, now),
            Err(Refusal::Cpu(Duration::from_secs(36)))
        );
        assert!(account.begin_setup(now).is_err());
        assert!(account.may_begin_within(hour / 10, 0, now).is_err());
        assert_eq!(account.may_begin_within(hour / 8, 0, now), Ok(()));
        // A debt of 4 s takes 400 s to refill at 36 s per hour.
        assert!(account.begin_run(0, now + hour / 10).is_err());
        assert_eq!(account.begin_run(0, now + hour / 8), Ok(()));
    }
}
