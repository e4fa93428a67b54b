//! The denials of an outcome: what the kernel told of, what the supervisor did, and what the guest claims, with
//! what a policy says of each.

use std::path::Path;

use nix::errno::Errno;

use super::cgroup::Counts;
use crate::outcome::{Denial, Ending, Layer, LimitHit, LimitName, Limits, Mechanism, Reporter};
use crate::plan::{Explanation, Grants, PathVerdict, Want, of_limit};
use crate::protocol::Denied;

/// The most denials of one outcome, and the most claims of a guest that are looked at.
const MOST: usize = 64;

/// The longest text of a target or a file, bytes: `PATH_MAX`.
const LONGEST: usize = 4096;

/// What is known of a run's refusals.
pub struct Refused<'a> {
    /// The run's grants.
    pub grants: &'a Grants,
    /// The limits of the run.
    pub limits: &'a Limits,
    /// How it ended.
    pub ending: &'a Ending,
    /// What the cgroup counted.
    pub counts: &'a Counts,
    /// Who tells that a process of the run found no memory.
    pub without_memory: Option<Reporter>,
    /// What the guest says that it was refused.
    pub claims: Vec<Denied>,
    /// The guest's own directory on the host, if it has no file system of its own.
    pub own: Option<&'a Path>,
    /// Whether the host has a path. `None` if it has no certain answer, or may not be asked.
    pub exists: &'a dyn Fn(&Path) -> Option<bool>,
}

/// Denials, the one that most likely ended the run first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Denials {
    /// At most [`MOST`], each of them once.
    pub listed: Vec<Denial>,
    /// How many refusals are in none of them.
    pub omitted: u64,
}

