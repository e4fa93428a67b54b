//! Tests of the memory limit: a `MemoryError` where possible, otherwise a kill.

use std::sync::Arc;

use sandfork::{LimitName, Mechanism, Request, Sandbox, Status};

use crate::check::{by, ended, fine, limited, shown};
use crate::need::Need;
use crate::recipe::{Recipe, standard};
use crate::test::{Test, needing, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        a_list_that_grows,
        a_string_that_doubles,
        memory_exhausted_to_the_last_byte,
        a_library_without_memory_to_load,
        session_survives_memory_exhaustion,
        a_memory_error_can_be_caught,
        a_memory_error_that_code_raises_itself,
        freed_memory_is_reused,
        a_library_that_aborts_for_lack_of_memory,
        a_child_without_memory,
        processes_together,
        children_that_are_killed,
    ];
    tests.extend(needing(Need::Packages, tests![numpy_array]));
    tests.extend(needing(
        Need::Cgroup,
        tests![files_count_too, memory_that_is_only_mapped],
    ));
    tests
}

const LIMIT: u64 = 200 << 20;

fn small() -> Recipe {
    standard().set("limits.memory=200MiB")
}

/// Returns the mechanism that refuses a guest memory before it is killed.
fn refusal(sandbox: &Sandbox) -> Mechanism {
    by(sandbox, Mechanism::Interpreter, Mechanism::Rlimit)
}

