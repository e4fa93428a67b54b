//! Tests of snapshots of a session and of the sessions that start from them.

use std::collections::BTreeSet;
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandfork::session::{Session, SessionState, Snapshot};
use sandfork::{ErrorKind, Status};

use super::{assert_ended, open, run, session, value};
use crate::apart;
use crate::leftovers::traces::descendants;
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::{self, World};

pub fn tests() -> Vec<Test> {
    let tests = tests![
        the_snapshots_of_a_session_are_limited,
        fork_continues_from_the_session,
        copies_are_consistent,
        a_snapshot_keeps_what_changed_since_the_last,
        fork_has_the_kernel_state,
        forks_are_independent,
        files_keep_inodes_links_and_times,
        a_fork_has_files_of_any_name_and_mode,
        a_fork_of_a_fork_has_both_states,
        shared_memory_of_forks_behaves_privately,
        forks_share_what_they_do_not_write_to,
        a_fork_draws_random_numbers_of_its_own,
        fork_is_confined_like_its_session,
        a_rollback_brings_back_variables_and_files,
        a_rollback_brings_back_a_session_that_has_ended,
        uncopyable_state_is_named_and_the_session_survives,
        process_is_named_by_its_pid_in_the_session,
        snapshot_belongs_to_its_sandbox,
        a_snapshot_ends_with_its_interpreter,
        running_event_loop_is_copied
    ];
    needing(Need::Snapshots, tests)
}

#[track_caller]
pub fn copy(session: &mut Session) -> Snapshot {
    let snapshot = session.snapshot();
    snapshot.unwrap_or_else(|error| panic!("no snapshot: {error}"))
}

#[track_caller]
pub fn fork(snapshot: &Snapshot) -> Session {
    let forked = snapshot.fork();
    forked.unwrap_or_else(|error| panic!("no fork: {error}"))
}

/// Runs a cell that must succeed.
#[track_caller]
pub fn ok(session: &mut Session, source: &str) {
    let report = run(session, source);
    assert_ended(&report, Status::Ok, SessionState::Live);
}

fn fork_continues_from_the_session(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import json, decimal\n\
         x = [1, 2]\n\
         g = (i * i for i in range(9)); next(g); next(g)\n\
         f = open('notes.txt', 'w+'); f.write('kept'); f.flush(); f.seek(1)\n\
         copy = __import__('os').dup(f.fileno())\n\
         big = [str(i) for i in range(200_000)]; h = hash(tuple(big))",
    );
    let mut forked = fork(&copy(&mut session));
    let goes_on = "x.append(3); x, next(g), f.read(), f.tell()";
    assert_eq!(value(&mut forked, goes_on), "([1, 2, 3], 4, 'ept', 4)");
    // Both descriptors still share one open file description, with one position.
    let position = "import os; f.seek(2); os.lseek(copy, 0, 1)";
    assert_eq!(value(&mut forked, position), "2");
    let grows = "more = [bytes(200) for _ in range(100_000)]; y = bytearray(30 << 20)\n\
                 h == hash(tuple(big)), len(more), not any(y[:1000])";
    assert_eq!(value(&mut forked, grows), "(True, 100000, True)");
    assert_eq!(
        value(&mut session, "x, next(g), f.read()"),
        "([1, 2], 4, 'ept')"
    );
}

// Workers that continued for an instant while they were copied had copies that crashed at the next allocation.
fn copies_are_consistent(world: &World) {
    let sandbox = Arc::new(world.build(standard()));
    for number in 0..60 {
        let mut session = session(&sandbox);
        ok(&mut session, &format!("x = {number}"));
        let mut forked = fork(&copy(&mut session));
        let seen = "y = [bytearray(n) for n in range(0, 3000, 7)]; del y[::3]; x";
        assert_eq!(value(&mut forked, seen), number.to_string());
    }
}

