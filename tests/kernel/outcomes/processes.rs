//! The limit on processes and threads.

use sandfork::outcome::{LimitName, Mechanism, Status};

use crate::check::{by, fine, limited, shown};
use crate::recipe::{Recipe, standard};
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        fork_bomb,
        fork_bomb_that_does_not_give_up,
        thread_bomb,
        a_refusal_can_be_caught
    ]
}

const PIDS: u64 = 24;

fn few() -> Recipe {
    standard()
        .set("limits.pids=24")
        .set("limits.wall=5s")
        .set("limits.cpu=2s")
}

fn fork_bomb(world: &World) {
    let sandbox = world.build(few());
    let outcome = run(&sandbox, "import os\nwhile True: os.fork()");
    limited(
        &outcome,
        LimitName::Pids,
        by(&sandbox, Mechanism::Cgroup, Mechanism::Rlimit),
    );
    assert_eq!(outcome.exit_code(), 123);
    assert!(
        outcome.usage().peak_pids <= Some(PIDS),
        "{}",
        shown(&outcome)
    );
    fine(&run(&sandbox, "pass"));
}

fn fork_bomb_that_does_not_give_up(world: &World) {
    let sandbox = world.build(few());
    let code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n";
    let outcome = run(&sandbox, code);
    let ends = [Status::CpuLimit, Status::PidsLimit, Status::Timeout];
    assert!(ends.contains(&outcome.status()), "{}", shown(&outcome));
    assert!(
        outcome.usage().peak_pids <= Some(PIDS + 1),
        "{}",
        shown(&outcome)
    );
    fine(&run(&sandbox, "pass"));
}

fn thread_bomb(world: &World) {
    let sandbox = world.build(few());
    let code = "import threading, time\n\
                while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n";
    let outcome = run(&sandbox, code);
    limited(
        &outcome,
        LimitName::Pids,
        by(&sandbox, Mechanism::Cgroup, Mechanism::Rlimit),
    );
    assert!(
        outcome.usage().peak_pids <= Some(PIDS),
        "{}",
        shown(&outcome)
    );
}

fn a_refusal_can_be_caught(world: &World) {
    let code = "import os, time\n\
                made = 0\n\
                try:\n    \
                    while True:\n        \
                        if os.fork() == 0: time.sleep(60)\n        \
                        made += 1\n\
                except BlockingIOError: print(made)\n";
    let outcome = world.run(few(), code);
    fine(&outcome);
    let made: u64 = outcome
        .stdout()
        .trim()
        .parse()
        .expect("a number was printed");
    assert!((PIDS - 3..PIDS).contains(&made), "{}", shown(&outcome));
}
