//! The time that each phase of a run took.

use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The durations of the consecutive phases of a run, on the supervisor's clock. Together they cover the
/// run from the call to the return, except for the final bookkeeping.
///
/// In JSON, each phase is a whole number of microseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Phases {
    /// Creating the worker's cgroup, sockets and pipes, and sending the request to the zygote.
    pub place: Duration,
    /// Waiting until the zygote had forked.
    pub fork: Duration,
    /// Waiting until the worker's jail was complete.
    pub jail: Duration,
    /// The steps of the jail on the worker's clock. Some of them overlap with the `fork` phase.
    pub jail_steps: JailSteps,
    /// Checking the worker from outside.
    pub verify: Duration,
    /// From sending the code to its result, or to the end of a worker that sent no result.
    pub code: Duration,
    /// Waiting until the worker's main process had exited.
    pub exit: Duration,
    /// Waiting until no process of the worker was left.
    pub reap: Duration,
}

/// The time that each step of `docs/jail-order.md` took in a worker. The worker reports the times before it
/// receives guest code, which could forge them. All are zero if a ready worker was used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct JailSteps {
    /// Closing inherited descriptors.
    pub descriptors: Duration,
    /// Joining its cgroup.
    pub cgroup: Duration,
    /// Entering its namespaces, except the user namespace.
    pub namespaces: Duration,
    /// Mounting its private file systems.
    pub mounts: Duration,
    /// Setting its resource limits.
    pub limits: Duration,
    /// Entering its user namespace with the ID maps, the session and the work directory.
    pub identity: Duration,
    /// Enforcing its Landlock rules.
    pub landlock: Duration,
    /// Dropping its capabilities.
    pub capabilities: Duration,
    /// Loading its seccomp filter.
    pub seccomp: Duration,
}

impl Phases {
    /// Returns the time from the call until the result was known.
    pub fn until_result(&self) -> Duration {
        self.place + self.fork + self.jail + self.verify + self.code
    }

    /// Returns each phase with its name, in order.
    pub fn each(&self) -> [(&'static str, Duration); 7] {
        [
            ("place", self.place),
            ("fork", self.fork),
            ("jail", self.jail),
            ("verify", self.verify),
            ("code", self.code),
            ("exit", self.exit),
            ("reap", self.reap),
        ]
    }

    /// Returns whether these are the phases of a session's cell, after which the worker lives on, and not of a run.
    pub(super) fn is_session_cell(&self) -> bool {
        let cell = Self {
            code: self.code,
            ..Self::default()
        };
        *self == cell
    }
}

impl JailSteps {
    /// Returns each step with its name, in order.
    pub fn each(&self) -> [(&'static str, Duration); 9] {
        [
            ("descriptors", self.descriptors),
            ("cgroup", self.cgroup),
            ("namespaces", self.namespaces),
            ("mounts", self.mounts),
            ("limits", self.limits),
            ("identity", self.identity),
            ("landlock", self.landlock),
            ("capabilities", self.capabilities),
            ("seccomp", self.seccomp),
        ]
    }
}

/// Converts a duration to whole microseconds.
pub fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Serialize for Phases {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, time) in self.each() {
            map.serialize_entry(name, &microseconds(time))?;
        }
        map.serialize_entry("jail_steps", &self.jail_steps)?;
        map.end()
    }
}

impl Serialize for JailSteps {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let each = self.each();
        serializer.collect_map(each.map(|(name, time)| (name, microseconds(time))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn phases_are_whole_microseconds() {
        let phases = Phases {
            place: Duration::from_nanos(1_999),
            code: Duration::from_millis(3),
            jail_steps: JailSteps {
                mounts: Duration::from_micros(7),
                ..JailSteps::default()
            },
            ..Phases::default()
        };
        let json = serde_json::to_value(phases).expect("it is a map");
        assert_eq!(json["place"], 1);
        assert_eq!(json["code"], 3000);
        assert_eq!(json["jail_steps"]["mounts"], 7);
        assert_eq!(json["jail_steps"]["seccomp"], json!(0));
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(8));
    }

    #[test]
    fn session_cell_has_only_the_code_phase() {
        let code = Duration::from_millis(3);
        let cell = Phases {
            code,
            ..Phases::default()
        };
        assert!(cell.is_session_cell());
        let exit = Duration::from_micros(1);
        assert!(!Phases { exit, ..cell }.is_session_cell());
    }
}