fn a_snapshot_keeps_what_changed_since_the_last(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "big = [str(i) for i in range(200_000)]; block = bytearray(b'y' * 40_000_000); x = 0",
    );
    let seen = "len(set(big)), block.count(b'y'), x";
    let wanted = |x: u32| format!("(200000, {}, {x})", 40_000_000 - x);
    let mut last = copy(&mut session);
    let whole = last.size();
    for round in 1..12 {
        ok(&mut session, &format!("x = {round}; block[-{round}] = 0"));
        let next = copy(&mut session);
        assert!(next.size() < whole / 4, "{round}");
        last = next;
        assert_eq!(value(&mut fork(&last), seen), wanted(round));
    }
    // Snapshots of a fork build on the snapshot that it started from.
    let mut forked = fork(&last);
    ok(&mut forked, "x = 12; block[-12] = 0");
    let of_fork = copy(&mut forked);
    assert!(of_fork.size() < whole / 4, "{}", of_fork.size());
    drop(last);
    assert_eq!(value(&mut fork(&of_fork), seen), wanted(12));
    // With no snapshot left to build on, everything is copied.
    drop(of_fork);
    assert!(copy(&mut forked).size() > whole / 2);
    let first = copy(&mut session);
    ok(&mut session, "x = 99");
    session
        .rollback(&first)
        .expect("the snapshot belongs to the session");
    assert!(copy(&mut session).size() < whole / 4);
    assert_eq!(value(&mut session, seen), wanted(11));
}

fn fork_has_the_kernel_state(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import os, signal, resource, threading\n\
         hits = []\n\
         signal.signal(signal.SIGUSR1, lambda *_: hits.append('usr1'))\n\
         signal.setitimer(signal.ITIMER_REAL, 3600)\n\
         os.umask(0o027); os.mkdir('deep'); os.chdir('deep')\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))\n\
         signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])\n\
         os.close(0); os.dup2(1, 40)",
    );
    let mut forked = fork(&copy(&mut session));
    let same = "os.kill(os.getpid(), signal.SIGUSR1)\n\
                left = signal.getitimer(signal.ITIMER_REAL)[0]\n\
                mask = os.umask(0)\n\
                t = threading.Thread(target=hits.append, args=('thread',)); t.start(); t.join()\n\
                os.write(40, b'out\\n')\n\
                try: os.fstat(0); closed = False\n\
                except OSError: closed = True\n\
                (hits, 3000 < left <= 3600, mask, os.getcwd(), resource.getrlimit(resource.RLIMIT_NOFILE), \
                 signal.SIGUSR2 in signal.pthread_sigmask(signal.SIG_BLOCK, []), closed, os.getpid())";
    let report = run(&mut forked, same);
    assert_eq!(report.outcome().stdout(), "out\n");
    assert_eq!(
        report
            .outcome()
            .value()
            .cloned()
            .unwrap_or_default()
            .to_string(),
        "(['usr1', 'thread'], True, 23, '/work/deep', (99, 99), True, True, 2)"
    );
}

fn forks_are_independent(world: &World) {
    let mut session = open(world, standard());
    ok(&mut session, "x = 0; open('a', 'w').write('0')");
    let snapshot = copy(&mut session);
    let own = |number: usize| {
        format!("x += {number}; open('a', 'a').write('{number}'); x, open('a').read()")
    };
    let mut forks: Vec<Session> = (0..3).map(|_| fork(&snapshot)).collect();
    for (number, forked) in (1..).zip(&mut forks) {
        let seen = value(forked, &own(number));
        assert_eq!(seen, format!("({number}, '0{number}')"));
    }
    assert_eq!(value(&mut session, &own(9)), "(9, '09')");
    // The image is unchanged.
    assert_eq!(value(&mut fork(&snapshot), &own(5)), "(5, '05')");
    assert!(snapshot.size() > 1 << 20, "{}", snapshot.size());
}

