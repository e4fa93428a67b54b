//! Measures how long the parts of a worker's jail take.
//!
//! The worker reads the clock itself and sends the times with the report that its jail is complete. No guest code that
//! could falsify them is in its process yet. Reading the clock through the vDSO (vdso(7)) costs less than a system
//! call.

use std::time::{Duration, Instant};

/// A group of consecutive steps in [`worker`](super).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// Closing inherited descriptors.
    Descriptors,
    /// Joining the cgroup.
    Cgroup,
    /// Mount, IPC, UTS and cgroup namespaces, and the network namespace if the jail has one.
    Namespaces,
    /// Private file systems, `/proc`, and opening the writable directories.
    Mounts,
    /// Resource limits and processor pinning.
    Limits,
    /// The user namespace with its id maps, session, work directory and process limits.
    Identity,
    /// Enforcing the Landlock rules and checking them.
    Landlock,
    /// Dropping capabilities.
    Capabilities,
    /// Loading the filters.
    Seccomp,
}

impl Part {
    /// The number of parts.
    pub const COUNT: usize = Self::Seccomp as usize + 1;
}

/// The duration of each part, in nanoseconds. Saturates at about four seconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timing([u32; Part::COUNT]);

impl Timing {
    /// The encoded length, bytes.
    pub const LENGTH: usize = 4 * Part::COUNT;

    /// Returns the duration of a part; zero if the plan has no such part.
    pub fn of(&self, part: Part) -> Duration {
        Duration::from_nanos(self.0[part as usize].into())
    }

    /// Returns the total duration.
    pub fn total(&self) -> Duration {
        let nanoseconds: u64 = self.0.iter().copied().map(u64::from).sum();
        Duration::from_nanos(nanoseconds)
    }

    /// Encodes the durations, little-endian, in order of the parts.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        for (place, time) in bytes.chunks_exact_mut(4).zip(self.0) {
            place.copy_from_slice(&time.to_le_bytes());
        }
        bytes
    }

    /// Decodes the result of [`encode`](Self::encode).
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut times = [0; Part::COUNT];
        for (time, place) in times.iter_mut().zip(bytes.chunks_exact(4)) {
            *time = place
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        }
        Self(times)
    }
}

/// A stopwatch for consecutive parts.
#[derive(Debug)]
pub struct Stopwatch {
    since: Instant,
    timing: Timing,
}

impl Stopwatch {
    /// Starts timing the first part.
    pub fn start() -> Self {
        Self {
            since: Instant::now(),
            timing: Timing::default(),
        }
    }

    /// Ends a part and starts timing the next.
    pub fn end_of(&mut self, part: Part) {
        let now = Instant::now();
        let took = (now - self.since).as_nanos();
        self.timing.0[part as usize] = u32::try_from(took).unwrap_or(u32::MAX);
        self.since = now;
    }

    /// Returns the durations of the parts so far.
    pub fn timing(&self) -> Timing {
        self.timing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_round_trips() {
        let mut times = [0; Part::COUNT];
        for (time, value) in times.iter_mut().zip([1, 0x0102_0304, u32::MAX]) {
            *time = value;
        }
        let timing = Timing(times);
        assert_eq!(Timing::decode(&timing.encode()), timing);
        let took = timing.of(Part::Cgroup);
        assert_eq!(took, Duration::from_nanos(0x0102_0304));
    }

    #[test]
    fn each_part_starts_where_the_previous_ended() {
        let mut stopwatch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(2));
        stopwatch.end_of(Part::Mounts);
        stopwatch.end_of(Part::Seccomp);
        let timing = stopwatch.timing();
        assert!(timing.of(Part::Mounts) >= Duration::from_millis(2));
        assert_eq!(timing.of(Part::Landlock), Duration::ZERO);
    }
}
