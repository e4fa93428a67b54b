//! Tests of snapshots saved to files, and of resuming them under another interpreter process.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandfork::session::Session;
use sandfork::{ErrorKind, Sandbox};

use super::pauses::MAPS;
use super::snapshots::{copy, fork, ok};
use super::{open, session, value};
use crate::need::Need;
use crate::recipe::{Recipe, standard};
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let tests = tests![
        saved_session_resumes_under_another_interpreter,
        threads_and_programs_work_after_a_resume,
        resumed_session_is_confined_as_before,
        a_pause_to_a_file_ends_the_session,
        unrestorable_session_is_not_ended,
        invalid_snapshot_file_is_rejected
    ];
    needing(Need::Snapshots, tests)
}

/// Builds a sandbox with a separate interpreter.
pub fn sandbox(world: &World, recipe: Recipe) -> Arc<Sandbox> {
    Arc::new(world.build(recipe))
}

#[track_caller]
pub fn resume(sandbox: &Arc<Sandbox>, path: &Path) -> Session {
    let resumed = sandbox.resume(path);
    resumed.unwrap_or_else(|error| panic!("it is not resumed: {error}"))
}

/// Saves the state of a session. Returns the path, and the directory that keeps the file.
pub fn saved(session: &mut Session) -> (PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("state");
    let length = copy(session).save(&path).expect("the snapshot is saved");
    let metadata = fs::metadata(&path).expect("the file exists");
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (length, 0o600));
    assert_eq!(
        fs::read_dir(directory.path()).expect("a directory").count(),
        1
    );
    (path, directory)
}

const STATE: &str = "import json, decimal, sqlite3, os, asyncio, random, signal\n\
    random.seed(5)\n\
    x = [1, 2]; g = (i * i for i in range(9)); next(g); next(g)\n\
    f = open('notes.txt', 'w+'); f.write('kept'); f.flush(); f.seek(1)\n\
    rows = sqlite3.connect('rows.db'); rows.execute('create table t(a)'); rows.execute('insert into t values (7)')\n\
    rows.commit()\n\
    hits = []; signal.signal(signal.SIGUSR1, lambda *_: hits.append('usr1'))\n\
    os.umask(0o027); os.mkdir('deep')\n\
    task = asyncio.create_task(asyncio.sleep(0.05, 'slept')); await asyncio.sleep(0)\n\
    big = [str(i) for i in range(200_000)]; block = bytearray(b'y' * 9_000_000); place = id(x)";

/// Shows what state the session has kept, and what it can do.
const SEEN: &str = "x.append(3)\n\
    os.kill(os.getpid(), signal.SIGUSR1)\n\
    more = [bytes(200) for _ in range(300_000)]; y = bytearray(30 << 20); del more[::2]\n\
    [x, next(g), f.read(), rows.execute('select a from t').fetchall(), hits, len(set(big)), block.count(b'y'),\n\
     id(x) == place, await task, decimal.Decimal('0.1') + 1, json.dumps(x), len(more), any(y), os.getpid()]";

const WANTED: &str = "[[1, 2, 3], 4, 'ept', [(7,)], ['usr1'], 200000, 9000000, True, 'slept', Decimal('1.1'), '[1, 2, 3]', \
    150000, False, 2]";

fn saved_session_resumes_under_another_interpreter(world: &World) {
    let mut first = open(world, standard());
    ok(&mut first, STATE);
    let (path, _directory) = saved(&mut first);
    let other = sandbox(world, standard());
    {
        let mut resumed = resume(&other, &path);
        assert_eq!(value(&mut resumed, SEEN), WANTED);
        let mut forked = fork(&copy(&mut resumed));
        assert_eq!(
            value(&mut forked, "len(x), len(big), id(x) == place"),
            "(3, 200000, True)"
        );
        // The resumed session's fork can be saved and resumed in turn.
        let (path, _directory) = saved(&mut forked);
        let mut again = resume(&sandbox(world, standard()), &path);
        assert_eq!(
            value(&mut again, "x.append(4); x, next(g), len(more)"),
            "([1, 2, 3, 4], 9, 150000)"
        );
        let before = copy(&mut resumed);
        resumed
            .rollback(&before)
            .expect("the snapshot belongs to the session");
        assert_eq!(value(&mut resumed, "len(x)"), "3");
    }
    drop(first);
    let mut resumed = resume(&other, &path);
    assert_eq!(value(&mut resumed, SEEN), WANTED);
}

fn threads_and_programs_work_after_a_resume(world: &World) {
    let mut first = open(world, standard().patient());
    ok(&mut first, "x = 1");
    let (path, _directory) = saved(&mut first);
    let other = sandbox(world, standard().patient());
    let mut resumed = resume(&other, &path);
    // Threads and programs, whose C library has data at addresses that this memory refers to; freed memory; and the
    // depth of the stack.
    ok(
        &mut resumed,
        "import threading, subprocess, sys, ctypes, time, os, random\n\
         seen = []\n\
         threads = [threading.Thread(target=seen.append, args=(n,)) for n in range(20)]\n\
         [t.start() for t in threads]; [t.join() for t in threads]\n\
         assert sorted(seen) == list(range(20))\n\
         assert subprocess.run([sys.executable, '-c', 'print(6*7)'], capture_output=True).stdout == b'42\\n'\n\
         for _ in range(5):\n\
         \x20   blocks = [bytearray(n) for n in range(1000, 200_000, 500)]\n\
         \x20   del blocks\n\
         \x20   ctypes.CDLL(None).malloc_trim(0)\n\
         def down(n):\n\
         \x20   return n and 1 + down(n - 1)\n\
         sys.setrecursionlimit(20_000)\n\
         assert down(2_000) == 2_000\n\
         assert time.time() > 1e9 and time.monotonic() > 0 and len(os.sched_getaffinity(0)) > 0\n\
         if hasattr(os, 'fork'):\n\
         \x20   assert os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1] == 0",
    );
    let drawn = "[random.random(), os.urandom(4), __import__('numpy') if 0 else 0]";
    let one = value(&mut resumed, drawn);
    assert_ne!(
        one,
        value(
            &mut resume(&other, &path),
            &format!("import random, os; {drawn}")
        )
    );
}