fn files_keep_inodes_links_and_times(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import os, sqlite3\n\
         for i in range(50): open('gone', 'w').close(); os.remove('gone')\n\
         db = sqlite3.connect('data.db'); db.execute('create table t(a)'); db.commit()\n\
         os.makedirs('d/e'); open('d/e/f', 'w').write('x' * 5000); os.link('d/e/f', 'same'); os.symlink('d/e/f', 'l')\n\
         os.mkfifo('p'); os.utime('same', (1e9, 1e9)); os.chmod('d/e', 0o500)\n\
         with open('sparse', 'wb') as s: s.truncate(40 << 20); s.seek(20 << 20); s.write(b'mid')\n\
         os.rename('d', 'moved')",
    );
    let seen = "def look(top):\n\
                \x20   for where, dirs, files in os.walk(top):\n\
                \x20       for name in sorted(dirs + files):\n\
                \x20           s = os.lstat(os.path.join(where, name))\n\
                \x20           yield where, name, s.st_mode, s.st_ino, s.st_nlink, s.st_size, s.st_blocks, s.st_mtime_ns\n\
                db.execute('insert into t values(1)').rowcount, sorted(look('/work')), open('same').read()[:2]";
    let snapshot = copy(&mut session);
    let (copied, original) = (value(&mut fork(&snapshot), seen), value(&mut session, seen));
    // Both have since inserted a row, each into its own file.
    let without_data = |text: &str| text.split("'data.db'").next().map(str::to_owned);
    assert_eq!(without_data(&copied), without_data(&original));
    assert!(copied.contains("'sparse'"), "{copied}");
}

fn a_fork_has_files_of_any_name_and_mode(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import os\n\
         for n in 'abc': open(n, 'w').write(n * 3)\n\
         os.rename('c', '.sandfork-%d' % os.stat('a').st_ino)\n\
         os.mkdir('group'); os.chmod('group', 0o2755); os.chmod('b', 0o4755)",
    );
    let seen = "[(n, oct(os.stat(n).st_mode), os.path.isfile(n) and open(n).read()) for n in sorted(os.listdir())]";
    let wanted = value(&mut session, seen);
    assert!(
        wanted.contains("42755") && wanted.contains("104755"),
        "{wanted}"
    );
    assert_eq!(value(&mut fork(&copy(&mut session)), seen), wanted);
}

fn a_fork_of_a_fork_has_both_states(world: &World) {
    let mut session = open(world, standard());
    ok(&mut session, "names = ['first']");
    let mut second = fork(&copy(&mut session));
    drop(session);
    ok(&mut second, "names.append('second')");
    let mut third = fork(&copy(&mut second));
    assert_eq!(
        value(&mut third, "names.append('third'); names"),
        "['first', 'second', 'third']"
    );
    assert_eq!(value(&mut second, "names"), "['first', 'second']");
}

/// Creates blocks and mappings of every kind before the snapshot.
const MADE: &str = "import ctypes, mmap, gc\n\
    listed = [None] * 10_000_000\n\
    text = bytearray(b'x' * 20_000_000)\n\
    objects = [str(i) for i in range(200_000)]\n\
    libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\n\
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n\
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]\n\
    p = libc.mmap(None, 1 << 20, 3, 0x22, -1, 0); _ = ctypes.memset(p, 7, 1 << 20)\n\
    anonymous = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)";

fn shared_memory_of_forks_behaves_privately(world: &World) {
    let recipe = standard().patient().set("limits.memory=2GiB");
    let mut session = open(world, recipe);
    ok(&mut session, MADE);
    let snapshot = copy(&mut session);
    let mut first = fork(&snapshot);
    let mut again = fork(&copy(&mut first));
    let used = "listed.extend([1] * 4_000_000); text.extend(b'y' * 40_000_000)\n\
                objects.extend(str(i) for i in range(100_000)); gc.collect()\n\
                dropped = libc.madvise(p, 1 << 20, 4), ctypes.string_at(p, 1)[0]\n\
                fresh = [bytearray(1 << k) for k in range(24)]\n\
                zeros = not any(any(block[-4096:]) for block in fresh)\n\
                del fresh, objects[1000:]; gc.collect()\n\
                (len(listed), listed.count(1), listed.count(None), text.count(b'x'), text.count(b'y'), objects[999], \
                 dropped, zeros, libc.malloc_trim(0) in (0, 1), sum(map(len, objects)))";
    let wanted =
        "(14000000, 4000000, 10000000, 20000000, 40000000, '999', (0, 0), True, True, 2890)";
    for session in [&mut again, &mut first, &mut session, &mut fork(&snapshot)] {
        assert_eq!(value(session, used), wanted);
    }
}

