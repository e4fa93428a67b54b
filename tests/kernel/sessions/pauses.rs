//! Tests of pausing idle sessions.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use sandfork::session::{Contents, Depth, Parents, Program, Session, SessionState};
use sandfork::{ErrorKind, Sandbox, Status};

use super::snapshots::{FORGES, copy, fork, kill_all, ok};
use super::{assert_ended, open, run, session, value};
use crate::apart;
use crate::leftovers::traces::{descendants, wait_until};
use crate::need::Need;
use crate::recipe::{Recipe, standard};
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let tests = tests![
        idle_session_is_paused_and_resumed,
        any_use_resumes_a_session,
        session_can_be_paused_after_each_use,
        running_or_watched_session_is_not_paused,
        failed_pause_leaves_the_session_unchanged,
        paused_session_ends_at_its_idle_and_age_limits,
        a_paused_session_is_closed_restarted_and_rolled_back,
        paused_sessions_use_little_and_end_with_the_zygote,
        paused_session_is_confined_as_before,
        caller_pauses_a_session,
        watch_survives_a_refused_pause,
        closed_file_does_not_block_a_pause,
        forged_address_loses_only_its_session,
        pause_returns_if_the_guest_dies
    ];
    needing(Need::Snapshots, tests)
}

/// Returns the default policy with a short delay before a pause.
fn pausing() -> Recipe {
    standard().set("session.pause_after=50ms")
}

/// Waits until a session is paused.
#[track_caller]
pub fn await_pause(session: &Session) {
    assert!(wait_until(|| session.is_paused()), "it is not paused");
}

fn caller_pauses_a_session(world: &World) {
    let sandbox = Arc::new(world.build(standard().set("session.idle=2s")));
    let mut paused = session(&sandbox);
    let paused_now = |session: &mut Session| {
        session.pause().unwrap_or_else(|error| panic!("{error}"));
        assert!(session.is_paused());
        assert_eq!(sandbox.stats()["paused"], 1);
    };
    ok(&mut paused, "x = [1]; open('f', 'w').write('f')");
    let program = paused.programs().start(Program::new(["sleep", "1000"]));
    let program = program.unwrap_or_else(|error| panic!("no program: {error}"));
    let refused = paused.pause().expect_err("a program runs").to_string();
    assert!(refused.contains("`sleep` still runs"), "{refused}");
    assert_eq!(
        (value(&mut paused, "x"), paused.is_paused()),
        ("[1]".into(), false)
    );
    program.kill(9).expect("the program runs");
    program.wait();
    let watch = paused.watcher().watch(".", Depth::Directory);
    let watch = watch.expect("the watch starts");
    paused_now(&mut paused);
    let ended = watch
        .next(None)
        .expect_err("the session has ended")
        .to_string();
    assert!(ended.contains("was paused"), "{ended}");
    // The idle limit stops during a pause that the caller requested. A session that waits as long ends meanwhile.
    let younger = session(&sandbox);
    let watch = younger.watcher().watch(".", Depth::Directory);
    let ended = watch.expect("the watch starts").next(None);
    let ended = ended.expect_err("the session has ended").to_string();
    assert!(ended.contains("session.idle"), "{ended}");
    assert_eq!(paused.list(".").map(|files| files.len()).ok(), Some(1));
    assert!(!paused.is_paused());
    assert_eq!(sandbox.stats()["paused"], 0);
    paused_now(&mut paused);
    // Pausing again works.
    paused_now(&mut paused);
    assert_eq!(value(&mut paused, "x.append(2); x"), "[1, 2]");
}

fn watch_survives_a_refused_pause(world: &World) {
    let mut session = open(world, standard());
    let watch = session.watcher().watch(".", Depth::Directory);
    let watch = watch.expect("the watch starts");
    ok(
        &mut session,
        "import os; f = open('f', 'w+'); os.chmod('f', 0o400)",
    );
    let until = || Some(Instant::now() + Duration::from_secs(60));
    let refused = session.pause().expect_err("it could not come back");
    let refused = refused.to_string();
    assert!(refused.contains("cannot be opened again"), "{refused}");
    while !watch
        .next(Some(Instant::now()))
        .expect("the watch continues")
        .is_empty()
    {}
    ok(&mut session, "open('g', 'w').close(); f.close()");
    assert!(!watch.next(until()).expect("the watch continues").is_empty());
    session.pause().expect("the session can be paused");
    while let Ok(events) = watch.next(until()) {
        assert!(!events.is_empty(), "it goes on");
    }
}

