//! The limit on memory: a `MemoryError` where that is possible, a kill where it is not.

use std::sync::Arc;

use sandfork::{LimitName, Mechanism, Status};

use crate::check::{by, ended, fine, limited, shown};
use crate::need::Need;
use crate::recipe::{Recipe, standard};
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        a_list_that_grows,
        a_string_that_doubles,
        memory_that_is_used_up_to_the_last_byte,
        a_library_that_finds_no_room,
        a_session_goes_on_after_all_its_memory_was_used_up,
        a_memory_error_can_be_caught,
        processes_together,
        children_that_are_killed,
    ];
    tests.extend(
        tests![numpy_array]
            .into_iter()
            .map(|test| test.needs(Need::Packages)),
    );
    tests.extend(
        tests![files_count_too]
            .into_iter()
            .map(|test| test.needs(Need::Cgroup)),
    );
    tests
}

const LIMIT: u64 = 200 << 20;

fn small() -> Recipe {
    standard().set("limits.memory=200MiB")
}

/// Not killed: the guest got the exception, and did not catch it.
fn raises(world: &World, code: &str) {
    let outcome = world.run(small(), code);
    limited(&outcome, LimitName::Memory, Mechanism::Rlimit);
    assert_eq!(outcome.exit_code(), 137);
    let error = outcome.error().expect("the exception is described");
    assert!(error.name.ends_with("MemoryError"), "{}", shown(&outcome));
    assert!(error.traceback.contains("<string>"), "{}", shown(&outcome));
}

fn a_list_that_grows(world: &World) {
    raises(
        world,
        "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
    );
}

fn a_string_that_doubles(world: &World) {
    raises(world, "text = 'x'\nwhile True: text += text");
}

/// Takes memory in ever smaller pieces. `kept` holds it.
const ALL: &str = "\
kept = []
size = 1 << 20
while size > 16:
    try:
        while True:
            kept.append(bytes(size))
    except MemoryError:
        size //= 2
";

/// What describes the exception needs some, too.
fn memory_that_is_used_up_to_the_last_byte(world: &World) {
    raises(world, &format!("{ALL}more = [[] for _ in range(100_000)]"));
}

fn a_session_goes_on_after_all_its_memory_was_used_up(world: &World) {
    let mut session = Arc::new(world.build(small())).session().expect("it begins");
    for _ in 0..2 {
        let code = format!("{ALL}more = [[] for _ in range(100_000)]");
        let report = session.run(code.as_str()).expect("it runs");
        limited(report.outcome(), LimitName::Memory, Mechanism::Rlimit);
        let report = session.run("del kept\n6 * 7").expect("it runs");
        fine(report.outcome());
    }
}

/// The dynamic loader's exceptions have no errno.
fn a_library_that_finds_no_room(world: &World) {
    let code = "raise ImportError('/usr/lib/library.so: failed to map segment from shared object')";
    limited(
        &world.run(small(), code),
        LimitName::Memory,
        Mechanism::Rlimit,
    );
    let code = "import ctypes, shutil\n\
                paths = (line.split()[-1] for line in open('/proc/self/maps'))\n\
                shutil.copyfile(next(path for path in paths if '/libc.so' in path), 'library.so')\n\
                ctypes.CDLL('./library.so')";
    let outcome = world.run(small(), code);
    assert_eq!(outcome.status(), Status::Exception, "{}", shown(&outcome));
    let error = outcome.error().expect("the exception is described");
    assert!(
        error.message.contains("filesystem.work_exec"),
        "{}",
        shown(&outcome)
    );
}

fn numpy_array(world: &World) {
    raises(world, "import numpy\nnumpy.ones(1 << 28)");
}

fn a_memory_error_can_be_caught(world: &World) {
    let code = "try: bytearray(1 << 30)\nexcept MemoryError: print('caught')\nbytearray(1 << 20)\n";
    let outcome = world.run(small(), code);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "caught\n");
}

/// Each is well below what one process may have. The first one is the largest, which is what the
/// kernel kills.
fn processes_together(world: &World) {
    let sandbox = world.build(small());
    let code = "import os, time\n\
                for _ in range(5):\n    \
                    if os.fork() == 0:\n        \
                        theirs = bytearray(b'x') * (20 << 20)\n        \
                        time.sleep(60)\n\
                time.sleep(1)\n\
                mine = bytearray(b'x') * (120 << 20)\n\
                time.sleep(60)\n";
    let outcome = run(&sandbox, code);
    limited(
        &outcome,
        LimitName::Memory,
        by(&sandbox, Mechanism::Cgroup, Mechanism::Watchdog),
    );
    assert_eq!(outcome.exit_code(), 137);
}

/// The kernel picks the children; the guest goes on, or the watchdog ends it all. Either way the
/// limit holds.
fn children_that_are_killed(world: &World) {
    let sandbox = world.build(small().patient());
    // Each keeps its memory until every other has its own, or has been killed.
    let code = "import os\n\
                reached, reach = os.pipe()\n\
                hold, release = os.pipe()\n\
                for _ in range(6):\n    \
                    if os.fork() == 0:\n        \
                        os.close(release)\n        \
                        theirs = bytearray(b'x') * (60 << 20)\n        \
                        os.close(reach)\n        \
                        os.read(hold, 1)\n        \
                        os._exit(0)\n\
                os.close(reach)\n\
                os.read(reached, 1)\n\
                os.close(release)\n\
                ends = [os.wait()[1] for _ in range(6)]\n\
                print(ends.count(9))\n";
    let outcome = run(&sandbox, code);
    match by(&sandbox, Mechanism::Cgroup, Mechanism::Watchdog) {
        Mechanism::Cgroup => {
            fine(&outcome);
            let killed: u32 = outcome
                .stdout()
                .trim()
                .parse()
                .expect("a number was printed");
            assert!((3..6).contains(&killed), "{}", shown(&outcome));
            assert!(
                outcome.usage().peak_memory_bytes <= Some(LIMIT),
                "{}",
                shown(&outcome)
            );
        }
        mechanism => limited(&outcome, LimitName::Memory, mechanism),
    }
}

fn files_count_too(world: &World) {
    let code = "block = bytes(1 << 20)\n\
                with open('/work/file', 'wb') as file:\n    \
                    for _ in range(300): file.write(block)\n";
    let recipe = small()
        .set("filesystem.work_size=150MiB")
        .set("limits.file_size=1GiB");
    let outcome = world.run(recipe, code);
    ended(&outcome, Status::FileLimit);
    let recipe = small()
        .set("filesystem.work_size=500MiB")
        .set("limits.file_size=1GiB");
    let outcome = world.run(recipe, code);
    limited(&outcome, LimitName::Memory, Mechanism::Cgroup);
}
