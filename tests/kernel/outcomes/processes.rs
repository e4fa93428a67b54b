//! Tests of the limit on processes and threads.

use sandfork::internals::plan::SandboxPlan as _;
use sandfork::{Level, LimitName, Mechanism, Status};

use crate::check::{by, fine, limited, shown};
use crate::recipe::{Recipe, standard};
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        fork_bomb,
        persistent_fork_bomb,
        thread_bomb,
        a_refusal_can_be_caught,
        a_child_can_end_with_its_parent,
        epoll_watches_are_bounded
    ]
}

// PostgreSQL and torch.multiprocessing use PR_SET_PDEATHSIG. Level `landlock` refuses it.
fn a_child_can_end_with_its_parent(world: &World) {
    let code = "\
import ctypes, os, signal
end, started = os.pipe()
if not os.fork():
    if not os.fork():
        os.close(end)
        result = ctypes.CDLL(None).prctl(1, signal.SIGTERM)
        os.write(started, b'y' if result == 0 else b'n')
        signal.pause() if result == 0 else os._exit(0)
    os.close(started)
    os._exit(0 if os.read(end, 1) == b'y' else 3)
os.close(started)
status = os.waitstatus_to_exitcode(os.wait()[1])
# Ends when the grandchild does.
os.read(end, 1)
print(status)";
    world.with_shared(standard(), |sandbox| {
        let outcome = run(sandbox, code);
        fine(&outcome);
        let refused = sandbox.plan().level == Level::Landlock;
        assert_eq!(outcome.stdout(), if refused { "3\n" } else { "0\n" });
    });
}

// The kernel counts epoll watches by uid, and guests may share one: a policy that lets guests write to the host gives
// them all the same uid, under root too.
fn epoll_watches_are_bounded(world: &World) {
    let shared = tempfile::tempdir().unwrap();
    let write = format!("filesystem.write=[\"{}\"]", shared.path().display());
    let code = "\
import errno, os, select, time
began = time.monotonic()
watchers = [select.epoll() for _ in range(8)]
files = [os.pipe()[0] for _ in range(60)]
slots = [os.dup(files[0]) for _ in range(100)]
taken = 0
try:
    for file in files:
        for slot in slots:
            os.dup2(file, slot)
            for watcher in watchers:
                watcher.register(slot, select.EPOLLIN)
                taken += 1
except OSError as error:
    assert error.errno == errno.ENOSPC, error
# More come every second, and a machine may be slow.
more = 256 * (time.monotonic() - began + 1)
assert 30_000 < taken < 33_000 + more, (taken, more)
";
    let recipe = standard().set(write).set("limits.wall=5m");
    let sandbox = world.build(recipe.set("limits.cpu=5m"));
    fine(&run(&sandbox, code));
}

const PIDS: u64 = 24;

fn few() -> Recipe {
    standard()
        .set("limits.pids=24")
        .set("limits.wall=5s")
        .set("limits.cpu=2s")
}

// The first process is one of many, and sees its refusal only when it is scheduled.
fn fork_bomb(world: &World) {
    let sandbox = world.build(few().patient());
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

fn persistent_fork_bomb(world: &World) {
    let sandbox = world.build(few());
    let code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n";
    let outcome = run(&sandbox, code);
    let ends = [Status::CpuLimit, Status::PidsLimit, Status::Timeout];
    assert!(ends.contains(&outcome.status()), "{}", shown(&outcome));
    // The cgroup reports the refused forks, whichever limit ended the run.
    let is_told = outcome
        .denied()
        .iter()
        .any(|denial| denial.operation == "fork");
    let is_counted = sandbox.plan().level == Level::Full;
    assert!(is_told || !is_counted, "{}", shown(&outcome));
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
