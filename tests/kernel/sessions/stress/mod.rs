//! Runs many sessions at once, whose cells end in every way: each reply belongs to its request, and
//! nothing is left behind.

mod driver;
mod kinds;

use std::collections::BTreeMap;
use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sandfork::{Sandbox, Status};

use self::driver::Driver;
use self::kinds::Kind;
use crate::apart;
use crate::leftovers::traces::Traces;
use crate::recipe::{Recipe, standard};
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![every_reply_belongs_to_its_request]
}

/// Environment variable that, if set, makes the test ten times as long.
const WHOLE: &str = "SANDFORK_STRESS";

const THREADS: usize = 20;

/// The size of the test.
#[derive(Clone, Copy)]
struct Extent {
    sessions: usize,
    cells: usize,
}

impl Extent {
    fn from_environment() -> Self {
        let whole = env::var_os(WHOLE).is_some_and(|value| !value.is_empty());
        let times = if whole { 10 } else { 1 };
        Self {
            sessions: 20 * times,
            cells: 1000 * times,
        }
    }
}

fn every_reply_belongs_to_its_request(_: &World) {
    apart::finishes("stressed-sessions");
}

/// Runs in a separate process in which nothing else runs.
pub fn part() {
    nix::sys::prctl::set_child_subreaper(true).expect("any process can be a subreaper");
    raise_open_files();
    let world = World::probe().expect("the host can be probed");
    let cgroups = &world.host.machine.cgroup;
    // The first sandbox creates what a process keeps for all its sandboxes.
    serve(
        &Arc::new(world.build(recipe())),
        Extent {
            sessions: 1,
            cells: 1,
        },
    );
    let before = Traces::record(cgroups);
    let sandbox = Arc::new(world.build(recipe()));
    let statuses = serve(&sandbox, Extent::from_environment());
    drop(sandbox);
    before.assert_same(cgroups);
    Traces::no_processes();
    for expected in [
        Status::Ok,
        Status::Exception,
        Status::Exit,
        Status::Timeout,
        Status::MemoryLimit,
        Status::OutputLimit,
        Status::Signal,
        Status::ProtocolViolation,
        Status::Interrupted,
    ] {
        assert!(
            statuses.contains_key(expected.as_str()),
            "no {expected} among {statuses:?}"
        );
    }
    println!("{statuses:?}");
}

/// Each cell sets its own wall limit, since a machine that is this busy is slow.
fn recipe() -> Recipe {
    standard()
        .set("limits.wall=5m")
        .set("limits.cpu=5m")
        .set("limits.memory=96MiB")
        .set("limits.pids=32")
        .set("limits.output=256KiB")
}

/// Raises RLIMIT_NOFILE: a session uses about a dozen descriptors.
fn raise_open_files() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("it is within the hard one");
}

/// Opens all sessions, then runs cells in them in turn; each thread has its own sessions.
fn serve(sandbox: &Arc<Sandbox>, extent: Extent) -> BTreeMap<&'static str, usize> {
    let statuses = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    let count = |status: Status| {
        *statuses.lock().unwrap().entry(status.as_str()).or_default() += 1;
    };
    thread::scope(|scope| {
        for thread in 0..THREADS.min(extent.sessions) {
            let (next, count) = (&next, &count);
            scope.spawn(move || {
                let own = (thread..extent.sessions).step_by(THREADS);
                let mut sessions: Vec<Driver> =
                    own.map(|name| Driver::open(sandbox, name)).collect();
                for turn in 0.. {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= extent.cells {
                        break;
                    }
                    let place = turn % sessions.len();
                    count(sessions[place].run_cell(Kind::of(number), number));
                }
            });
        }
    });
    statuses.into_inner().unwrap()
}