impl Refused<'_> {
    /// All of them, explained.
    pub fn explained(&self) -> Denials {
        let mut all = Denials::default();
        for (position, claim) in self.claims.iter().enumerate() {
            if position >= MOST || claim.operation == "more" {
                all.omitted = all.omitted.saturating_add(claim.count);
                continue;
            }
            if let Some(denial) = self.claim(claim) {
                all.add(denial);
            }
        }
        if let Ending::Limit(hit) = self.ending {
            all.add(limit(*hit, self.limits));
        }
        if let Some(memory) = self.memory() {
            all.add(memory);
        }
        if let Some(count @ 1..) = self.counts.refused_forks {
            let explained = of_limit(LimitName::Pids, self.limits, Some(Layer::Cgroup));
            all.add(Denial {
                count,
                ..denial("fork", Reporter::Kernel, &explained)
            });
        }
        all
    }

    /// The memory that a process of the run did not get. None if the ending names the limit, or the guest ended
    /// well and only its words tell of it.
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

    /// What a claim amounts to. None if the plan grants what it says was refused, or it is not a claim that the
    /// guest's side makes.
    fn claim(&self, claim: &Denied) -> Option<Denial> {
        let is_short = |text: &Option<String>| text.as_ref().is_none_or(|it| it.len() <= LONGEST);
        if !is_short(&claim.target) || !is_short(&claim.file) {
            return None;
        }
        let (explained, on_host) = match (claim.operation.as_str(), claim.target.as_deref()) {
            ("import", Some(module)) => (self.grants.of_import(module)?, None),
            ("socket", None) => (self.grants.of_socket()?, None),
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

    /// What the plan says of a path, and whether the host has it. An error does not say whether the guest wanted to
    /// read or to write: one about what can be read tells of a write.
    fn path(
        &self,
        target: &str,
        want: Want,
        claim: &Denied,
    ) -> Option<(Explanation, Option<bool>)> {
        let path = Path::new(target);
        let errno = claim.errno.map(Errno::from_raw);
        let is_refusal = matches!(errno, Some(Errno::EACCES | Errno::EPERM | Errno::EROFS));
        match (self.grants.of_path(path, want, self.own), want) {
            (PathVerdict::Hidden(explained), _) => match (self.exists)(path) {
                Some(false) => None,
                found => Some((explained, found)),
            },
            (PathVerdict::Refused(explained), _) => Some((explained, None)),
            (PathVerdict::Granted, _) if !is_refusal => None,
            (PathVerdict::Granted, Want::Read) => {
                match self.grants.of_path(path, Want::Write, self.own) {
                    PathVerdict::Refused(explained) => Some((explained, None)),
                    // The permissions of the file.
                    _ => Some((Explanation::default(), None)),
                }
            }
            (PathVerdict::Granted, _) => Some((Explanation::default(), None)),
        }
    }
}

impl Denials {
    fn add(&mut self, denial: Denial) {
        let same = |other: &&mut Denial| {
            Denial {
                count: denial.count,
                ..(*other).clone()
            } == denial
        };
        if let Some(same) = self.listed.iter_mut().find(same) {
            same.count = same.count.saturating_add(denial.count);
        } else if self.listed.len() < MOST {
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

fn limit(hit: LimitHit, limits: &Limits) -> Denial {
    let (layer, reported_by) = match hit.by {
        Mechanism::Cgroup => (Some(Layer::Cgroup), Reporter::Kernel),
        Mechanism::Rlimit => (Some(Layer::Rlimits), Reporter::Kernel),
        Mechanism::Tmpfs => (Some(Layer::Mounts), Reporter::Kernel),
        Mechanism::Interpreter => (None, Reporter::Guest),
        Mechanism::Watchdog | Mechanism::Deadline | Mechanism::Supervisor => {
            (None, Reporter::Supervisor)
        }
    };
    Denial {
        target: Some(limits.named(hit.name)),
        ..denial("limit", reported_by, &of_limit(hit.name, limits, layer))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn claim(operation: &str, target: Option<&str>, errno: Errno) -> Denied {
        Denied {
            operation: operation.to_owned(),
            target: target.map(str::to_owned),
            errno: Some(errno as i32),
            file: Some("a.py".to_owned()),
            line: Some(3),
            count: 1,
        }
    }

    fn ended(
        toml: &str,
        claims: Vec<Denied>,
        ending: &Ending,
        refused_forks: Option<u64>,
        exists: &dyn Fn(&Path) -> Option<bool>,
    ) -> Denials {
        let plan = crate::plan::sample(toml);
        Refused {
            grants: &crate::plan::sample_grants(toml),
            limits: &plan.supervision.limits,
            ending,
            counts: &Counts {
                refused_forks,
                ..Counts::default()
            },
            without_memory: None,
            claims,
            own: None,
            exists,
        }
        .explained()
    }

    fn claimed(toml: &str, claims: Vec<Denied>) -> Denials {
        ended(toml, claims, &Ending::Exception, None, &|_| None)
    }

    fn one(toml: &str, claim: Denied) -> Option<Denial> {
        let Denials { listed, omitted } = claimed(toml, vec![claim]);
        assert_eq!(omitted, 0);
        assert!(listed.len() <= 1, "{listed:?}");
        listed.into_iter().next()
    }

    #[test]
    fn a_claim_has_its_place_its_layer_and_the_setting_that_allows_it() {
        let denial = one("", claim("access", Some("/srv/x"), Errno::ENOENT)).unwrap();
        let expected = Denial {
            target: Some("/srv/x".to_owned()),
            errno: Some(2),
            layer: Some(Layer::Mounts),
            file: Some("a.py".to_owned()),
            line: Some(3),
            key: Some("filesystem.read".to_owned()),
            set: Some("filesystem.read=/srv/x".to_owned()),
            ..Denial::new("access", Reporter::Guest)
        };
        assert_eq!(denial, expected);
        let set = |toml, claim| one(toml, claim).unwrap().set;
        assert_eq!(
            set("", claim("socket", None, Errno::EPERM)).as_deref(),
            Some("network.mode=loopback")
        );
        let listed = "[imports]\nallow = ['math']";
        assert_eq!(
            set(listed, claim("import", Some("os"), Errno::EPERM)).as_deref(),
            Some("imports.allow=os")
        );
        assert_eq!(
            set("", claim("run", Some("/work/made"), Errno::EACCES)).as_deref(),
            Some("filesystem.work_exec=true")
        );
        // Which call it was, the guest's exception does not say.
        let call = one("", claim("system call", None, Errno::EPERM)).unwrap();
        assert_eq!((call.layer, call.key, call.set), (None, None, None));
        // The file's permissions.
        let own = one("", claim("access", Some("/work/x"), Errno::EACCES)).unwrap();
        assert_eq!((own.layer, own.key), (None, None));
        // What can be read was to be written.
        let system = one("", claim("access", Some("/usr/x"), Errno::EROFS)).unwrap();
        assert_eq!((system.layer, system.key), (Some(Layer::Mounts), None));
    }

    #[test]
    fn what_the_plan_grants_is_no_denial() {
        for (toml, claim) in [
            ("", claim("access", Some("/work/missing"), Errno::ENOENT)),
            ("", claim("run", Some("/usr/bin/missing"), Errno::ENOENT)),
            ("", claim("import", Some("os"), Errno::EPERM)),
            (
                "[network]\nmode = 'loopback'",
                claim("socket", None, Errno::EPERM),
            ),
        ] {
            assert_eq!(one(toml, claim), None);
        }
    }

    #[test]
    fn only_the_claims_that_the_guests_side_makes_are_shown() {
        let long = format!("/{}", "x".repeat(LONGEST));
        for (operation, target) in [
            ("fork", None),
            ("limit", Some("1 GiB of memory")),
            ("ptrace", None),
            ("\u{1b}[2J", Some("/srv/x")),
            ("access", None),
            ("access", Some("relative")),
            ("access", Some(long.as_str())),
            ("socket", Some("AF_INET")),
        ] {
            let shown = one("", claim(operation, target, Errno::ENOENT));
            assert_eq!(shown, None, "{operation} {target:?}");
        }
        let mut elsewhere = claim("socket", None, Errno::EPERM);
        elsewhere.file = Some(long);
        assert_eq!(one("", elsewhere), None);
    }

    #[test]
    fn a_flood_of_claims_is_bounded_and_counted() {
        let of = |number: usize| claim("access", Some(&format!("/srv/{number}")), Errno::ENOENT);
        let mut claims: Vec<Denied> = (0..MOST + 10).map(of).collect();
        claims[MOST].count = u64::MAX;
        let Denials { listed, omitted } = claimed("", claims);
        assert_eq!((listed.len(), omitted), (MOST, u64::MAX));

        let mut same = of(1);
        same.count = 5;
        let mut more = of(2);
        more.operation = "more".to_owned();
        more.count = 7;
        let Denials { listed, omitted } = claimed("", vec![of(1), same, more]);
        assert_eq!((listed.len(), listed[0].count, omitted), (1, 6, 7));
    }

    #[test]
    fn the_host_tells_what_is_hidden_from_what_is_missing() {
        let exists = |path: &Path| Some(path == Path::new("/srv/there"));
        let claims = ["/srv/there", "/srv/missing"]
            .map(|path| claim("access", Some(path), Errno::ENOENT))
            .to_vec();
        let all = ended("", claims, &Ending::Exception, None, &exists);
        let [there] = all.listed.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!(
            (there.target.as_deref(), there.on_host),
            (Some("/srv/there"), Some(true))
        );
    }

    #[test]
    fn the_kernel_and_the_supervisor_report_limits_and_forks() {
        let hit = |name, by| Ending::Limit(LimitHit { name, by });
        let wall = hit(LimitName::Wall, Mechanism::Deadline);
        let all = ended("", Vec::new(), &wall, Some(3), &|_| None).listed;
        let [wall, fork] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!(wall.reported_by, Reporter::Supervisor);
        assert_eq!(wall.key.as_deref(), Some("limits.wall"));
        assert!(wall.set.is_some());
        assert_eq!((fork.operation.as_str(), fork.count), ("fork", 3));
        assert_eq!(fork.reported_by, Reporter::Kernel);
        assert_eq!(fork.key.as_deref(), Some("limits.pids"));
        let memory = hit(LimitName::Memory, Mechanism::Cgroup);
        let all = ended("", Vec::new(), &memory, None, &|_| None).listed;
        assert_eq!(all[0].layer, Some(Layer::Cgroup));
        assert_eq!(all[0].reported_by, Reporter::Kernel);
    }

    #[test]
    fn a_process_that_found_no_memory_is_named_unless_the_ending_does() {
        let memory = |ending: Ending, by| {
            Refused {
                grants: &crate::plan::sample_grants(""),
                limits: &crate::plan::sample("").supervision.limits,
                ending: &ending,
                counts: &Counts {
                    oom_kills: 2,
                    ..Counts::default()
                },
                without_memory: Some(by),
                claims: Vec::new(),
                own: None,
                exists: &|_| None,
            }
            .memory()
        };
        let killed = memory(Ending::Exit(0), Reporter::Kernel).unwrap();
        assert_eq!((killed.layer, killed.count), (Some(Layer::Cgroup), 2));
        assert_eq!(killed.key.as_deref(), Some("limits.memory"));
        let said = memory(Ending::Exit(1), Reporter::Guest).unwrap();
        assert_eq!((said.layer, said.count), (Some(Layer::Rlimits), 1));
        assert_eq!(memory(Ending::Exit(0), Reporter::Guest), None);
        let (name, by) = (LimitName::Memory, Mechanism::Cgroup);
        assert!(memory(Ending::Limit(LimitHit { name, by }), Reporter::Kernel).is_none());
    }
}