/// The proportional set size of a process (proc(5), `Pss`) in MiB.
const OWN_SHARE: &str = "int(next(l.split()[1] for l in open('/proc/self/smaps_rollup') if l.startswith('Pss:'))) >> 10";

fn forks_share_what_they_do_not_write_to(world: &World) {
    let recipe = standard()
        .set("limits.memory=1GiB")
        .set("session.snapshot_bytes=2GiB");
    let mut session = open(world, recipe);
    ok(
        &mut session,
        "text = bytearray(b'x' * 150_000_000); objects = [str(i) for i in range(400_000)]",
    );
    let snapshot = copy(&mut session);
    let mut forks: Vec<Session> = (0..5).map(|_| fork(&snapshot)).collect();
    let shares = forks.iter_mut().map(|session| value(session, OWN_SHARE));
    let shares: Vec<u64> = shares.map(|text| text.parse().expect("a number")).collect();
    // Each fork maps about 190 MiB.
    assert!(shares.iter().all(|share| *share < 60), "{shares:?}");
    assert_eq!(
        value(&mut forks[0], "text.count(b'x'), len(set(objects))"),
        "(150000000, 400000)"
    );
}

fn a_fork_draws_random_numbers_of_its_own(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import random, ssl, tempfile, uuid; random.seed(1); ssl.RAND_bytes(4); tempfile.mktemp()",
    );
    let snapshot = copy(&mut session);
    let draw = "random.random(), ssl.RAND_bytes(8).hex(), tempfile.mktemp(), str(uuid.uuid4())";
    let mut drawn = vec![value(&mut session, draw)];
    drawn.extend((0..2).map(|_| value(&mut fork(&snapshot), draw)));
    let parts: BTreeSet<&str> = drawn.iter().flat_map(|all| all.split(", ")).collect();
    // Four values in each of three sessions.
    assert_eq!(parts.len(), 12, "{drawn:?}");
}

/// Tries what no guest may do, and reports the results.
pub const WALLS: &str = "import os, socket, ctypes\n\
    def tried(act):\n\
    \x20   try: return repr(act())\n\
    \x20   except OSError as error: return error.errno\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def call(number, *args): return libc.syscall(number, *args), ctypes.get_errno()\n\
    wanted = ('CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs', 'Seccomp', 'Seccomp_filters', 'Uid')\n\
    lines = [line for line in open('/proc/self/status') if line.split(':')[0] in wanted]\n\
    (lines, tried(lambda: os.listdir('/home')), tried(socket.socket), tried(lambda: os.kill(1, 9)), \
     call(272, 0x10000000), call(165, 0, 0, 0, 0, 0), sorted(os.listdir('/')), os.listdir('/proc/self/fd'))";

fn fork_is_confined_like_its_session(world: &World) {
    let sandbox = Arc::new(world.build(standard()));
    let mut session = session(&sandbox);
    let before = value(&mut session, WALLS);
    let mut forked = fork(&copy(&mut session));
    assert_eq!(value(&mut forked, WALLS), before);
    assert_eq!(
        format!("{:?}", forked.enforced()),
        format!("{:?}", session.enforced())
    );
}

fn a_rollback_brings_back_variables_and_files(world: &World) {
    let mut session = open(world, standard());
    let report = session.tool("ask", |_| Ok("answered".into()));
    assert!(report.is_ok_and(|report| report.outcome().is_ok()));
    ok(&mut session, "x = 1; open('a', 'w').write('before')");
    let snapshot = copy(&mut session);
    for _ in 0..3 {
        ok(
            &mut session,
            "x = 2; open('a', 'w').write('after'); open('b', 'w')",
        );
        let rolled = session.rollback(&snapshot);
        rolled.unwrap_or_else(|error| panic!("not rolled back: {error}"));
        let seen = "import os; x, open('a').read(), os.path.exists('b'), ask()";
        assert_eq!(
            value(&mut session, seen),
            "(1, 'before', False, 'answered')"
        );
    }
}