/// Checks that the guest was not killed but got an exception, which it did not catch.
fn raises(world: &World, code: &str) {
    let sandbox = world.build(small());
    let outcome = run(&sandbox, code);
    limited(&outcome, LimitName::Memory, refusal(&sandbox));
    assert_eq!(outcome.exit_code(), 137);
    let error = outcome.error().expect("the outcome has an error");
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

/// Allocates all memory in ever smaller pieces, which `kept` holds.
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

// Formatting the exception needs memory too.
fn memory_exhausted_to_the_last_byte(world: &World) {
    raises(world, &format!("{ALL}more = [[] for _ in range(100_000)]"));
}

fn session_survives_memory_exhaustion(world: &World) {
    let sandbox = Arc::new(world.build(small()));
    let refusal = refusal(&sandbox);
    let mut session = sandbox.session().expect("the session opens");
    for _ in 0..2 {
        let code = format!("{ALL}more = [[] for _ in range(100_000)]");
        let report = session.run(code.as_str()).expect("the command runs");
        limited(report.outcome(), LimitName::Memory, refusal);
        let report = session.run("del kept\n6 * 7").expect("the command runs");
        fine(report.outcome());
    }
}

// The dynamic loader's exceptions have no errno.
fn a_library_without_memory_to_load(world: &World) {
    let code = "raise ImportError('/usr/lib/library.so: failed to map segment from shared object')";
    let sandbox = world.build(small());
    limited(&run(&sandbox, code), LimitName::Memory, refusal(&sandbox));
    let code = "import ctypes, shutil\n\
                paths = (line.split()[-1] for line in open('/proc/self/maps'))\n\
                shutil.copyfile(next(path for path in paths if '/libc.so' in path), 'library.so')\n\
                ctypes.CDLL('./library.so')";
    let outcome = world.run(small(), code);
    assert_eq!(outcome.status(), Status::Exception, "{}", shown(&outcome));
    let error = outcome.error().expect("the outcome has an error");
    assert!(
        error.message.contains("filesystem.work_exec"),
        "{}",
        shown(&outcome)
    );
}

fn numpy_array(world: &World) {
    raises(world, "import numpy\nnumpy.ones(1 << 28)");
    raises(
        world,
        "import numpy\na = numpy.ones(1 << 20)\nwhile True: a = numpy.concatenate([a, a])",
    );
    let code = "import numpy\nkept = []\nwhile True: kept.append(numpy.ones(1 << 17))";
    let sandbox = Arc::new(world.build(small().set("python.preload=numpy")));
    let mut session = sandbox.session().expect("the session opens");
    for _ in 0..2 {
        let report = session.run(code).expect("the command runs");
        limited(report.outcome(), LimitName::Memory, refusal(&sandbox));
        let report = session
            .run("del kept; numpy.ones(1 << 20).sum()")
            .expect("the command runs");
        fine(report.outcome());
    }
}

// Like torch, mimalloc and thread stacks, which map far more than they touch. No single mapping exceeds the memory of a
// small machine, which the kernel would refuse (`vm.overcommit_memory=0`).
fn memory_that_is_only_mapped(world: &World) {
    let code = "import mmap, threading\n\
                private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS\n\
                both = mmap.PROT_READ | mmap.PROT_WRITE\n\
                mapped = mmap.mmap(-1, 2 << 30, flags=private, prot=both)\n\
                mapped[1 << 30] = 1\n\
                import ctypes\n\
                libc = ctypes.CDLL(None, use_errno=True)\n\
                libc.mmap.restype = ctypes.c_void_p\n\
                size = ctypes.c_size_t(2 << 30)\n\
                reserved = libc.mmap(None, size, 0, private, -1, ctypes.c_long(0))\n\
                assert reserved != ctypes.c_void_p(-1).value\n\
                assert libc.mprotect(ctypes.c_void_p(reserved), size, both) == 0, ctypes.get_errno()\n\
                ctypes.memset(reserved + (1 << 30), 1, 1)\n\
                threading.stack_size(256 << 20)\n\
                barrier = threading.Barrier(17)\n\
                for _ in range(16): threading.Thread(target=barrier.wait).start()\n\
                barrier.wait()\n";
    fine(&world.run(small(), code));
}

// Freed memory is available again even where the C library or the interpreter keeps it. The list stays below malloc's
// mmap threshold, which freeing the parts of 20 MiB has raised: an object at the end of the heap may keep the memory
// below it from returning to the kernel.
fn freed_memory_is_reused(world: &World) {
    let code = "\
def fill(size):
    kept = []
    try:
        while True: kept.append(b'x' * size)
    except MemoryError:
        return len(kept) * size
fill(1 << 20)
sizes = [fill(size) for size in (64 << 10, 1 << 10, 100, 20 << 20, 64 << 10)]
assert min(sizes) > 80 << 20, sizes
grown = []
while len(grown) < 16 << 17: grown.append(None)
";
    fine(&world.run(small().patient(), code));
}

// A shell exits normally when its child is killed or fails, so only the kernel's counters or the child's stderr show
// the limit.
fn a_child_without_memory(world: &World) {
    let sandbox = world.build(small());
    let hog = "import ctypes\nkept = []\nwhile True: kept.append(b'x' * (1 << 20))";
    let python = world.program().display().to_string();
    let request = Request::program(
        ["sh", "-c", "\"$0\" -c \"$1\"; exit 3", python.as_str(), hog]
            .map(str::to_owned)
            .to_vec(),
    );
    let outcome = run(&sandbox, request);
    assert_eq!(outcome.exit_code(), 3, "{}", shown(&outcome));
    let mut denied = outcome.denied().iter();
    let is_reported = denied.any(|denial| denial.operation == "memory");
    assert!(is_reported, "{}", shown(&outcome));
}

// C++ has no `MemoryError`: the program aborts, and only its last stderr line says why.
fn a_library_that_aborts_for_lack_of_memory(world: &World) {
    let sandbox = world.build(small());
    let code = "import ctypes\n\
                new = ctypes.CDLL('libstdc++.so.6')._Znwm\n\
                new.restype = ctypes.c_void_p\n\
                while True: ctypes.memset(new(ctypes.c_size_t(1 << 20)), 1, 1 << 20)";
    let outcome = run(&sandbox, code);
    let holds = by(&sandbox, Mechanism::Cgroup, Mechanism::Rlimit);
    limited(&outcome, LimitName::Memory, holds);
    let outcome = run(&sandbox, "import os; os.abort()");
    ended(&outcome, Status::Signal);
}

fn a_memory_error_can_be_caught(world: &World) {
    let code = "try: bytearray(1 << 30)\nexcept MemoryError: print('caught')\nbytearray(1 << 20)\n";
    let outcome = world.run(small(), code);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "caught\n");
}

// Where the kernel refuses memory, no counter records it.
fn a_memory_error_that_code_raises_itself(world: &World) {
    let sandbox = Arc::new(world.build(small()));
    let mut session = sandbox.session().expect("the session opens");
    for code in [
        "raise MemoryError('its own')",
        "try: bytearray(1 << 40)\nexcept MemoryError: pass",
        "raise MemoryError('its own')",
    ] {
        let report = session.run(code).expect("the command runs");
        match refusal(&sandbox) {
            _ if code.starts_with("try") => fine(report.outcome()),
            Mechanism::Interpreter => ended(report.outcome(), Status::Exception),
            by => limited(report.outcome(), LimitName::Memory, by),
        }
    }
}

// Each process is well below the limit of one. The first is the largest, which the kernel kills.
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

// The kernel kills the children and the guest continues, or the watchdog ends the run. Either way the
// limit holds.
fn children_that_are_killed(world: &World) {
    let sandbox = world.build(small().patient());
    // Each child keeps its memory until every other child has its own or has been killed.
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
