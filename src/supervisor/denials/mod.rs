//! Derives the denials of an outcome from what the kernel counted, what the supervisor refused and what the guest
//! claims, with the setting of the policy that governs each.

use std::path::Path;

use nix::errno::Errno;

use super::cgroup::Counts;
use crate::outcome::{
    Connection, Denial, Ending, Layer, LimitHit, LimitName, Limits, Mechanism, Reporter,
};
use crate::plan::{Explanation, Grants, PathVerdict, Want, of_connection, of_limit, quota_of};
use crate::protocol::Denied;
use crate::supervisor::refused_calls::{RefusedCall, RefusedCalls};
use sandfork_egress::refusal::Refusal;

/// The maximum number of denials in an outcome, and of claims that are considered.
const MAX: usize = 64;

/// The maximum length of a target or file name in bytes: `PATH_MAX`.
const LONGEST: usize = 4096;

/// Everything that is known about a run's refusals.
pub struct Refused<'a> {
    /// The run's grants.
    pub grants: &'a Grants,
    /// The limits of the run.
    pub limits: &'a Limits,
    /// The limits of the run's policy.
    pub of_policy: &'a Limits,
    /// How the run ended.
    pub ending: &'a Ending,
    /// The counters of its cgroup.
    pub counts: &'a Counts,
    /// Who reported that a process of the run ran out of memory, if one did.
    pub without_memory: Option<Reporter>,
    /// The file quota that is exhausted at the end of the run.
    pub full: Option<LimitName>,
    /// The connections that the run attempted.
    pub connections: &'a [Connection],
    /// The calls that the seccomp filter refused.
    pub calls: &'a RefusedCalls,
    /// The guest's claims about refusals.
    pub claims: Vec<Denied>,
    /// The guest's directory on the host, if it has no file systems of its own.
    pub own: Option<&'a Path>,
    /// Whether the host has a path. `None` if that is uncertain, or if the host may not be consulted.
    pub exists: &'a dyn Fn(&Path) -> Option<bool>,
}

/// Denials, with the most likely cause of the run's end first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Denials {
    /// At most [`MAX`] distinct denials.
    pub listed: Vec<Denial>,
    /// The number of refusals that are not listed.
    pub omitted: u64,
}

/// The size quotas of private file systems.
const QUOTAS: [LimitName; 2] = [LimitName::TmpSize, LimitName::WorkSize];

