//! Tests of copying memory with guard pages, which glibc 2.42 and later install below each thread's stack.

use super::open;
use super::saved::{resume, sandbox, saved};
use super::snapshots::{copy, fork, ok};
use super::value;
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let tests = tests![
        a_session_with_guards_is_copied_with_them,
        a_session_that_had_threads_is_copied
    ];
    needing(Need::Snapshots, tests)
}

/// Installs a guard page by `MADV_GUARD_INSTALL` (102). Kernels before 6.13 refuse it, and the page stays ordinary.
const GUARDED: &str = "import ctypes, mmap, os\n\
    m = mmap.mmap(-1, 8 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m[:] = b'x' * len(m)\n\
    at = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
    page = ctypes.c_void_p(at + 2 * 4096)\n\
    is_guarded = ctypes.CDLL(None).madvise(page, 4096, 102) == 0\n\
    def touch(number):\n\
    \x20   pid = os.fork()\n\
    \x20   if pid == 0:\n\
    \x20       ctypes.string_at(at + number * 4096, 1)\n\
    \x20       os._exit(0)\n\
    \x20   return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])";

fn a_session_with_guards_is_copied_with_them(world: &World) {
    let mut session = open(world, standard());
    ok(&mut session, GUARDED);
    let mut forked = fork(&copy(&mut session));
    // Part of the fork's memory is mapped from the image.
    let mut again = fork(&copy(&mut forked));
    let (path, _directory) = saved(&mut again);
    let mut resumed = resume(&sandbox(world, standard()), &path);
    let seen = "(touch(1), touch(2) == (-11 if is_guarded else 0), touch(3), m[4096], m[3 * 4096])";
    for session in [&mut session, &mut forked, &mut again, &mut resumed] {
        assert_eq!(value(session, seen), "(0, True, 0, 120, 120)");
    }
}

fn a_session_that_had_threads_is_copied(world: &World) {
    let mut session = open(world, standard());
    let thread =
        "import threading; t = threading.Thread(target=int); t.start(); t.join(); t.is_alive()";
    assert_eq!(value(&mut session, thread), "False");
    let mut forked = fork(&copy(&mut session));
    // The new thread gets the stack of the one that has ended.
    assert_eq!(value(&mut forked, thread), "False");
}
