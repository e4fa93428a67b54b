//! Tests that runs of every kind leave nothing behind.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::unistd::geteuid;
use sandfork::{Cancel, Request, Sandbox, Status};

use super::traces::Traces;
use crate::apart;
use crate::guests::{self, KINDS};
use crate::recipe::{Recipe, standard};
use crate::world::{World, run};

const THREADS: usize = 4;
const RUNS: usize = 1000;
/// The number of runs as root; `tests/soak` makes five thousand as root.
const RUNS_AS_ROOT: usize = 100;

pub fn mixed_runs(_: &World) {
    apart::finishes("mixed-runs");
}

/// Runs in a separate process in which nothing else runs.
pub fn part() {
    nix::sys::prctl::set_child_subreaper(true).expect("any process can be a subreaper");
    let world = World::probe().expect("the host can be probed");
    let cgroups = &world.host.machine.cgroup;
    // The first sandbox creates what a process keeps for all its sandboxes.
    run(&world.build(quick()), "pass");
    let before = Traces::record(cgroups);
    let sandbox = world.build(quick());
    let statuses = mixed(&world, &sandbox);
    let idle = Traces::record_beside_threads(cgroups);
    run(&sandbox, "pass");
    // A pool that continues to serve must not grow either.
    idle.assert_same(cgroups);
    drop(sandbox);
    before.assert_same(cgroups);
    Traces::no_processes();
    // On a slow machine, guests that exhaust another resource reach the wall limit first.
    for expected in [
        Status::Ok,
        Status::Exception,
        Status::Exit,
        Status::Timeout,
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

fn quick() -> Recipe {
    standard()
        .set("limits.wall=600ms")
        .set("limits.memory=100MiB")
        .set("limits.pids=16")
        .set("limits.output=256KiB")
}

/// Runs guests of all kinds from several threads, with sandboxes that are created and dropped meanwhile.
fn mixed(world: &World, sandbox: &Sandbox) -> BTreeMap<&'static str, usize> {
    let runs = if geteuid().is_root() {
        RUNS_AS_ROOT
    } else {
        RUNS
    };
    let next = AtomicUsize::new(0);
    let statuses = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        break;
                    }
                    let status = if number % 100 == 99 {
                        run(&world.build(quick()), guests::code(number / 100)).status()
                    } else if number % 25 == 24 {
                        cancelled(sandbox)
                    } else {
                        run(sandbox, guests::code(number)).status()
                    };
                    *statuses.lock().unwrap().entry(status.as_str()).or_default() += 1;
                }
            });
        }
    });
    const { assert!(RUNS > 10 * KINDS && RUNS_AS_ROOT > 2 * KINDS) };
    statuses.into_inner().unwrap()
}

fn cancelled(sandbox: &Sandbox) -> Status {
    let cancel = Cancel::new().expect("a descriptor is available");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            cancel.cancel();
        });
        run(sandbox, Request::python(guests::code(8)).cancel(&cancel)).status()
    })
}