fn closed_file_does_not_block_a_pause(world: &World) {
    let mut session = open(world, standard());
    let write = |session: &mut Session| {
        let file = session.open_write("rows", Contents::Kept);
        let mut file = file.expect("the file exists");
        file.write_all(b"rows").expect("the file system has space");
        file
    };
    drop(write(&mut session));
    ok(&mut session, "f = open('rows', 'r+')");
    session.pause().expect("only the guest has it open");
    let file = write(&mut session);
    ok(&mut session, "1");
    for _ in 0..2 {
        let refused = session.pause().expect_err("it is open").to_string();
        assert!(refused.contains("by the caller or the guest"), "{refused}");
    }
    drop(file);
    // Neither the caller nor the guest is known to be the one that has it open.
    session.pause().expect_err("the guest has it open");
    ok(&mut session, "f.close()");
    session.pause().expect("the file is closed");
    assert_eq!(value(&mut session, "open('rows').read()"), "'rowsrows'");
}

/// Waits until another, younger session of the sandbox is paused.
#[track_caller]
fn await_pause_of_another(sandbox: &Arc<Sandbox>) {
    let mut other = session(sandbox);
    ok(&mut other, "1");
    await_pause(&other);
}

fn idle_session_is_paused_and_resumed(world: &World) {
    let sandbox = Arc::new(world.build(pausing()));
    let mut session = session(&sandbox);
    let defined = session.tool("ask", |_| Ok("answered".into()));
    assert!(defined.is_ok_and(|report| report.outcome().is_ok()));
    ok(
        &mut session,
        "import random, asyncio\n\
         random.seed(5); drawn = [random.random() for _ in range(3)]; random.seed(5)\n\
         x = [1]; g = (i * i for i in range(99)); next(g)\n\
         f = open('notes.txt', 'w+'); f.write('kept'); f.flush(); f.seek(1)\n\
         big = [str(i) for i in range(200_000)]; block = bytearray(b'y' * 9_000_000)",
    );
    for round in 1..4 {
        await_pause(&session);
        let stats = sandbox.stats();
        assert_eq!((stats["paused"], stats["sessions"]), (1, 1));
        let seen = "x.append(random.random()); f.seek(1)\n\
                    x[1:] == drawn[:len(x) - 1], next(g), f.read(), ask(), len(set(big)), block.count(b'y')";
        let wanted = format!(
            "(True, {}, 'ept', 'answered', 200000, 9000000)",
            round * round
        );
        assert_eq!(value(&mut session, seen), wanted);
    }
    // Objects made in a resumed worker can be copied in memory too.
    let mut forked = fork(&copy(&mut session));
    assert_eq!(value(&mut forked, "len(x), next(g)"), "(4, 16)");
}

fn any_use_resumes_a_session(world: &World) {
    let sandbox = Arc::new(world.build(pausing()));
    let mut session = session(&sandbox);
    let (programs, watcher) = (session.programs(), session.watcher());
    ok(&mut session, "open('a', 'w').write('first')");
    await_pause(&session);
    let mut text = String::new();
    let (mut file, size) = session.open_read("a").expect("the file exists");
    file.read_to_string(&mut text)
        .expect("the file is readable");
    assert_eq!((text.as_str(), size), ("first", 5));
    assert!(!session.is_paused());
    await_pause(&session);
    let mut file = session
        .open_write("b", Contents::Replaced)
        .expect("the file is created");
    file.write_all(b"sec").expect("the file system has space");
    // A session with a file open for writing is not paused, so that no write is lost.
    await_pause_of_another(&sandbox);
    assert!(!session.is_paused());
    file.write_all(b"ond").expect("the file system has space");
    drop(file);
    ok(&mut session, "1");
    await_pause(&session);
    let program = programs.start(Program::new(["cat", "a", "b"]));
    let report = program.map(|program| program.wait());
    let report = report.unwrap_or_else(|error| panic!("no program: {error}"));
    assert_eq!(report.stdout, b"firstsecond");
    await_pause(&session);
    let watch = watcher
        .watch(".", Depth::Directory)
        .expect("the watch starts");
    assert!(!session.is_paused());
    session
        .make_dir("c", Parents::Required)
        .expect("the directory is created");
    let until = Instant::now() + Duration::from_secs(60);
    assert!(
        !watch
            .next(Some(until))
            .expect("the watch continues")
            .is_empty()
    );
    drop(watch);
    await_pause(&session);
    assert_eq!(
        value(&mut session, "import os; sorted(os.listdir())"),
        "['a', 'b', 'c']"
    );
}

