//! Tests of copying sessions whose guests obstruct the copy or lie about it.

use nix::unistd::geteuid;
use sandfork::Status;
use sandfork::session::SessionState;

use super::snapshots::{FORGES, copy, fork, ok};
use super::{assert_ended, open, run, value};
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let tests = tests![
        failed_step_is_named_and_the_session_survives,
        a_session_with_too_many_mappings_is_refused,
        a_session_with_too_many_descriptors_is_refused,
        full_directory_tree_is_copied,
        file_names_may_contain_newlines,
        names_are_escaped_in_errors,
        moving_bytes_during_a_copy_gains_nothing,
        forged_address_affects_only_its_forks,
        forged_ranges_affect_only_its_forks,
        unrequested_checkpoint_ends_the_guest,
        unrequested_failed_step_ends_the_guest
    ];
    needing(Need::Snapshots, tests)
}

// The mapping exists, but its file cannot be reopened.
fn failed_step_is_named_and_the_session_survives(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import ctypes, os\n\
         libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\n\
         libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n\
         with open('m', 'w+') as f: f.write('x' * 4096); f.flush(); p = libc.mmap(None, 4096, 1, 2, f.fileno(), 0)\n\
         os.chmod('m', 0)",
    );
    if geteuid().is_root() {
        let snapshot = copy(&mut session);
        let error = snapshot.fork().expect_err("its file cannot be opened");
        let text = error.to_string();
        let sentence =
            "could not begin with the snapshot: openat(2) failed: Permission denied (step ";
        assert!(text.starts_with(sentence), "{text}");
        let error = session.rollback(&snapshot).expect_err("it is the same");
        assert!(error.to_string().starts_with(sentence), "{error}");
    } else {
        let refused = session.snapshot().expect_err("it cannot be read");
        let sentence =
            "cannot snapshot: `/work/m` cannot be read by its owner; change its mode first (chmod)";
        assert_eq!(refused.to_string(), sentence);
    }
    ok(
        &mut session,
        "assert ctypes.string_at(p, 2) == b'xx'; os.chmod('m', 0o600)",
    );
    let kept = "ctypes.string_at(p, 2) == b'xx'";
    assert_eq!(value(&mut fork(&copy(&mut session)), kept), "True");
}

fn a_session_with_too_many_mappings_is_refused(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import ctypes\n\
         libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\n\
         libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n\
         libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]\n\
         p = libc.mmap(None, 4096 * 20_000, 3, 0x4022, -1, 0)\n\
         for n in range(10_000): libc.mprotect(p + 8192 * n, 4096, 1)",
    );
    let refused = session.snapshot().expect_err("it is refused").to_string();
    assert!(refused.contains("mappings"), "{refused}");
    assert_eq!(value(&mut session, "1"), "1");
}

fn a_session_with_too_many_descriptors_is_refused(world: &World) {
    let mut session = open(world, standard().set("limits.open_files=4096"));
    ok(
        &mut session,
        "import os\n\
         open('n', 'w').write('n' * 1000)\n\
         held = [os.open('n', os.O_RDONLY) for _ in range(450)]; twins = [os.dup(n) for n in held]",
    );
    // Each pair of descriptors has its own file position.
    let positions = "for place, n in enumerate(held): _ = os.lseek(n, place, 0)\n\
                     [os.lseek(n, 0, 1) for n in twins] == list(range(450))";
    let mut forked = fork(&copy(&mut session));
    assert_eq!(value(&mut forked, positions), "True");
    ok(&mut session, "more = [os.dup(held[0]) for _ in range(900)]");
    let refused = session.snapshot().expect_err("it is refused").to_string();
    assert!(
        refused.ends_with("is one of more than 1024; close it first"),
        "{refused}"
    );
    assert_eq!(value(&mut session, "1"), "1");
}

// As many files as the quota allows, with names of the maximum length.
fn full_directory_tree_is_copied(world: &World) {
    let mut session = open(world, standard().patient());
    ok(
        &mut session,
        "import os\n\
         made = 0\n\
         try:\n\
         \x20   while True: open('%0255d' % made, 'w').close(); made += 1\n\
         except OSError as error: print(error.strerror)",
    );
    ok(&mut session, "os.remove('%0255d' % 0)");
    let mut forked = fork(&copy(&mut session));
    assert_eq!(
        value(&mut forked, "len(os.listdir('/work')) == made - 1 > 3000"),
        "True"
    );
}

fn file_names_may_contain_newlines(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import mmap, os\n\
         name = 'a\\n7f0000000000-7f0000001000 rwxp 0 00:00 0 \\nVmFlags: wf'\n\
         f = open(name, 'w+b'); f.write(b'kept' * 2000); f.flush()",
    );
    assert_eq!(
        value(
            &mut fork(&copy(&mut session)),
            "f.seek(0); f.read(4) == b'kept', os.listdir() == [name]"
        ),
        "(True, True)"
    );
    ok(
        &mut session,
        "m = mmap.mmap(f.fileno(), 8000, flags=mmap.MAP_PRIVATE)",
    );
    let refused = session.snapshot().expect_err("its file has no path");
    let refused = refused.to_string();
    assert!(
        refused.contains("is mapped, and cannot be opened again"),
        "{refused}"
    );
    assert_eq!(value(&mut session, "m[:4] == b'kept'"), "True");
}

