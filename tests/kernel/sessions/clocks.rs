//! Tests of the limits of a session: for each cell, and for the session as a whole.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use sandfork::session::{Cell, Parents, SessionState, ToolArguments};
use sandfork::{Cancel, ErrorKind, LimitName, Status, Value};

use super::{assert_ended, open, run, value};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        handled_timeout_keeps_the_session,
        unhandled_timeout_ends_the_session,
        wait_started_after_an_interrupt_is_ended,
        cell_has_its_own_wall_limit,
        first_cell_can_be_interrupted_early,
        cpu_time_is_counted_per_cell,
        an_output_flood_is_interrupted,
        a_caller_interrupts_a_cell,
        an_interrupt_between_cells_does_nothing,
        a_handle_cancels_its_cells_and_no_others,
        cpu_limit_applies_between_cells,
        frames_between_cells_count_as_guest_time,
        calls_of_unknown_tools_count_as_guest_time,
    ]
}

fn handled_timeout_keeps_the_session(world: &World) {
    let mut session = open(world, standard());
    run(&mut session, "kept = 1\nimport time");
    for code in ["time.sleep(60)", "while True: pass"] {
        let report = run(&mut session, Cell::new(code).wall(Duration::from_secs(1)));
        assert_ended(&report, Status::Timeout, SessionState::Live);
        let error = report.outcome().error().expect("the outcome has an error");
        assert_eq!(error.name, "KeyboardInterrupt");
    }
    assert_eq!(value(&mut session, "kept"), "1");
}

fn unhandled_timeout_ends_the_session(world: &World) {
    let mut session = open(world, standard());
    run(&mut session, "import signal");
    let stubborn = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
    let started = Instant::now();
    let report = run(
        &mut session,
        Cell::new(stubborn).wall(Duration::from_secs(1)),
    );
    assert_ended(&report, Status::Timeout, SessionState::Ended);
    assert!(started.elapsed() < Duration::from_secs(25));
    let error = session.run("1").expect_err("the session has ended");
    assert_eq!(error.kind(), ErrorKind::SessionEnded);
    assert!(error.to_string().contains("timeout"), "{error}");
    session.restart().expect("the session restarts");
    assert_eq!(value(&mut session, "'fresh'"), "'fresh'");
}

fn wait_started_after_an_interrupt_is_ended(world: &World) {
    let mut session = open(world, standard().set("limits.wall=1s"));
    // The signal makes the first call return. Python handles it only after the second call.
    let waits = "import ctypes, time\n\
                 from functools import partial\n\
                 from operator import methodcaller\n\
                 calls = [partial(ctypes.CDLL(None).usleep, 60_000_000), partial(time.sleep, 60)]\n\
                 list(map(methodcaller('__call__'), calls))";
    let report = run(&mut session, waits);
    assert_ended(&report, Status::Timeout, SessionState::Live);
}

fn cell_has_its_own_wall_limit(world: &World) {
    let mut session = open(world, standard().set("limits.wall=30s"));
    let cell = Cell::new("import time; time.sleep(60)").wall(Duration::from_millis(200));
    let report = run(&mut session, cell);
    assert_ended(&report, Status::Timeout, SessionState::Live);
}

// The worker may not have begun to serve yet.
fn first_cell_can_be_interrupted_early(world: &World) {
    for tenths in 0..20 {
        let wall = Duration::from_micros(1 + 100 * tenths);
        let lives_on = || {
            let mut session = open(world, standard());
            let cell = Cell::new("import time; time.sleep(60)").wall(wall);
            let report = run(&mut session, cell);
            assert_eq!(report.outcome().status(), Status::Timeout);
            report.session() == SessionState::Live
        };
        // A busy machine may not begin to serve in the second that an interrupted cell has.
        assert!((0..5).any(|_| lives_on()), "{wall:?}");
    }
}

fn cpu_time_is_counted_per_cell(world: &World) {
    let mut session = open(world, standard().patient().set("limits.cpu=1s"));
    let part =
        "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass";
    for _ in 0..3 {
        assert_ended(&run(&mut session, part), Status::Ok, SessionState::Live);
    }
    let report = run(&mut session, "while True: pass");
    assert_ended(&report, Status::CpuLimit, SessionState::Live);
    assert_ended(&run(&mut session, part), Status::Ok, SessionState::Live);
}

fn an_output_flood_is_interrupted(world: &World) {
    let mut session = open(world, standard().set("limits.output=64KiB"));
    let report = run(&mut session, "kept = 3\nwhile True: print('x' * 1000)");
    assert_ended(&report, Status::OutputLimit, SessionState::Live);
    assert_eq!(
        report.outcome().limit().map(|hit| hit.name),
        Some(LimitName::Output)
    );
    assert!(report.outcome().stdout().len() <= 64 << 10);
    let report = run(&mut session, "print(kept)");
    assert_eq!(report.outcome().stdout(), "3\n");
}