impl Refused<'_> {
    fn limit(&self, hit: LimitHit) -> Denial {
        let (layer, reported_by) = match hit.by {
            Mechanism::Cgroup => (Some(Layer::Cgroup), Reporter::Kernel),
            // The kernel measures CPU time. For other rlimits there is only the guest's exception, or a signal that the
            // guest could have sent itself.
            Mechanism::Rlimit if hit.name == LimitName::Cpu => {
                (Some(Layer::Rlimits), Reporter::Kernel)
            }
            Mechanism::Rlimit => (Some(Layer::Rlimits), Reporter::Guest),
            Mechanism::Tmpfs => (Some(Layer::Mounts), Reporter::Kernel),
            Mechanism::Interpreter => (None, Reporter::Guest),
            Mechanism::Watchdog | Mechanism::Deadline | Mechanism::Supervisor => {
                (None, Reporter::Supervisor)
            }
        };
        let mut explained = of_limit(hit.name, self.limits, layer);
        if self.limits.amount(hit.name) != self.of_policy.amount(hit.name) {
            // A larger value of the key would not raise a limit that the caller set for this run.
            explained.value = None;
        }
        Denial {
            target: Some(self.limits.named(hit.name)),
            ..denial("limit", reported_by, &explained)
        }
    }

    /// Returns all denials with their explanations.
    pub fn explained(&self) -> Denials {
        let mut all = Denials::default();
        for (position, claim) in self.claims.iter().enumerate() {
            if position >= MAX || claim.operation == "more" {
                all.omitted = all.omitted.saturating_add(claim.count);
                continue;
            }
            all.extend(self.quotas(claim));
            all.extend(self.claim(claim));
        }
        if let Ending::Limit(hit) = self.ending {
            all.add(self.limit(*hit));
            all.extend(self.quotas_below(*hit));
        }
        all.extend(self.full());
        all.extend(self.memory());
        if let Some(count @ 1..) = self.counts.refused_forks {
            let explained = of_limit(LimitName::Pids, self.limits, Some(Layer::Cgroup));
            all.add(Denial {
                count,
                ..denial("fork", Reporter::Kernel, &explained)
            });
        }
        let connections = self.connections.iter();
        all.extend(connections.filter_map(|connection| self.connection(connection)));
        let calls = self.calls.each();
        for (call, count) in &calls {
            all.add_call(self.call(*call, *count), calls.len());
        }
        all
    }

    /// Returns the denial of a call that the filter refused.
    fn call(&self, call: RefusedCall, count: u64) -> Denial {
        let (operation, target, explained) = match call {
            RefusedCall::InternetSocket => ("socket", None, self.grants.of_socket()),
            RefusedCall::Named(name) => ("system call", Some(name.to_owned()), None),
        };
        let name = target.as_deref().unwrap_or(operation);
        let explained = explained.unwrap_or_else(|| self.grants.of_call(name));
        Denial {
            target,
            errno: Some(call.errno() as i32),
            count,
            ..denial(operation, Reporter::Supervisor, &explained)
        }
    }

    /// Returns the quotas that the guest may have reached when it found no space left, unless the ending names one. The
    /// ending names none if the guest has since removed what it wrote, or requested more at once than was left. A path
    /// in the claim selects one.
    fn quotas(&self, claim: &Denied) -> Vec<Denial> {
        let is_named = matches!(self.ending, Ending::Limit(hit) if hit.by == Mechanism::Tmpfs);
        if claim.operation != "space" || is_named || self.own.is_some() {
            return Vec::new();
        }
        let is_in = |name| {
            claim
                .target
                .as_ref()
                .is_none_or(|path| quota_of(Path::new(path)) == Some(name))
        };
        let quotas = QUOTAS.into_iter().filter(|name| is_in(*name));
        let claimed = quotas.map(|name| Denial {
            errno: claim.errno,
            file: claim.file.clone(),
            line: claim.line,
            count: claim.count.max(1),
            ..self.quota(name)
        });
        claimed.collect()
    }

    /// Returns the quotas that leave no room for a larger file, if the file size was the limit.
    fn quotas_below(&self, hit: LimitHit) -> Vec<Denial> {
        let is_file = hit.name == LimitName::FileSize && self.own.is_none();
        let is_below = |name: &LimitName| {
            is_file && self.limits.amount(*name) <= self.limits.amount(LimitName::FileSize)
        };
        let below = QUOTAS.into_iter().filter(is_below);
        below.map(|name| self.quota(name)).collect()
    }

    fn quota(&self, name: LimitName) -> Denial {
        let by = Mechanism::Tmpfs;
        Denial {
            reported_by: Reporter::Guest,
            ..self.limit(LimitHit { name, by })
        }
    }

    /// Returns the quota that is exhausted at the end of a failed run that reached no other limit.
    fn full(&self) -> Option<Denial> {
        let name = self.full?;
        let has_failed = matches!(
            self.ending,
            Ending::Exit(1..) | Ending::Signal(_) | Ending::Exception
        );
        let by = Mechanism::Tmpfs;
        has_failed.then(|| self.limit(LimitHit { name, by }))
    }

    /// Returns the denial of memory to a process of the run. `None` if the ending names the limit, or if the guest
    /// succeeded and nothing but its claim reports it.
    fn memory(&self) -> Option<Denial> {
        let (layer, count) = match (self.without_memory?, self.ending) {
            (_, Ending::Limit(hit)) if hit.name == LimitName::Memory => return None,
            (Reporter::Guest, Ending::Ok | Ending::Exit(0)) => return None,
            (Reporter::Guest, _) => (Layer::Rlimits, 1),
            _ => (Layer::Cgroup, self.counts.oom_kills),
        };
        let explained = of_limit(LimitName::Memory, self.limits, Some(layer));
        Some(Denial {
            count,
            ..denial(Denial::MEMORY, self.without_memory?, &explained)
        })
    }

    /// Returns the denial of a connection that the policy refused.
    fn connection(&self, connection: &Connection) -> Option<Denial> {
        if connection.verdict != "refused" {
            return None;
        }
        let (host, port) = (connection.host.as_str(), connection.port);
        let refusal = Refusal::named(connection.reason?)?;
        let explained = of_connection(refusal, host, port, self.limits);
        let place = match port {
            Some(port) if host.contains(':') => format!("[{host}]:{port}"),
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Some(Denial {
            target: Some(place).filter(|place| !place.is_empty()),
            reason: connection.reason,
            count: connection.count,
            ..denial("connect", Reporter::Supervisor, &explained)
        })
    }

    /// Turns a claim into a denial. `None` if the plan grants what the claim says was refused, or if the worker's code
    /// never makes such a claim.
    fn claim(&self, claim: &Denied) -> Option<Denial> {
        let is_short = |text: &Option<String>| text.as_ref().is_none_or(|it| it.len() <= LONGEST);
        if ![&claim.target, &claim.file, &claim.changes]
            .into_iter()
            .all(is_short)
        {
            return None;
        }
        let (explained, on_host) = match (claim.operation.as_str(), claim.target.as_deref()) {
            ("import", Some(module)) => (self.grants.of_import(module)?, None),
            ("socket", None) => (self.grants.of_socket()?, None),
            ("connect", Some(target)) => (self.grants.of_host(target)?, None),
            ("system call", None) => (Explanation::default(), None),
            ("access", Some(target)) => self.path(target, Want::Read, claim)?,
            ("run", Some(target)) => self.path(target, Want::Run, claim)?,
            _ => return None,
        };
        Some(Denial {
            target: claim.target.clone(),
            errno: claim.errno,
            file: claim.file.clone(),
            line: claim.line,
            on_host,
            count: claim.count.max(1),
            ..denial(claim.operation.as_str(), Reporter::Guest, &explained)
        })
    }

    /// Returns the plan's explanation for a path, and whether the host has the path. An error does not reveal whether
    /// the guest wanted to read or write. A read-only file system refuses only writes. Landlock returns the same error
    /// as file permissions; the claim then says what the guest wanted to change.
    fn path(
        &self,
        target: &str,
        want: Want,
        claim: &Denied,
    ) -> Option<(Explanation, Option<bool>)> {
        let path = Path::new(target);
        let errno = claim.errno.map(Errno::from_raw);
        let is_missing = matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR));
        // Paths that the plan hides or shows read-only never yield EPERM.
        if errno == Some(Errno::EPERM)
            && let Some(explained) = self.grants.of_program(path, want)
        {
            return Some((explained, None));
        }
        let changed = claim.changes.as_deref().map(Path::new);
        let changed = changed.filter(|it| it.is_absolute() && path.starts_with(it));
        let changed = changed.or((errno == Some(Errno::EROFS)).then_some(path));
        let changed = changed.filter(|_| want == Want::Read);
        let want = changed.map_or(want, |_| Want::Write);
        if is_missing
            && let Some(explained) = self.grants.of_own_directory(path, want)
            && (self.exists)(path) == Some(true)
        {
            return Some((explained, Some(true)));
        }
        match self.grants.of_path(path, want, self.own) {
            PathVerdict::Hidden(explained) => match (self.exists)(path) {
                Some(false) if want == Want::Write => self.new_path(path),
                Some(false) => None,
                found => Some((explained, found)),
            },
            // The host lacks the directory as well.
            PathVerdict::Refused(_) if is_missing && want == Want::Write => None,
            PathVerdict::Refused(explained) => {
                let above = changed.map(|changed| self.grants.of_path(changed, want, self.own));
                match above {
                    // A setting can only show a path that exists.
                    Some(PathVerdict::Refused(above)) => Some((above, None)),
                    _ => Some((explained, None)),
                }
            }
            // Refused by the file's permissions.
            PathVerdict::Granted => {
                let is_refusal = matches!(errno, Some(Errno::EACCES | Errno::EPERM | Errno::EROFS));
                is_refusal.then(|| (Explanation::default(), None))
            }
        }
    }

    /// Returns the explanation for a path that the guest wanted to create and that the host lacks: a setting can show
    /// the nearest parent directory that the host has.
    fn new_path(&self, path: &Path) -> Option<(Explanation, Option<bool>)> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        // From the top, so that the host's directories bound the number of lookups that a guest can cause.
        let found = above
            .into_iter()
            .take_while(|it| (self.exists)(it) == Some(true));
        match self.grants.of_path(found.last()?, Want::Write, self.own) {
            PathVerdict::Hidden(explained) | PathVerdict::Refused(explained) => {
                Some((explained, Some(false)))
            }
            PathVerdict::Granted => None,
        }
    }
}