fn session_can_be_paused_after_each_use(world: &World) {
    let mut session = open(world, standard().set("session.pause_after=1ms"));
    ok(&mut session, "x = []");
    for round in 1..6 {
        await_pause(&session);
        assert_eq!(
            value(&mut session, "x.append(1); len(x)"),
            round.to_string()
        );
    }
}

fn running_or_watched_session_is_not_paused(world: &World) {
    let sandbox = Arc::new(world.build(pausing()));
    let (mut running, watched) = (session(&sandbox), session(&sandbox));
    ok(&mut running, "1");
    let program = running.programs().start(Program::new(["sleep", "1000"]));
    let program = program.unwrap_or_else(|error| panic!("no program: {error}"));
    let watch = watched.watcher().watch(".", Depth::Directory);
    let watch = watch.expect("the watch starts");
    await_pause_of_another(&sandbox);
    assert!(!running.is_paused() && !watched.is_paused());
    program.kill(libc::SIGKILL).expect("the program runs");
    program.wait();
    await_pause(&running);
    assert_eq!(value(&mut running, "1"), "1");
    drop(watch);
}

/// Maps a file of the session.
pub const MAPS: &str = "import ctypes, os\n\
    libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\n\
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n\
    with open('m', 'w+') as f: f.write('kept' * 1024); f.flush(); p = libc.mmap(None, 4096, 1, 2, f.fileno(), 0)\n\
    del f";

fn failed_pause_leaves_the_session_unchanged(world: &World) {
    let sandbox = Arc::new(world.build(pausing()));
    let mut session = session(&sandbox);
    for (makes, undoes) in [
        (
            "import threading; e = threading.Event(); t = threading.Thread(target=e.wait); t.start()",
            "e.set(); t.join()",
        ),
        ("import os; r, w = os.pipe()", "os.close(r); os.close(w)"),
    ] {
        ok(&mut session, &format!("x = 7; {makes}"));
        await_pause_of_another(&sandbox);
        assert!(!session.is_paused(), "{makes}");
        assert_eq!(value(&mut session, "x"), "7");
        ok(&mut session, undoes);
        await_pause(&session);
    }
    // State that can be copied but could not be restored.
    for (number, spoils) in ["os.remove('m')", "os.chmod('m', 0)"].iter().enumerate() {
        let mut session = self::session(&sandbox);
        ok(&mut session, &format!("{MAPS}; {spoils}; x = {number}"));
        await_pause_of_another(&sandbox);
        await_pause_of_another(&sandbox);
        assert!(!session.is_paused(), "{spoils}");
        let seen = "x, ctypes.string_at(p, 4) == b'kept'";
        assert_eq!(value(&mut session, seen), format!("({number}, True)"));
        let program = session.programs().start(Program::new(["true"]));
        program.expect("the programs continue").wait();
    }
    let recipe = pausing().set("session.snapshot_bytes=32MiB");
    let sandbox = Arc::new(world.build(recipe));
    let mut large = self::session(&sandbox);
    ok(&mut large, "x = bytearray(b'y' * 33_000_000)");
    await_pause_of_another(&sandbox);
    assert!(!large.is_paused());
    assert_eq!(value(&mut large, "len(x)"), "33000000");
}

fn paused_session_ends_at_its_idle_and_age_limits(world: &World) {
    for key in ["session.idle", "session.age"] {
        let mut session = open(world, pausing().set(format!("{key}=5s")));
        ok(&mut session, "1");
        await_pause(&session);
        assert!(wait_until(|| !session.is_paused()), "it has not ended");
        let refused = session.run("1").expect_err("the session has ended");
        assert_eq!(refused.kind(), ErrorKind::SessionEnded);
        assert!(refused.to_string().contains(key), "{refused}");
        session.restart().expect("the session restarts");
        assert_eq!(value(&mut session, "1"), "1");
    }
}

fn a_paused_session_is_closed_restarted_and_rolled_back(world: &World) {
    let sandbox = Arc::new(world.build(pausing()));
    let mut session = session(&sandbox);
    ok(&mut session, "x = 1");
    let snapshot = copy(&mut session);
    ok(&mut session, "x = 2");
    await_pause(&session);
    session.interrupter().interrupt();
    session.rollback(&snapshot).expect("the rollback succeeds");
    assert_eq!(value(&mut session, "x"), "1");
    await_pause(&session);
    session.restart().expect("the session restarts");
    let report = run(&mut session, "x");
    assert_ended(&report, Status::Exception, SessionState::Live);
    await_pause(&session);
    drop(session);
    assert_eq!(sandbox.stats()["paused"], 0);
}

