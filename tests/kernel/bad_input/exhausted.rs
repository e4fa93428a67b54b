//! A host that runs out while a supervisor runs, of descriptors or of processes: new runs are refused with
//! the cause and the remedy, the sessions that live go on, nothing is left, and when there is enough
//! again there are runs again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sandfork::internals::host::{CgroupSupport, Controller};
use sandfork::internals::plan::SandboxPlan as _;
use sandfork::session::Session;
use sandfork::{Error, ErrorKind, LimitName, Mechanism, Sandbox};

use super::is_told;
use crate::apart;
use crate::check::{by, fine, limited};
use crate::leftovers::traces::Traces;
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    let mut all = tests![no_descriptors];
    all.extend(
        tests![no_processes]
            .into_iter()
            .map(|test| test.needs(Need::Ceiling)),
    );
    all
}

fn no_descriptors(_: &World) {
    apart::finishes("no-descriptors");
}

fn no_processes(_: &World) {
    apart::finishes("no-processes");
}

/// A supervisor with a session.
struct Serving {
    sandbox: Arc<Sandbox>,
    session: Session,
    cgroups: CgroupSupport,
    before: Traces,
}

impl Serving {
    fn start() -> Self {
        nix::sys::prctl::set_child_subreaper(true).expect("any process can be a subreaper");
        let world = World::look().expect("the machine can be looked at");
        let sandbox = Arc::new(world.build(standard()));
        fine(&run(&sandbox, "pass"));
        let session = sandbox.session().expect("there is room");
        let cgroups = world.host.machine.cgroup;
        let mut serving = Self {
            before: Traces::look_beside_threads(&cgroups),
            sandbox,
            session,
            cgroups,
        };
        serving.goes_on();
        serving
    }

    /// While something is missing: every way to ask for a worker is refused, and the session is not.
    #[track_caller]
    fn is_without(&mut self, names: &[&str]) {
        let refused = |error: Error| is_told(&error, error.kind(), names);
        // Each takes another way, and the second finds what the first has left.
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
        self.goes_on();
    }

    fn goes_on(&mut self) {
        let report = self.session.run("6 * 7").expect("it lives");
        fine(report.outcome());
    }

    /// When it is there again.
    #[track_caller]
    fn is_whole(&mut self) {
        self.goes_on();
        let outcome = run(&self.sandbox, "1");
        fine(&outcome);
        assert_eq!(outcome.enforced().level, self.sandbox.plan().level);
        drop(self.sandbox.session().expect("there is room"));
        self.before.assert_same(&self.cgroups);
    }
}

/// Every descriptor that this process may have is taken.
pub fn without_descriptors() {
    let mut serving = Serving::start();
    let mut unused = serving.sandbox.session().expect("there is room");
    let mut passing = serving.sandbox.session().expect("there is room");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is a limit");
    let enough = soft.min(1024);
    setrlimit(Resource::RLIMIT_NOFILE, enough, hard).expect("it is lower");
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    serving.is_without(&["open files", "ulimit -n"]);
    // A value that comes as a file cannot be taken: that is the host's fault, and not the guest's.
    let refused = passing.run("bytes(200_000)").map(drop);
    let refused = refused.expect_err("no descriptor is left for it");
    is_told(&refused, ErrorKind::System, &["open files", "ulimit -n"]);
    drop(passing);
    // The kernel's counts are there at its first cell, too.
    let forks = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(600)";
    let report = unused.run(forks).expect("it lives");
    let by = by(&serving.sandbox, Mechanism::Cgroup, Mechanism::Rlimit);
    limited(report.outcome(), LimitName::Pids, by);
    drop(unused);
    // With a few, each worker is given up at another place.
    while taken.len() > 100 && taken.pop().is_some() {
        match serving.sandbox.run("1") {
            Ok(outcome) => {
                fine(&outcome);
                break;
            }
            Err(error) => is_told(&error, error.kind(), &["open files", "ulimit -n"]),
        }
    }
    drop(taken);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("it was so");
    serving.is_whole();
}

/// The cgroup around this process, and all that it starts, may have no more processes than it has.
pub fn without_processes() {
    let cgroups = World::look()
        .expect("the machine can be looked at")
        .host
        .machine
        .cgroup;
    let ceiling = Ceiling::enter(&cgroups);
    let mut serving = Serving::start();
    ceiling.lower();
    serving.is_without(&["process", "`pids.max`"]);
    ceiling.lift();
    serving.is_whole();
    drop(serving);
    ceiling.leave();
}

/// A limit of processes around this one.
struct Ceiling {
    cgroup: PathBuf,
    /// Where this process was, if the cgroup is the test's own.
    before: Option<PathBuf>,
}

impl Ceiling {
    fn enter(cgroups: &CgroupSupport) -> Self {
        match cgroups {
            CgroupSupport::V1 { controllers } => {
                let before = controllers[&Controller::Pids].clone();
                let cgroup = before.join(format!("without-processes-{}", std::process::id()));
                fs::create_dir(&cgroup).expect("a supervisor may make some too");
                write(&cgroup.join("cgroup.procs"), "0");
                Self {
                    cgroup,
                    before: Some(before),
                }
            }
            CgroupSupport::V2 { dir, .. } => Self {
                cgroup: dir.clone(),
                before: None,
            },
            CgroupSupport::Nowhere { .. } => unreachable!("it is needed"),
        }
    }

    fn lower(&self) {
        let current = fs::read_to_string(self.cgroup.join("pids.current"));
        write(
            &self.cgroup.join("pids.max"),
            current.expect("it is counted").trim(),
        );
    }

    fn lift(&self) {
        write(&self.cgroup.join("pids.max"), "max");
    }

    fn leave(self) {
        if let Some(before) = self.before {
            write(&before.join("cgroup.procs"), "0");
            fs::remove_dir(&self.cgroup).expect("nothing is left in it");
        }
    }
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}
