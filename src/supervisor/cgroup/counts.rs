//! The counters of a worker's cgroup, and whether the cgroup can be used for another worker.

/// The counters of a cgroup.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Peak memory in bytes.
    pub peak_memory: Option<u64>,
    /// Peak number of tasks.
    pub peak_pids: Option<u64>,
    /// CPU time in microseconds.
    pub cpu_us: Option<u64>,
    /// Processes that the kernel's OOM killer ended.
    pub oom_kills: u64,
    /// Forks and threads that the kernel refused, if it counts them. Kernels before Linux 6.1 may count them although
    /// they do not report the peak (`pids.peak`).
    pub refused_forks: Option<u64>,
}

impl Counts {
    /// Returns the counts since an earlier reading. Peaks stay those of the cgroup's whole life.
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

    /// Whether a cgroup with these counts is indistinguishable from a new one for the next worker: no state remains
    /// that this worker could observe or be charged for.
    ///
    /// The kernel can reset only the memory peak. CPU time is subtracted ([`Counts::since`]), but if a worker used up
    /// its share of a period, the next one would be throttled for the rest of that period.
    pub fn left_nothing(&self) -> bool {
        let light = self.cpu_us.is_some_and(|us| us <= LIGHT_CPU_US);
        let alone = self.peak_pids.is_none_or(|peak| peak <= 1);
        light && alone && self.oom_kills == 0 && self.refused_forks.unwrap_or(0) == 0
    }
}

/// A quarter of the period of the CPU quota (100 ms), in microseconds. A worker that used more ran so long that the
/// cost of a new cgroup does not matter.
const LIGHT_CPU_US: u64 = 25_000;

/// The maximum memory that may stay charged to a spare cgroup, in bytes. It covers what the kernel charges ahead per
/// CPU (64 pages), but no files that a worker read into the page cache.
pub const MAX_CHARGED: u64 = 1 << 20;

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
    fn light_run_leaves_nothing() {
        assert!(LIGHT.left_nothing());
        let old_kernel = Counts {
            peak_pids: None,
            ..LIGHT
        };
        assert!(old_kernel.left_nothing());
    }

    #[test]
    fn observable_counts_prevent_reuse() {
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