// The guest fills each file just before it is copied, in the space of one that was copied. The access time shows which
// file is being copied.
fn moving_bytes_during_a_copy_gains_nothing(world: &World) {
    const MIB: u64 = 1 << 20;
    let mut session = open(world, standard().patient());
    let stands = FORGES
        .replace("PLACE", "1")
        .replace("\x20       head =", "\x20       move()\n\x20       head =");
    ok(
        &mut session,
        &format!(
            "import ctypes, time\n\
             libc = ctypes.CDLL(None); data = b'x' * (16 << 20)\n\
             libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]\n\
             {stands}\n\
             files = [os.open(str(n), os.O_RDWR | os.O_CREAT) for n in range(20)]\n\
             for file in files: os.ftruncate(file, len(data))\n\
             files.sort(key=lambda file: os.fstat(file).st_ino)\n\
             os.pwrite(files[0], data, 0); os.pwrite(files[1], data, 0)\n\
             def move():\n\
             \x20   read = lambda file: os.fstat(file).st_atime_ns\n\
             \x20   before = read(files[1]); end = time.monotonic() + 5\n\
             \x20   for copied, next, file in zip(files, files[1:], files[2:]):\n\
             \x20       while read(next) == before and time.monotonic() < end: time.sleep(0.0001)\n\
             \x20       libc.fallocate(copied, 3, 0, len(data))\n\
             \x20       before = read(file); os.pwrite(file, data, 0)"
        ),
    );
    match session.snapshot() {
        // The guest was too slow.
        Ok(snapshot) => assert!(snapshot.size() < 128 * MIB, "{}", snapshot.size()),
        Err(refused) => assert_eq!(
            refused.to_string(),
            "cannot snapshot: the session changed while it was copied; try again"
        ),
    }
    assert_eq!(value(&mut session, "6 * 7"), "42");
}

// A caller prints the error unchanged.
fn names_are_escaped_in_errors(world: &World) {
    for code in [
        "import os; f = open(name, 'w'); os.unlink(name)",
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind(name); s.close()",
        "import mmap; f = open(name, 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096)",
    ] {
        let mut session = open(world, standard());
        let named = format!("name = 'a\\x1b]0;b\\x07\\u202e'\n{code}");
        ok(&mut session, &named);
        let refused = session.snapshot().expect_err(code).to_string();
        let shown = r"`/work/a\u{1b}]0;b\u{7}\u{202e}";
        assert!(refused.contains(shown), "{refused}");
    }
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import os; name = 'a\\x1b]0;b\\x07'; f = open(name, 'w+'); os.chmod(name, 0o400)",
    );
    let refused = copy(&mut session).fork().expect_err("it is not writable");
    let refused = refused.to_string();
    assert!(refused.contains(r"`/work/a\u{1b}]0;b\u{7}`"), "{refused}");
}

fn forged_address_affects_only_its_forks(world: &World) {
    for place in ["0", "2 ** 63", "id(own)", "0xffffffffff600000"] {
        let mut session = open(world, standard());
        ok(&mut session, &FORGES.replace("PLACE", place));
        let snapshot = copy(&mut session);
        let error = snapshot.fork().expect_err(place).to_string();
        assert!(
            error.starts_with("could not begin with the snapshot: "),
            "{error}"
        );
        session.rollback(&snapshot).expect_err(place);
        assert_eq!(value(&mut session, "6 * 7"), "42", "{place}");
    }
}

// Ranges that are not memory of the guest.
fn forged_ranges_affect_only_its_forks(world: &World) {
    for ranges in [
        "[[0, 2 ** 64 - 4096]]",
        "[[n * 8192, n * 8192 + 4096] for n in range(2000)]",
        "[[n, 2 ** 63 - n] for n in range(2000)]",
    ] {
        let mut session = open(world, standard());
        let forged = FORGES
            .replace("PLACE", "1")
            .replace("'break': 5", &format!("'break': 5, 'shareable': {ranges}"));
        ok(&mut session, &forged);
        copy(&mut session).fork().expect_err(ranges);
        assert_eq!(value(&mut session, "6 * 7"), "42", "{ranges}");
    }
}

fn unrequested_checkpoint_ends_the_guest(world: &World) {
    let mut session = open(world, standard());
    let report = run(
        &mut session,
        format!("{}\nown.native.stand('1')", FORGES.replace("PLACE", "1")),
    );
    assert_ended(&report, Status::ProtocolViolation, SessionState::Ended);
}

fn unrequested_failed_step_ends_the_guest(world: &World) {
    let mut session = open(world, standard());
    let report = run(
        &mut session,
        "import os; said = b'{\"kind\":\"failed-step\",\"errno\":12,\"step\":0}'\n\
         os.write(1023, len(said).to_bytes(4, 'little') + bytes(4) + said)\n\
         import time; time.sleep(60)",
    );
    assert_ended(&report, Status::ProtocolViolation, SessionState::Ended);
}
