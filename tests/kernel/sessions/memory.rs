//! Tests of the memory that sessions hold between cells and leave behind in their supervisor.

use std::sync::Arc;

use sandfork::Status;
use sandfork::session::SessionState;

use super::snapshots::{copy, fork, ok};
use super::{assert_ended, open, run, session, value};
use crate::apart;
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let tests = tests![
        next_failure_releases_the_last_exception,
        memory_is_released_after_a_memory_error
    ];
    let copies = tests![copies_do_not_raise_the_mmap_threshold];
    let copies = needing(Need::Snapshots, copies);
    tests.into_iter().chain(copies).collect()
}

/// Whether the resident set of the guest is below 60 MiB.
const IS_SMALL: &str = "import re\n\
    int(re.search('VmRSS:\\s*(\\d+)', open('/proc/self/status').read())[1]) < 60 << 10";

fn next_failure_releases_the_last_exception(world: &World) {
    let mut session = open(world, standard());
    let code = "def fail():\n\
                \x20   held = bytearray(100 << 20)\n\
                \x20   raise ValueError(len(held))\n\
                fail()";
    assert_ended(
        &run(&mut session, code),
        Status::Exception,
        SessionState::Live,
    );
    // As in an interactive interpreter, the last exception keeps its frames for a debugger.
    assert_eq!(value(&mut session, IS_SMALL), "False");
    assert_ended(
        &run(&mut session, "1 / 0"),
        Status::Exception,
        SessionState::Live,
    );
    // The memory is released without a garbage collection.
    assert_eq!(value(&mut session, IS_SMALL), "True");
}

fn memory_is_released_after_a_memory_error(world: &World) {
    let mut session = open(world, standard().set("limits.memory=96MiB"));
    // The freed blocks lie below a live object: blocks this small are in the C library's heap.
    let code = "stays = []\n\
                def fill():\n\
                \x20   held = []\n\
                \x20   try:\n\
                \x20       while True: held.append(bytearray(64 << 10))\n\
                \x20   except MemoryError:\n\
                \x20       stays.append(held.pop())\n\
                \x20       raise\n\
                fill()";
    assert_ended(
        &run(&mut session, code),
        Status::MemoryLimit,
        SessionState::Live,
    );
    assert_eq!(value(&mut session, IS_SMALL), "True");
}

fn copies_do_not_raise_the_mmap_threshold(_: &World) {
    apart::finishes("copied-sessions");
}

/// After glibc has freed a mapped block, it keeps twice its size in each arena (`M_MMAP_THRESHOLD`, mallopt(3)). A
/// supervisor has many threads and so many arenas, and would grow over thousands of copies.
pub fn copied_sessions() {
    let world = World::probe().expect("the host can be probed");
    let sandbox = Arc::new(world.build(standard()));
    let mut session = session(&sandbox);
    ok(
        &mut session,
        "x = 1; file = open('kept', 'wb').write(bytes(1 << 20))",
    );
    let before = least_mapped_block();
    let snapshot = copy(&mut session);
    assert_eq!(value(&mut fork(&snapshot), "x"), "1");
    session.rollback(&snapshot).expect("the rollback succeeds");
    if session.pause().is_ok() {
        assert_eq!(value(&mut session, "x"), "1");
    }
    assert_eq!(least_mapped_block(), before);
}

/// Returns the smallest power of two for which glibc maps a separate block, which then begins right after the header in
/// its page. The blocks that are tried are leaked, because freeing one changes the threshold.
fn least_mapped_block() -> Option<usize> {
    let begins = |length| Vec::<u8>::with_capacity(length).leak().as_ptr().addr() % 4096;
    let is_mapped = |length: &usize| (0..4).all(|_| begins(*length) == 2 * size_of::<usize>());
    (16..26).map(|power| 1 << power).find(is_mapped)
}
