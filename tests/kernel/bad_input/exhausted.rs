//! Exhausts descriptors or processes while a supervisor runs: new runs are refused with the cause and the
//! remedy, live sessions continue, nothing is left behind, and runs succeed again once the resource is
//! available again.

use std::fs::{self, File};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{process, thread};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sandfork::internals::host::{CgroupSupport, Controller};
use sandfork::internals::plan::SandboxPlan as _;
use sandfork::session::Session;
use sandfork::{Error, ErrorKind, LimitName, Mechanism, Sandbox};

use super::assert_reported;
use crate::apart;
use crate::check::{by, fine, limited};
use crate::leftovers::traces::Traces;
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    let mut all = tests![no_descriptors];
    all.extend(needing(Need::Ceiling, tests![no_processes]));
    all
}

fn no_descriptors(_: &World) {
    apart::finishes("no-descriptors");
}

fn no_processes(world: &World) {
    let ceiling = Ceiling::of_test(&world.host.machine.cgroup, process::id());
    fs::create_dir(&ceiling.0).expect("a supervisor may make some too");
    let _removed = Removed(&ceiling);
    apart::finishes("no-processes");
}

/// A supervisor with a live session.
struct Serving {
    sandbox: Arc<Sandbox>,
    session: Session,
    cgroups: CgroupSupport,
    before: Traces,
}

impl Serving {
    fn start() -> Self {
        nix::sys::prctl::set_child_subreaper(true).expect("any process can be a subreaper");
        let world = World::probe().expect("the host can be probed");
        let sandbox = Arc::new(world.build(standard()));
        fine(&run(&sandbox, "pass"));
        let session = sandbox.session().expect("the session opens");
        let cgroups = world.host.machine.cgroup;
        let mut serving = Self {
            before: Traces::record_beside_threads(&cgroups),
            sandbox,
            session,
            cgroups,
        };
        serving.assert_session_works();
        serving
    }

    /// Checks that, while the resource is exhausted, every request for a worker is refused and the session still works.
    #[track_caller]
    fn assert_exhausted(&mut self, names: &[&str]) {
        let refused = |error: Error| assert_reported(&error, error.kind(), names);
        // Runs and sessions start workers by different paths; each attempt also sees what the previous one left.
        for _ in 0..3 {
            refused(
                self.sandbox
                    .run("1")
                    .map(drop)
                    .expect_err("something is missing"),
            );
            refused(
                self.sandbox
                    .session()
                    .map(drop)
                    .expect_err("something is missing"),
            );
        }
        self.assert_session_works();
    }

    fn assert_session_works(&mut self) {
        let report = self.session.run("6 * 7").expect("the session is alive");
        fine(report.outcome());
    }

    /// Checks that everything works again and that nothing was left behind.
    #[track_caller]
    fn assert_recovered(&mut self) {
        self.assert_session_works();
        let outcome = run(&self.sandbox, "1");
        fine(&outcome);
        assert_eq!(outcome.enforced().level, self.sandbox.plan().level);
        drop(self.sandbox.session().expect("the session opens"));
        self.before.assert_same(&self.cgroups);
    }
}

/// Exhausts the descriptors of this process.
pub fn without_descriptors() {
    let mut serving = Serving::start();
    let mut unused = serving.sandbox.session().expect("the session opens");
    let mut passing = serving.sandbox.session().expect("the session opens");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is a limit");
    let enough = soft.min(1024);
    setrlimit(Resource::RLIMIT_NOFILE, enough, hard).expect("lowering a limit is permitted");
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    serving.assert_exhausted(&["open files", "ulimit -n"]);
    // A value that is passed as a file descriptor cannot be received: an error of the host, not of the guest.
    let refused = passing.run("bytes(200_000)").map(drop);
    let refused = refused.expect_err("no descriptor is left for it");
    assert_reported(&refused, ErrorKind::System, &["open files", "ulimit -n"]);
    drop(passing);
    // A session's first cell has the kernel's counters even if no descriptor is free.
    let forks = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(600)";
    let report = unused.run(forks).expect("the session is alive");
    let by = by(&serving.sandbox, Mechanism::Cgroup, Mechanism::Rlimit);
    limited(report.outcome(), LimitName::Pids, by);
    drop(unused);
    // With a few free descriptors, starting a worker fails at a different step each time.
    while taken.len() > 100 && taken.pop().is_some() {
        match serving.sandbox.run("1") {
            Ok(outcome) => {
                fine(&outcome);
                break;
            }
            Err(error) => assert_reported(&error, error.kind(), &["open files", "ulimit -n"]),
        }
    }
    drop(taken);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("it was so");
    serving.assert_recovered();
}

/// Forbids the cgroup of this process and its children more processes than it has.
pub fn without_processes() {
    let world = World::probe().expect("the host can be probed");
    let ceiling = Ceiling::of_test(&world.host.machine.cgroup, parent_id());
    write(&ceiling.0.join("cgroup.procs"), "0");
    let mut serving = Serving::start();
    ceiling.lower();
    serving.assert_exhausted(&["process", "`pids.max`"]);
    write(&ceiling.0.join("pids.max"), "max");
    serving.assert_recovered();
}

/// A cgroup with a process limit for one supervisor, so that processes of concurrent tests neither count towards
/// the limit nor are subject to it.
struct Ceiling(PathBuf);

impl Ceiling {
    /// Returns the cgroup of the test process with this id, which creates and removes it.
    fn of_test(cgroups: &CgroupSupport, test: u32) -> Self {
        let above = match cgroups {
            CgroupSupport::V1(controllers) => &controllers[&Controller::Pids],
            CgroupSupport::V2 { dir, .. } => dir,
            CgroupSupport::Nowhere(_) => unreachable!("it is needed"),
        };
        Self(above.join(format!("without-processes-{test}")))
    }

    fn lower(&self) {
        let current = fs::read_to_string(self.0.join("pids.current"));
        write(
            &self.0.join("pids.max"),
            current.expect("the controller counts processes").trim(),
        );
    }
}

/// Removes a cgroup and its empty children when dropped: under version 2 the supervisor's own cgroups are beneath it.
struct Removed<'c>(&'c Ceiling);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.0.0).into_iter().flatten().flatten() {
            _ = fs::remove_dir(entry.path());
        }
        if let Err(error) = fs::remove_dir(&self.0.0)
            && !thread::panicking()
        {
            panic!("{}: {error}", self.0.0.display());
        }
    }
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}
