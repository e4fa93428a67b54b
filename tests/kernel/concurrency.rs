//! Tests of one sandbox used by many threads: every outcome belongs to its run.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sandfork::{Admission, Cancel, ErrorKind, OutputSink, Request, Sandbox, Status};
use serde_json::json;

use crate::check::{fine, shown};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

const THREADS: usize = 16;
const RUNS: usize = 20;

pub fn tests() -> Vec<Test> {
    tests![
        outputs_are_not_mixed,
        admission_bounds_concurrent_runs,
        stats_count_running_waiting_and_ended_runs,
        stats_count_the_cells_of_sessions,
        stats_count_a_run_whose_sink_panics,
    ]
}

fn outputs_are_not_mixed(world: &World) {
    let sandbox = world.build(standard());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for number in 0..RUNS {
                    let token = format!("{thread}-{number}");
                    let code = format!(
                        "import os, sys\n\
                         assert os.listdir('/work') == os.listdir('/tmp') == []\n\
                         open('/work/mine', 'w').write('{token}')\n\
                         for _ in range(50): print('{token}')\n\
                         print('{token}', file=sys.stderr)\n\
                         open('/work/mine').read()\n"
                    );
                    let outcome = run(sandbox, code);
                    fine(&outcome);
                    assert_eq!(outcome.stdout(), format!("{token}\n").repeat(50));
                    assert_eq!(outcome.stderr(), format!("{token}\n"));
                    let seen = serde_json::to_value(&outcome).expect("an outcome is JSON");
                    assert_eq!(seen["value"], json!(token), "{}", shown(&outcome));
                }
            });
        }
    });
}

/// Prints its start and end times, from a clock that all guests share.
const TIMED: &str = "import time\nbegun = time.monotonic()\ntime.sleep(0.02)\n\
                     print(begun, time.monotonic())";

fn admission_bounds_concurrent_runs(world: &World) {
    const IN_FLIGHT: usize = 2;
    let two = NonZeroUsize::new(IN_FLIGHT).expect("two is not zero");
    let admission = Admission::new(two, 2);
    let policy = standard().python_unless_named(world.python()).policy();
    let sandbox = Sandbox::builder()
        .policy(policy)
        .admission(&admission)
        .build();
    let sandbox = sandbox.unwrap_or_else(|error| panic!("no sandbox: {error}"));
    let refused = AtomicUsize::new(0);
    let client = |name: String| -> Vec<(f64, f64)> {
        let mut times = Vec::new();
        while times.len() < 5 {
            match sandbox.run(Request::python(TIMED).client(name.as_str())) {
                Ok(outcome) => {
                    fine(&outcome);
                    let printed = outcome.stdout().into_owned();
                    let mut printed = printed.split_whitespace().map(|it| it.parse().unwrap());
                    times.push((printed.next().unwrap(), printed.next().unwrap()));
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                    refused.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(2));
                }
            }
        }
        times
    };
    let times: Vec<(f64, f64)> = thread::scope(|scope| {
        let client = &client;
        let clients = (0..12).map(|number| scope.spawn(move || client(format!("{}", number % 4))));
        let clients: Vec<_> = clients.collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("the thread does not panic"))
            .collect()
    });
    assert_eq!(times.len(), 60);
    let at_once = |moment: f64| {
        times
            .iter()
            .filter(|run| run.0 <= moment && moment < run.1)
            .count()
    };
    let most = times.iter().map(|run| at_once(run.0)).max();
    assert_eq!(most, Some(IN_FLIGHT));
    let refused = refused.into_inner();
    assert!(refused > 0);
    let stats = sandbox.stats();
    assert_eq!(
        (stats["ended.ok"], stats["refused.busy"]),
        (60, refused as u64)
    );
    assert_eq!((stats["running"], stats["waiting"]), (0, 0));
}

/// Waits until the counter reaches `count`.
fn wait_for(sandbox: &Sandbox, name: &str, count: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while sandbox.stats()[name] != count {
        assert!(Instant::now() < deadline, "{name}: {:?}", sandbox.stats());
        thread::sleep(Duration::from_millis(2));
    }
}

fn stats_count_running_waiting_and_ended_runs(world: &World) {
    let one = NonZeroUsize::MIN;
    let policy = standard().python_unless_named(world.python()).policy();
    let builder = Sandbox::builder().policy(policy);
    let built = builder.admission(&Admission::new(one, 1)).build();
    let sandbox = built.unwrap_or_else(|error| panic!("no sandbox: {error}"));
    fine(&run(&sandbox, "1"));
    assert_eq!(run(&sandbox, "1 / 0").status(), Status::Exception);
    let cancel = Cancel::new().expect("a handle");
    let sleeps = || Request::python("import time; time.sleep(600)").cancel(&cancel);
    thread::scope(|scope| {
        let running = scope.spawn(|| sandbox.run(sleeps()));
        wait_for(&sandbox, "running", 1);
        let waiting = scope.spawn(|| sandbox.run(sleeps()));
        wait_for(&sandbox, "waiting", 1);
        let refused = sandbox.run("1").expect_err("there is no place");
        assert_eq!(refused.kind(), ErrorKind::Busy);
        cancel.cancel();
        let ended = running
            .join()
            .expect("the thread does not panic")
            .expect("the run succeeds");
        assert_eq!(ended.status(), Status::Interrupted);
        waiting.join().expect("the thread does not panic").ok();
    });
    let closed = sandbox.run(Request::python("1").stdin_bytes("input"));
    assert_eq!(
        closed.expect_err("stdin is closed").kind(),
        ErrorKind::Request
    );
    let stats = sandbox.stats();
    assert_eq!((stats["running"], stats["waiting"]), (0, 0));
    assert_eq!((stats["ended.ok"], stats["ended.exception"]), (1, 1));
    assert_eq!(stats["refused.request"], 1);
    // The waiting run was cancelled before or just after it started.
    let cancelled = stats["ended.interrupted"] + stats["refused.busy"];
    assert_eq!(cancelled, 3, "{stats:?}");
}

fn stats_count_the_cells_of_sessions(world: &World) {
    let sandbox = Arc::new(world.build(standard()));
    let mut session = sandbox.session().expect("a session");
    assert_eq!(sandbox.stats()["sessions"], 1);
    session.set("x", 1).expect("the variable is set");
    session.run("x").expect("a cell");
    session.run("import os; os.abort()").expect("a cell");
    session.run("1").expect_err("the session has ended");
    let stats = sandbox.stats();
    assert_eq!((stats["ended.ok"], stats["ended.signal"]), (1, 1));
    assert_eq!(stats["refused.session-ended"], 1);
    drop(session);
    wait_for(&sandbox, "sessions", 0);
}

struct Panics;

impl OutputSink for Panics {
    fn stdout(&mut self, _: &[u8]) {
        panic!("a sink of a test panics");
    }

    fn stderr(&mut self, _: &[u8]) {}
}

fn stats_count_a_run_whose_sink_panics(world: &World) {
    let sandbox = world.build(standard());
    let run = || sandbox.run_streaming("print(1, flush=True)", &mut Panics);
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    let stats = sandbox.stats();
    assert_eq!(
        (stats["running"], stats.get("ended.interrupted")),
        (0, Some(&1))
    );
}