/// Returns the proportional set size of this process and its descendants in KiB.
fn share_of_all() -> u64 {
    let of = |pid: u32| {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
        let rollup = rollup.unwrap_or_default();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        let number = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
        number.unwrap_or(0_u64)
    };
    of(std::process::id()) + descendants().into_iter().map(of).sum::<u64>()
}

fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

fn paused_sessions_use_little_and_end_with_the_zygote(_: &World) {
    apart::finishes("paused-sessions");
}

/// Runs in a separate process, where nothing else uses processes and memory and all descendants can be killed.
pub fn part() {
    let world = World::probe().expect("the host can be probed");
    let sandbox = Arc::new(world.build(pausing()));
    await_pause_of_another(&sandbox);
    let (before, processes) = (share_of_all(), descendants().len());
    let mut sessions: Vec<Session> = (0..6).map(|_| session(&sandbox)).collect();
    for session in &mut sessions {
        ok(session, "x = bytearray(b'z' * 30_000_000)");
        await_pause(session);
    }
    // The pool may have made a worker or two meanwhile.
    let more = descendants().len().saturating_sub(processes);
    assert!(more < 6, "{more} processes");
    let each = share_of_all().saturating_sub(before) / 6;
    // Without a pause, each would take more than 30 MB. Idle workers of the pool take some of it.
    assert!(each < 12 << 10, "{each} KiB for each");
    for session in &mut sessions {
        assert_eq!(value(session, "x.count(b'z')"), "30000000");
    }
    sessions.truncate(1);
    await_pause(&sessions[0]);
    kill_all();
    // Until the interpreter's end is noticed, the resume is retried.
    assert!(wait_until(|| descendants().into_iter().all(has_ended)));
    for _ in 0..2 {
        let refused = sessions[0].run("x").expect_err("its addresses are gone");
        assert_eq!(refused.kind(), ErrorKind::SessionEnded, "{refused}");
        assert!(refused.to_string().contains("interpreter"), "{refused}");
        assert!(!sessions[0].is_paused());
    }
    sessions[0].restart().expect("the session restarts");
    assert_eq!(value(&mut sessions[0], "1"), "1");
}

fn paused_session_is_confined_as_before(world: &World) {
    let mut session = open(world, pausing());
    let before = value(&mut session, super::snapshots::WALLS);
    await_pause(&session);
    assert_eq!(value(&mut session, super::snapshots::WALLS), before);
}

fn forged_address_loses_only_its_session(world: &World) {
    let sandbox = Arc::new(world.build(pausing()));
    let mut hostile = session(&sandbox);
    ok(&mut hostile, &FORGES.replace("PLACE", "id(own)"));
    await_pause(&hostile);
    for _ in 0..2 {
        let refused = hostile.run("1").expect_err("there is no such place");
        let sentence = "could not begin with the snapshot: ";
        assert!(refused.to_string().starts_with(sentence), "{refused}");
        let program = hostile.programs().start(Program::new(["true"]));
        let refused = program.expect_err("there is no worker for it");
        assert!(refused.to_string().contains("after a pause"), "{refused}");
        let watch = hostile.watcher().watch(".", Depth::Directory);
        let refused = watch.expect_err("there is no worker for it");
        assert!(refused.to_string().contains("after a pause"), "{refused}");
    }
    await_pause_of_another(&sandbox);
    hostile.restart().expect("the session restarts");
    assert_eq!(value(&mut hostile, "1"), "1");
}

fn pause_returns_if_the_guest_dies(world: &World) {
    let sandbox = Arc::new(world.build(standard()));
    // The guest reports success and dies at once, so that the supervisor may read both events together.
    let ends = FORGES.replace("PLACE", "0").replace(
        "return ''",
        "said = json.dumps({'kind': 'result', 'id': int(number), 'status': 'ok'}).encode(); \
         os.write(1023, len(said).to_bytes(4, 'little') + bytes(4) + said); os.kill(os.getpid(), 9)",
    );
    let (answered, answers) = channel();
    for _ in 0..20 {
        let mut hostile = session(&sandbox);
        ok(&mut hostile, &ends);
        let answered = answered.clone();
        // In a separate thread, because a hang would otherwise block the test itself.
        thread::spawn(move || answered.send(hostile.pause().is_ok()));
        let answer = answers.recv_timeout(Duration::from_secs(60));
        answer.expect("the pause is answered");
    }
}