fn a_rollback_brings_back_a_session_that_has_ended(world: &World) {
    let mut session = open(world, standard());
    ok(&mut session, "x = 1");
    let snapshot = copy(&mut session);
    let report = run(&mut session, "import os; os.kill(os.getpid(), 9)");
    assert_ended(&report, Status::Signal, SessionState::Ended);
    let rolled = session.rollback(&snapshot);
    rolled.unwrap_or_else(|error| panic!("not rolled back: {error}"));
    assert_eq!(value(&mut session, "x"), "1");
}

/// State that cannot be copied, part of the message, and the remedy.
const REFUSED: [(&str, &str, &str); 8] = [
    (
        "import threading; e = threading.Event(); t = threading.Thread(target=e.wait); t.start()",
        "has 2 threads",
        "e.set(); t.join()",
    ),
    (
        "import subprocess; p = subprocess.Popen(['sleep', '100'])",
        "of the session still runs; end it first",
        "p.kill(); p.wait()",
    ),
    (
        "import socket; a, b = socket.socketpair()",
        "is a socket; close it first",
        "a.close(); b.close()",
    ),
    (
        "import os; r, w = os.pipe()",
        "is a pipe; close it first",
        "os.close(r); os.close(w)",
    ),
    (
        "import select; e = select.epoll()",
        "is `anon_inode:[eventpoll]`; close it first",
        "e.close()",
    ),
    (
        "f = open('gone', 'w'); import os; os.remove('gone')",
        "a file without a name; close it first",
        "f.close()",
    ),
    (
        "import mmap; f = open('m', 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); f.close()",
        "`/work/m` is mapped shared and writable",
        "m.close()",
    ),
    (
        "import socket, os; u = socket.socket(socket.AF_UNIX); u.bind('s'); u.close()",
        "`/work/s` is a socket; remove it first",
        "os.remove('s')",
    ),
];

fn uncopyable_state_is_named_and_the_session_survives(world: &World) {
    let mut session = open(world, standard());
    ok(&mut session, "x = 7");
    for (makes, sentence, undoes) in REFUSED {
        ok(&mut session, makes);
        let error = session.snapshot().expect_err(makes);
        let text = error.to_string();
        assert!(text.starts_with("cannot snapshot: "), "{text}");
        assert!(text.contains(sentence), "{text}");
        assert_eq!(error.kind(), ErrorKind::Request);
        assert_eq!(value(&mut session, "x"), "7");
        ok(&mut session, undoes);
        assert_eq!(value(&mut fork(&copy(&mut session)), "x"), "7", "{makes}");
    }
}

fn process_is_named_by_its_pid_in_the_session(world: &World) {
    let mut session = open(world, standard());
    let starts = "import os, subprocess; p = subprocess.Popen(['sleep', '100'])";
    ok(&mut session, starts);
    let pid = value(&mut session, "p.pid");
    let ends = "p.kill(); os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)";
    for (cell, said) in [
        ("", "still runs; end it first"),
        (ends, "has ended, and nothing has waited for it"),
    ] {
        ok(&mut session, cell);
        let text = session
            .snapshot()
            .expect_err("it has a process")
            .to_string();
        let wanted = format!("process {pid} (`sleep`) of the session {said}");
        assert!(text.contains(&wanted), "{text}");
    }
    ok(&mut session, "p.wait()");
    fork(&copy(&mut session));
}

