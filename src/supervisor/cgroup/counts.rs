//! What a worker's cgroup counted, and whether it may have another worker after that.

/// What a cgroup counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Largest memory, bytes.
    pub peak_memory: Option<u64>,
    /// Largest number of tasks.
    pub peak_pids: Option<u64>,
    /// Processor time, microseconds.
    pub cpu_us: Option<u64>,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
    /// Forks and threads that were refused, where they are counted. The kernel has not always told
    /// the largest number beside it (`pids.peak`, Linux 6.1).
    pub refused_forks: Option<u64>,
}

impl Counts {
    /// What was counted since an earlier look; peaks stay those of the whole life.
    #[must_use]
    pub fn since(self, earlier: &Self) -> Self {
        let cpu_then = earlier.cpu_us.unwrap_or(0);
        let forks_then = earlier.refused_forks.unwrap_or(0);
        Self {
            cpu_us: self.cpu_us.map(|now| now.saturating_sub(cpu_then)),
            oom_kills: self.oom_kills.saturating_sub(earlier.oom_kills),
            refused_forks: self.refused_forks.map(|now| now.saturating_sub(forks_then)),
            ..self
        }
    }

    /// Whether a cgroup that counted this for one worker can be told from a new one by nothing that
    /// the next worker would see or be charged.
    ///
    /// The kernel resets none of these counts but the peak of memory. Processor time is taken off
    /// ([`Counts::since`]), but a worker that used up its share of a period would leave the next one
    /// to wait for the rest of it.
    pub fn left_nothing(&self) -> bool {
        let light = self.cpu_us.is_some_and(|us| us <= LIGHT_CPU_US);
        let alone = self.peak_pids.is_none_or(|peak| peak <= 1);
        light && alone && self.oom_kills == 0 && self.refused_forks.unwrap_or(0) == 0
    }
}

/// A quarter of the period over which the kernel counts a whole processor. What used more took long
/// enough for a new cgroup to be no matter.
const LIGHT_CPU_US: u64 = 25_000;

/// Memory that may stay charged to a spare cgroup, bytes: what the kernel charges ahead for each
/// processor (64 pages), but no files that a worker read into the page cache.
pub const MOST_CHARGED: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const LIGHT: Counts = Counts {
        peak_memory: Some(4 << 20),
        peak_pids: Some(1),
        cpu_us: Some(2_000),
        oom_kills: 0,
        refused_forks: Some(0),
    };

    #[test]
    fn a_light_run_leaves_nothing() {
        assert!(LIGHT.left_nothing());
        let old_kernel = Counts {
            peak_pids: None,
            ..LIGHT
        };
        assert!(old_kernel.left_nothing());
    }

    #[test]
    fn what_the_next_worker_could_notice_is_left() {
        let left = [
            Counts {
                peak_pids: Some(2),
                ..LIGHT
            },
            Counts {
                cpu_us: Some(LIGHT_CPU_US + 1),
                ..LIGHT
            },
            Counts {
                cpu_us: None,
                ..LIGHT
            },
            Counts {
                oom_kills: 1,
                ..LIGHT
            },
            Counts {
                refused_forks: Some(1),
                ..LIGHT
            },
        ];
        for counts in left {
            assert!(!counts.left_nothing(), "{counts:?}");
        }
    }
}