fn a_caller_interrupts_a_cell(world: &World) {
    let mut session = open(world, standard());
    let interrupter = session.interrupter();
    let (sender, receiver) = mpsc::channel();
    let on = move |_: ToolArguments| {
        sender.send(()).expect("the test waits");
        Ok(Value::None.into())
    };
    session.tool("on", on).expect("the tool is defined");
    let interrupts = thread::spawn(move || {
        receiver.recv().expect("the cell starts");
        interrupter.interrupt();
    });
    let report = run(&mut session, "kept = 4\non()\nimport time\ntime.sleep(60)");
    assert_ended(&report, Status::Interrupted, SessionState::Live);
    interrupts.join().expect("the thread does not panic");
    assert_eq!(value(&mut session, "kept"), "4");
}

fn an_interrupt_between_cells_does_nothing(world: &World) {
    let mut session = open(world, standard());
    run(&mut session, "kept = 5");
    for _ in 0..50 {
        session.interrupter().interrupt();
        assert_eq!(value(&mut session, "kept"), "5");
    }
}

fn a_handle_cancels_its_cells_and_no_others(world: &World) {
    let mut session = open(world, standard());
    let cancel = Cancel::new().expect("a descriptor");
    let used = cancel.clone();
    let on = move |_: ToolArguments| {
        used.cancel();
        Ok(Value::None.into())
    };
    session.tool("on", on).expect("the tool is defined");
    let sleep = "import time\ntime.sleep(60)";
    let running = Cell::new(format!("kept = 6\non()\n{sleep}")).cancel(&cancel);
    // A handle that was cancelled before the cell cancels it as well.
    for cell in [running, Cell::new(sleep).cancel(&cancel)] {
        let report = run(&mut session, cell);
        assert_ended(&report, Status::Interrupted, SessionState::Live);
        assert_eq!(value(&mut session, "kept"), "6");
    }
}

fn cpu_limit_applies_between_cells(world: &World) {
    let mut session = open(world, standard().set("limits.cpu=1s"));
    let report = run(
        &mut session,
        "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()",
    );
    assert_ended(&report, Status::Ok, SessionState::Live);
    // The thread needs one second of CPU time, which takes longer on a busy machine.
    let mut pauses = [1, 2, 4, 8, 16, 32, 64]
        .map(Duration::from_secs)
        .into_iter();
    let error = pauses.find_map(|pause| {
        thread::sleep(pause);
        session.run("1").err()
    });
    let error = error.expect("the session has ended");
    assert_eq!(error.kind(), ErrorKind::SessionEnded);
    assert!(error.to_string().contains("limits.cpu"), "{error}");
}

// The guest sends a frame in a hundredth of the time that the supervisor needs to parse it.
fn frames_between_cells_count_as_guest_time(world: &World) {
    let mut session = open(world, standard().set("limits.cpu=1s"));
    // No cell may run once the test has made the directory: its result could come in the middle of a frame.
    let code = "import os, socket, struct, threading, time
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, 1023)
header = b'{\"kind\":\"display\",\"id\":1000,\"data\":{\"a\":[%s]}}' % b','.join([b'[1]'] * 30_000)
frame = struct.pack('<II', len(header), 0) + header
def send():
    while not os.path.exists('now'): time.sleep(0.01)
    while True: link.sendall(frame)
threading.Thread(target=send, daemon=True).start()";
    let report = run(&mut session, code);
    assert_ended(&report, Status::Ok, SessionState::Live);
    session
        .make_dir("now", Parents::Required)
        .expect("the directory is created");
    let until = Instant::now() + Duration::from_secs(120);
    let error = loop {
        match session.list(".") {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < until, "the session goes on"),
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(error.kind(), ErrorKind::SessionEnded);
    assert!(error.to_string().contains("limits.cpu"), "{error}");
}

// These calls count neither towards a budget of calls nor as a tool's time, and each costs the supervisor more than the
// guest.
fn calls_of_unknown_tools_count_as_guest_time(world: &World) {
    let mut session = open(world, standard().patient().set("limits.cpu=1s"));
    let code = "import socket, struct
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, 1023)
arguments = b','.join([b'[1]'] * 30_000)
for call in range(1 << 40):
    header = b'{\"kind\":\"call\",\"id\":1,\"call\":%d,\"tool\":\"none\",\"args\":[%s]}' % (1 << 40 | call, arguments)
    link.sendall(struct.pack('<II', len(header), 0) + header)
    link.recv(1 << 16)";
    let report = run(&mut session, code);
    let outcome = report.outcome();
    assert_eq!(outcome.status(), Status::CpuLimit);
    // The supervisor's time makes up the rest.
    let own = outcome.usage().cpu;
    assert!(own < Duration::from_secs(1), "{own:?}");
}
