//! Tests of the wall and CPU time limits.

use std::time::Duration;

use sandfork::{LimitName, Mechanism, Outcome};

use crate::check::{by, fine, limited, shown};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        busy_loop,
        sleep,
        c_code_that_holds_the_gil,
        a_guest_that_blocks_every_signal,
        a_blocking_exit_handler,
        a_blocking_finalizer,
        cpu_of_one_process,
        cpu_of_children_counts,
        waiting_costs_no_cpu,
    ]
}

/// The permitted delay after a limit, for a machine that is busy with other tests.
const SLACK: Duration = Duration::from_secs(25);

#[track_caller]
fn timed_out(outcome: &Outcome, after: Duration) {
    limited(outcome, LimitName::Wall, Mechanism::Deadline);
    assert_eq!(outcome.exit_code(), 124);
    let wall = outcome.usage().wall;
    assert!(wall >= after && wall < after + SLACK, "{}", shown(outcome));
}

fn times_out(world: &World, code: &str) {
    let outcome = world.run(
        standard().set("limits.wall=1s"),
        &format!("print('on')\n{code}"),
    );
    timed_out(&outcome, Duration::from_secs(1));
    assert_eq!(outcome.stdout(), "on\n");
}

fn busy_loop(world: &World) {
    times_out(world, "while True: pass");
}

fn sleep(world: &World) {
    times_out(world, "import time\ntime.sleep(60)");
}

fn c_code_that_holds_the_gil(world: &World) {
    times_out(world, "10 ** 10 ** 8");
}

fn a_guest_that_blocks_every_signal(world: &World) {
    let code = "import signal, time\n\
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n\
                while True:\n    try: time.sleep(60)\n    except BaseException: pass\n";
    times_out(world, code);
}

fn a_blocking_exit_handler(world: &World) {
    times_out(
        world,
        "import atexit, time\natexit.register(time.sleep, 60)",
    );
}

fn a_blocking_finalizer(world: &World) {
    let class = "import sys\nclass D:\n    def __del__(self):\n        while True: pass\nd = D()";
    times_out(world, class);
    // The program's buffered output arrives all the same.
    let outcome = world.run(
        standard().set("limits.wall=2s"),
        &format!("{class}\nsys.stdout.write('written')"),
    );
    timed_out(&outcome, Duration::from_secs(2));
    assert_eq!(outcome.stdout(), "written");
}

fn cpu_of_one_process(world: &World) {
    let sandbox = world.build(standard().set("limits.cpu=1s"));
    let outcome = run(&sandbox, "while True: pass");
    limited(
        &outcome,
        LimitName::Cpu,
        by(&sandbox, Mechanism::Cgroup, Mechanism::Watchdog),
    );
    assert_eq!(outcome.exit_code(), 124);
    assert!(
        outcome.usage().cpu >= Duration::from_millis(900),
        "{}",
        shown(&outcome)
    );
    assert!(
        outcome.usage().cpu < Duration::from_secs(10),
        "{}",
        shown(&outcome)
    );
}

// No single process comes near the limit, nor does the process that waits for them.
fn cpu_of_children_counts(world: &World) {
    let sandbox = world.build(standard().set("limits.cpu=1s"));
    let code = "import os, time\n\
                while True:\n    \
                    if os.fork() == 0:\n        \
                        until = time.process_time() + 0.1\n        \
                        while time.process_time() < until: pass\n        \
                        os._exit(0)\n    \
                    os.wait()\n";
    let outcome = run(&sandbox, code);
    limited(
        &outcome,
        LimitName::Cpu,
        by(&sandbox, Mechanism::Cgroup, Mechanism::Watchdog),
    );
}

// The limit is several times the cost of a run without the wait, however slow the machine is, and the wait
// is several times the limit.
fn waiting_costs_no_cpu(world: &World) {
    let start = world.run(standard(), "import time");
    fine(&start);
    let limit = Duration::from_millis(500).max(start.usage().cpu * 4);
    let wait = limit * 3;
    let outcome = world.run(
        standard()
            .set(format!("limits.cpu={}ms", limit.as_millis()))
            .set("limits.wall=10m"),
        &format!(
            "import time\ntime.sleep({})\nprint('up')",
            wait.as_secs_f64()
        ),
    );
    fine(&outcome);
    assert!(outcome.usage().wall >= wait, "{}", shown(&outcome));
    assert!(outcome.usage().cpu < limit, "{}", shown(&outcome));
}