/// Replaces the session's native module by one that sends forged values.
pub const FORGES: &str = "import gc, os, json\n\
    own = next(o for o in gc.get_objects() if type(o).__name__ == 'Session')\n\
    class Forged:\n\
    \x20   trim, compile = staticmethod(own.native.trim), staticmethod(own.native.compile)\n\
    \x20   def stand(self, number):\n\
    \x20       said = json.dumps({'kind': 'standing', 'id': int(number), 'place': PLACE, 'break': 5}).encode()\n\
    \x20       os.write(1023, len(said).to_bytes(4, 'little') + bytes(4) + said)\n\
    \x20       head = os.read(1023, 8); os.read(1023, int.from_bytes(head[:4], 'little'))\n\
    \x20       return ''\n\
    own.native = Forged()";

fn snapshot_belongs_to_its_sandbox(world: &World) {
    let mut session = open(world, standard());
    let mut other = open(world, standard().set("limits.wall=7s"));
    let snapshot = copy(&mut session);
    let refused = other
        .rollback(&snapshot)
        .expect_err("it is another sandbox");
    assert!(
        refused.to_string().contains("belongs to another policy"),
        "{refused}"
    );
    assert_eq!(value(&mut other, "1"), "1");
}

fn a_snapshot_ends_with_its_interpreter(_: &World) {
    apart::finishes("ended-interpreter");
}

/// Runs in a separate process, all of whose descendants are killed.
pub fn ended_interpreter() {
    let world = World::probe().expect("the host can be probed");
    let sandbox = Arc::new(world.build(standard()));
    let mut session = session(&sandbox);
    ok(&mut session, "x = 1");
    let snapshot = copy(&mut session);
    kill_all();
    let refused = snapshot.fork().expect_err("its addresses are gone");
    let sentence = "could not begin with the snapshot: the interpreter from which its session was forked has ended; \
                    take another";
    assert_eq!(refused.to_string(), sentence);
    session.rollback(&snapshot).expect_err("the same");
    assert!(world::run(&sandbox, "pass").is_ok());
}

/// Kills all descendants of this process.
pub fn kill_all() {
    for pid in descendants() {
        let pid = Pid::from_raw(pid.try_into().expect("a process id"));
        // The process may have ended together with its parent.
        _ = kill(pid, Signal::SIGKILL);
    }
}

fn running_event_loop_is_copied(world: &World) {
    let mut session = open(world, standard());
    ok(
        &mut session,
        "import asyncio\n\
         done = []\n\
         async def later():\n\
         \x20   await asyncio.sleep(0.2); done.append('slept')\n\
         task = asyncio.create_task(later()); await asyncio.sleep(0)",
    );
    let mut forked = fork(&copy(&mut session));
    for session in [&mut forked, &mut session] {
        assert_eq!(value(session, "await task; done"), "['slept']");
    }
}

fn the_snapshots_of_a_session_are_limited(world: &World) {
    let mut session = open(world, standard().set("session.snapshots=2"));
    let kept = [copy(&mut session), copy(&mut session)];
    let refused = session.snapshot().expect_err("it is the third").to_string();
    assert_eq!(
        refused,
        "cannot snapshot: the session has reached its limit of 2 snapshots at once (`session.snapshots`); close one first"
    );
    drop(kept);
    copy(&mut session);
    let mut small = open(world, standard().set("session.snapshot_bytes=1MiB"));
    let refused = small.snapshot().expect_err("it is too large").to_string();
    assert!(refused.contains("`session.snapshot_bytes`"), "{refused}");
    assert_eq!(value(&mut small, "1"), "1");
    // What the limit is about is what they keep together.
    let mut large = open(world, standard().set("session.snapshot_bytes=96MiB"));
    ok(&mut large, "block = bytearray(b'y' * (64 << 20))");
    let first = copy(&mut large);
    ok(&mut large, "block[7] = 0");
    let second = copy(&mut large);
    ok(&mut large, "block[:] = bytes(len(block))");
    let refused = large.snapshot().expect_err("all has changed").to_string();
    assert!(refused.contains("`session.snapshot_bytes`"), "{refused}");
    assert_eq!(value(&mut large, "block.count(b'y')"), "0");
    drop((first, second));
    copy(&mut large);
}