impl Denials {
    /// Adds a call that the filter refused, one of `calls` refused calls. A claim of the guest about the same call adds
    /// its position, and a claim about a connection replaces the denial of the socket.
    fn add_call(&mut self, denial: Denial, calls: usize) {
        let of_guest = |other: &Denial| other.reported_by == Reporter::Guest;
        let is_connection = |other: &Denial| of_guest(other) && other.operation == "connect";
        if denial.operation == "socket" && self.listed.iter().any(is_connection) {
            return;
        }
        let is_same = |other: &&mut Denial| {
            of_guest(other)
                && (&other.operation, other.errno) == (&denial.operation, denial.errno)
                && (other.target == denial.target || other.target.is_none() && calls == 1)
        };
        match self.listed.iter_mut().find(is_same) {
            Some(same) => {
                *same = Denial {
                    file: same.file.take(),
                    line: same.line,
                    ..denial
                }
            }
            None => self.add(denial),
        }
    }

    fn extend(&mut self, denials: impl IntoIterator<Item = Denial>) {
        denials.into_iter().for_each(|denial| self.add(denial));
    }

    fn add(&mut self, denial: Denial) {
        let same = |other: &&mut Denial| {
            Denial {
                count: denial.count,
                ..(*other).clone()
            } == denial
        };
        if let Some(same) = self.listed.iter_mut().find(same) {
            same.count = same.count.saturating_add(denial.count);
        } else if self.listed.len() < MAX {
            self.listed.push(denial);
        } else {
            self.omitted = self.omitted.saturating_add(denial.count);
        }
    }
}

fn denial(operation: impl Into<String>, reported_by: Reporter, explained: &Explanation) -> Denial {
    Denial {
        layer: explained.layer,
        key: explained.key.map(str::to_owned),
        set: explained.set(),
        ..Denial::new(operation, reported_by)
    }
}

#[cfg(test)]
mod tests;
