//! What a tenant has running, and may still begin. Pure: the caller brings the clock.

use std::time::{Duration, Instant};

/// What a tenant may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// Runs and cells at once, those that wait for their turn included.
    pub runs: usize,
    /// Open sessions.
    pub sessions: usize,
    /// Runs and cells that begin in a second. Twice as many may begin at once after a pause.
    pub rate: Option<f64>,
    /// Processor time of each hour.
    pub cpu: Option<Duration>,
    /// Bytes of memory that all runs and open sessions together may come to use.
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
    /// Checks that a run, which may come to use so much memory, can begin at some time.
    ///
    /// # Errors
    /// The key that does not let it.
    pub fn check(&self, memory: u64) -> Result<(), String> {
        if self.runs == 0 {
            return Err("runs: without any, no code runs".to_owned());
        }
        if self.cpu == Some(Duration::ZERO) {
            return Err("cpu_an_hour: without any, no code runs".to_owned());
        }
        match self.memory {
            Some(most) if most < memory => Err(format!(
                "memory: {most} bytes are less than the {memory} of one run: raise it, or lower limits.memory of the policy"
            )),
            _ => Ok(()),
        }
    }
}

/// Why nothing more begins now.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Too many runs.
    #[error(
        "{0} runs of this tenant are active or wait, the most that it may have: try again later"
    )]
    Runs(usize),
    /// Too many sessions.
    #[error("{0} sessions of this tenant are open, the most that it may have: close one")]
    Sessions(usize),
    /// Too many in a second.
    #[error("this tenant may begin {0} runs in a second: try again later")]
    Rate(f64),
    /// The hour's processor time is used up.
    #[error("this tenant has used up its processor time of {} s in an hour: try again later", .0.as_secs())]
    Cpu(Duration),
    /// The sum of the memory limits.
    #[error(
        "the runs and sessions of this tenant may use its {0} bytes of memory already: close a session or try again later"
    )]
    Memory(u64),
}

/// The count of one tenant.
#[derive(Debug)]
pub struct Account {
    quota: Quota,
    runs: usize,
    sessions: usize,
    memory: u64,
    rate: Option<Bucket>,
    cpu: Option<Bucket>,
}

/// An amount that is used up and comes back with time.
#[derive(Debug)]
struct Bucket {
    level: f64,
    most: f64,
    in_a_second: f64,
    at: Instant,
}

impl Bucket {
    fn full(most: f64, in_a_second: f64, at: Instant) -> Self {
        Self {
            level: most,
            most,
            in_a_second,
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
        (self.level + passed * self.in_a_second).min(self.most)
    }
}

impl Account {
    /// An account of which nothing is used.
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

    /// Counts a run, or a cell, that begins. One of a session has its memory already.
    ///
    /// # Errors
    /// If none may begin. Nothing is counted then.
    pub fn begin_run(&mut self, memory: u64, now: Instant) -> Result<(), Refusal> {
        self.check_run(memory, now)?;
        self.begin_another(now)?;
        self.runs += 1;
        self.memory += memory;
        Ok(())
    }

    /// Counts a cell that begins in a run, which has its memory.
    ///
    /// # Errors
    /// If the rate lets none begin.
    pub fn begin_another(&mut self, now: Instant) -> Result<(), Refusal> {
        if let (Some(rate), Some(quota)) = (&mut self.rate, self.quota.rate) {
            if rate.level(now) < 1.0 {
                return Err(Refusal::Rate(quota));
            }
            rate.level -= 1.0;
        }
        Ok(())
    }

    /// Checks that a run can begin within this time. Runs end, and a rate lets the next one begin soon.
    ///
    /// # Errors
    /// If the processor time comes back later, or sessions have the memory.
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

    /// Counts work on a session as a run: it is opened, copied or restarted. The rate is that of runs and cells.
    ///
    /// # Errors
    /// If none may begin. Nothing is counted then.
    pub fn begin_setup(&mut self, now: Instant) -> Result<(), Refusal> {
        self.check_run(0, now)?;
        self.runs += 1;
        Ok(())
    }

    /// Whether the quota bounds the processor time.
    pub const fn bounds_cpu(&self) -> bool {
        self.quota.cpu.is_some()
    }

    /// Counts its end.
    pub fn end_run(&mut self, memory: u64) {
        self.runs -= 1;
        self.memory -= memory;
    }

    /// Counts processor time, which may be more than was left.
    pub fn used(&mut self, time: Duration) {
        if let Some(cpu) = &mut self.cpu {
            cpu.level -= time.as_secs_f64();
        }
    }

    /// Counts a session that opens.
    ///
    /// # Errors
    /// If none may open. Nothing is counted then.
    pub fn open_session(&mut self, memory: u64) -> Result<(), Refusal> {
        if self.sessions >= self.quota.sessions {
            return Err(Refusal::Sessions(self.quota.sessions));
        }
        self.check_memory(memory)?;
        self.sessions += 1;
        self.memory += memory;
        Ok(())
    }

    /// Counts its end.
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
            Some(most) if self.memory.saturating_add(more) > most => Err(Refusal::Memory(most)),
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
    fn a_quota_that_lets_nothing_begin_is_refused() {
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
    fn memory_is_that_of_runs_and_sessions_together() {
        let (mut account, now) = account(Quota {
            memory: Some(10),
            ..Quota::default()
        });
        assert_eq!(account.open_session(6), Ok(()));
        assert_eq!(account.begin_run(5, now), Err(Refusal::Memory(10)));
        assert_eq!(account.begin_run(4, now), Ok(()));
        assert_eq!(account.open_session(u64::MAX), Err(Refusal::Memory(10)));
        // A run will end.
        assert_eq!(account.may_begin_within(Duration::ZERO, 10, now), Ok(()));
        account.end_run(4);
        let refused = account.may_begin_within(Duration::ZERO, 10, now);
        assert_eq!(refused, Err(Refusal::Memory(10)));
        account.close_session(6);
        assert_eq!(account.begin_run(10, now), Ok(()));
    }

    #[test]
    fn a_rate_allows_twice_as_many_after_a_pause() {
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
    fn processor_time_comes_back_within_an_hour() {
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
        // 4 s are owed: they take 400 s at 36 s an hour.
        assert!(account.begin_run(0, now + hour / 10).is_err());
        assert_eq!(account.begin_run(0, now + hour / 8), Ok(()));
    }
}
