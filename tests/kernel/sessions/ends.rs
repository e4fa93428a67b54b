//! Tests of how a cell can end its session, and what is reported then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sandfork::session::{Depth, Parents, Program, SessionState};
use sandfork::{ErrorKind, Sandbox, Status};

use super::{assert_ended, open, run, session, value};
use crate::apart;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        a_dead_worker_ends_the_cell_and_the_session,
        a_forged_frame_hurts_only_its_session,
        sessions_do_not_see_each_other,
        dropped_session_leaves_nothing,
        worker_death_between_cells_is_reported,
        requests_during_a_restart_can_be_retried,
    ]
}

fn a_dead_worker_ends_the_cell_and_the_session(world: &World) {
    let endings = [
        ("import os; os._exit(7)", Status::Exit),
        ("import ctypes; ctypes.string_at(0)", Status::Signal),
        ("import os; os.kill(os.getpid(), 9)", Status::Signal),
        (
            "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
            Status::MemoryLimit,
        ),
    ];
    let small = standard().set("limits.memory=192MiB");
    let sandbox = Arc::new(world.build(small.patient()));
    for (code, status) in endings {
        let mut session = session(&sandbox);
        run(&mut session, "lost = 1");
        let report = run(&mut session, code);
        if status == Status::MemoryLimit && report.session() == SessionState::Live {
            // A recoverable MemoryError: the interpreter released the memory.
            assert_eq!(report.outcome().status(), status);
            continue;
        }
        assert_ended(&report, status, SessionState::Ended);
        let error = session.run("lost").expect_err("the session has ended");
        assert_eq!(error.kind(), ErrorKind::SessionEnded);
        for word in [status.as_str(), "variables", "restart"] {
            assert!(error.to_string().contains(word), "{error}");
        }
        session.restart().expect("the session restarts");
        let report = run(&mut session, "lost");
        assert_ended(&report, Status::Exception, SessionState::Live);
    }
}

fn a_forged_frame_hurts_only_its_session(world: &World) {
    let sandbox = Arc::new(world.build(standard()));
    let mut bystander = session(&sandbox);
    run(&mut bystander, "kept = 6");
    let frame = |header: &str| {
        format!(
            "import os\nheader = b'''{header}'''\n\
             os.write(1023, len(header).to_bytes(4, 'little') + bytes(4) + header)\n\
             import time; time.sleep(5)"
        )
    };
    let forged = [
        frame(r#"{"kind":"ready","version":2}"#),
        frame(r#"{"kind":"result","id":99,"status":"ok"}"#),
        frame(
            r#"{"kind":"result","id":2,"status":"ok","blob":{"lengths":[100000],"passed":true}}"#,
        ),
        frame("junk"),
        "import os\nos.write(1023, b'\\xff' * 4096)\nimport time; time.sleep(5)".to_owned(),
        "import os, time\nos.close(1023)\ntime.sleep(5)".to_owned(),
    ];
    for code in forged {
        let mut victim = session(&sandbox);
        run(&mut victim, "1");
        let report = run(&mut victim, code.as_str());
        assert_ended(&report, Status::ProtocolViolation, SessionState::Ended);
        assert_eq!(value(&mut bystander, "kept"), "6");
    }
    let mut liar = session(&sandbox);
    run(&mut liar, "1");
    let lie = frame(r#"{"kind":"result","id":2,"status":"ok","value":"a lie"}"#);
    let report = run(&mut liar, lie.as_str());
    assert_ended(&report, Status::Ok, SessionState::Live);
    assert_eq!(report.outcome().value(), Some(&"a lie".into()));
    assert_eq!(value(&mut bystander, "kept"), "6");
}

fn sessions_do_not_see_each_other(world: &World) {
    let sandbox = Arc::new(world.build(standard()));
    let (mut one, mut other) = (session(&sandbox), session(&sandbox));
    let mark = "import os\nseen = os.listdir('/work') + os.listdir('/tmp') + os.listdir('/dev/shm')\n\
                open('/work/a', 'w'), open('/tmp/b', 'w'), open('/dev/shm/c', 'w')\nx = 1";
    run(&mut one, mark);
    run(&mut other, mark);
    for session in [&mut one, &mut other] {
        assert_eq!(value(session, "seen"), "[]");
        assert_eq!(value(session, "x"), "1");
    }
}

fn dropped_session_leaves_nothing(_: &World) {
    apart::finishes("dropped-sessions");
}

/// Runs in a separate process in which nothing else creates children and descriptors.
pub(super) fn dropped_sessions() {
    // Without ready workers, which would be counted too.
    let sandbox = Sandbox::builder().policy(standard().policy()).ready(0);
    let sandbox = Arc::new(sandbox.build().expect("the sandbox is built"));
    let children = || {
        let own = std::process::id();
        let text = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        text.expect("the file is readable")
            .split_whitespace()
            .count()
    };
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let use_one = || {
        let mut session = session(&sandbox);
        let started = run(
            &mut session,
            "import subprocess\nsubprocess.Popen(['sleep', '100'])",
        );
        assert_ended(&started, Status::Ok, SessionState::Live);
    };
    // The first session opens what the sandbox keeps.
    use_one();
    let before = (children(), descriptors());
    (0..20).for_each(|_| use_one());
    assert_eq!((children(), descriptors()), before);
}

fn worker_death_between_cells_is_reported(world: &World) {
    let mut session = open(world, standard());
    let code = "import threading, os, time\n\
                def dies():\n    while not os.path.exists('now'): time.sleep(0.01)\n    os._exit(9)\n\
                threading.Thread(target=dies, daemon=True).start()";
    run(&mut session, code);
    let watch = session.watcher().watch(".", Depth::Directory);
    let watch = watch.expect("the watch starts");
    session
        .make_dir("now", Parents::Required)
        .expect("the directory is created");
    // The watch ends with the worker.
    while watch.next(None).is_ok() {}
    let error = session.run("1").expect_err("the session has ended");
    assert_eq!(error.kind(), ErrorKind::SessionEnded);
    assert!(error.to_string().contains("exited with 9"), "{error}");
}

fn requests_during_a_restart_can_be_retried(world: &World) {
    let mut session = open(world, standard());
    let (programs, watcher) = (session.programs(), session.watcher());
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let asks = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                match programs.start(Program::new(["true"])) {
                    Ok(program) => drop(program.wait()),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                }
            }
        });
        let begins_watches = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if let Err(error) = watcher.watch(".", Depth::Directory) {
                    // A watch that had begun has ended.
                    let is_over = error.to_string().contains("the watch has ended");
                    assert!(error.kind() == ErrorKind::Busy || is_over, "{error}");
                }
            }
        });
        for _ in 0..10 {
            session.restart().expect("the session restarts");
        }
        is_done.store(true, Ordering::Relaxed);
        for thread in [asks, begins_watches] {
            thread.join().expect("a refused request can be repeated");
        }
    });
    drop(session);
    let ended = programs.start(Program::new(["true"]));
    let ended = ended.expect_err("the session is closed");
    assert_eq!(ended.kind(), ErrorKind::SessionEnded, "{ended}");
}