fn resumed_session_is_confined_as_before(world: &World) {
    let mut first = open(world, standard());
    let tries = "import os, socket\n\
        def refused(act):\n\
        \x20   try:\n\
        \x20       act()\n\
        \x20   except OSError as error:\n\
        \x20       return type(error).__name__\n\
        tries = [lambda: os.unshare(0x10000000) if hasattr(os, 'unshare') else os.chroot('/'),\n\
        \x20        lambda: open('/etc/shadow'), lambda: open('/etc/hostname', 'w'),\n\
        \x20        lambda: socket.create_connection(('127.0.0.1', 9)), lambda: os.kill(1, 9)]";
    ok(&mut first, tries);
    let found = value(&mut first, "[refused(act) for act in tries]");
    assert!(!found.contains("None"), "{found}");
    let (path, _directory) = saved(&mut first);
    let mut resumed = resume(&sandbox(world, standard()), &path);
    assert_eq!(
        value(&mut resumed, "[refused(act) for act in tries]"),
        found
    );
    assert_eq!(resumed.enforced(), first.enforced());
}

fn a_pause_to_a_file_ends_the_session(world: &World) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = sandbox(world, standard());
    let mut paused = session(&first);
    ok(&mut paused, "x = 5");
    let refused = paused.pause_to(directory.path().join("none/state"));
    let refused = refused.expect_err("there is no such directory");
    assert!(
        refused.to_string().ends_with("No such file or directory"),
        "{refused}"
    );
    assert_eq!(value(&mut paused, "x"), "5");
    // The longest possible file name.
    let path = directory.path().join("s".repeat(255));
    paused.pause_to(&path).expect("the snapshot is saved");
    let ended = paused.run("x").expect_err("the session has ended");
    assert_eq!(ended.kind(), ErrorKind::SessionEnded);
    assert_eq!(value(&mut resume(&first, &path), "x"), "5");
}

fn unrestorable_session_is_not_ended(world: &World) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("state");
    let sandbox = sandbox(world, standard());
    for (spoils, sentence) in [
        ("os.remove('m')", "cannot be opened again"),
        ("os.chmod('m', 0)", "cannot be read by its owner"),
        (
            "f = open('m', 'r+'); os.chmod('m', 0o400)",
            "cannot be opened again",
        ),
        (
            "f = open('m'); os.link('m', 'n'); os.remove('m'); libc.munmap(p, 4096)",
            "a file without a name",
        ),
    ] {
        let mut session = session(&sandbox);
        ok(
            &mut session,
            &format!(
                "{MAPS}; libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]; x = 5; {spoils}"
            ),
        );
        let refused = session.pause_to(&path).expect_err(spoils).to_string();
        assert!(refused.contains(sentence), "{refused}");
        assert!(!path.exists());
        assert_eq!(value(&mut session, "x"), "5");
    }
}

fn invalid_snapshot_file_is_rejected(world: &World) {
    let mut first = open(world, standard());
    ok(&mut first, "x = 5");
    let (path, directory) = saved(&mut first);
    let other = sandbox(world, standard());
    let refused = |sandbox: &Arc<Sandbox>, path: &Path| {
        let error = sandbox.resume(path).expect_err("it is of no use");
        assert_eq!(error.kind(), ErrorKind::Request);
        error.to_string()
    };
    let whole = fs::read(&path).expect("the file is readable");
    for (at, bit) in [
        (20, 1_u8),
        (100, 4),
        (whole.len() / 2, 16),
        (whole.len() - 1, 128),
    ] {
        let mut changed = whole.clone();
        changed[at] ^= bit;
        fs::write(&path, &changed).expect("the file is writable");
        let text = refused(&other, &path);
        let is_said = text.contains("was changed since") || text.contains("is truncated");
        assert!(is_said, "{at}: {text}");
    }
    for part in [&whole[..9], &whole[..whole.len() - 1], b""] {
        fs::write(&path, part).expect("the file is writable");
        assert!(refused(&other, &path).ends_with("is not a saved snapshot, or is truncated"));
    }
    // A forged file of another user, which would fill the disk before its authentication code is checked.
    let length = 1_u64 << 40;
    let mut forged = fs::File::create(&path).expect("the file is writable");
    let parts: [&[u8]; 5] = [
        &whole[..16],
        &2_u64.to_le_bytes(),
        &length.to_le_bytes(),
        &[0; 8],
        b"{}",
    ];
    let written = forged.write_all(&parts.concat());
    written.expect("the file is writable");
    let grown = forged.set_len(42 + length + 32);
    grown.expect("it is sparse");
    let text = refused(&other, &path);
    assert!(text.contains("is larger than `limits.memory`"), "{text}");
    fs::write(&path, &whole).expect("the file is writable");
    let another = sandbox(world, standard().set("limits.wall=7s"));
    assert!(refused(&another, &path).contains("was saved under another policy"));
    assert!(refused(&other, directory.path()).contains("is a directory"));
    let missing = refused(&other, &directory.path().join("missing"));
    assert!(
        missing.ends_with("cannot be read: No such file or directory"),
        "{missing}"
    );
    assert_eq!(value(&mut resume(&other, &path), "x"), "5");
}
