//! Tests that a host with default actions for SIGPIPE and SIGXFSZ, such as a C program, survives what its guests cause.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use sandfork::session::{ProcessEvent, Program};
use sandfork::{GuestPath, Request};

use crate::apart::{self, Part};
use crate::check::fine;
use crate::leftovers::traces::wait_until;
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::{World, run};

pub const PARTS: [Part; 2] = [
    ("broken-pipes", broken_pipes),
    ("files-over-the-limit", files_over_the_limit),
];

pub fn tests() -> Vec<Test> {
    let mut all = tests![closed_guest_stdin_does_not_kill_the_host];
    let images = tests![file_size_limit_does_not_kill_the_host];
    all.extend(needing(Need::Snapshots, images));
    all
}

fn closed_guest_stdin_does_not_kill_the_host(_: &World) {
    apart::finishes("broken-pipes");
}

fn file_size_limit_does_not_kill_the_host(_: &World) {
    apart::finishes("files-over-the-limit");
}

#[allow(unsafe_code, reason = "Rust's own start ignores SIGPIPE")]
fn has_default(number: Signal) {
    // SAFETY: the default action runs no code of this process.
    unsafe { signal(number, SigHandler::SigDfl) }.expect("it can have one");
}

fn broken_pipes() {
    has_default(Signal::SIGPIPE);
    let world = World::probe().expect("the host can be probed");
    let sandbox = Arc::new(world.build(standard().set("stdio.stdin=pass")));
    let unread = Request::python("pass").stdin_bytes(vec![b'x'; 1 << 20]);
    fine(&run(&sandbox, unread));
    let session = sandbox.session().expect("the session opens");
    let closes = Program::new(["sh", "-c", "exec 0<&-; echo closed; sleep 60"]).stdin();
    let program = session
        .programs()
        .start(closes)
        .expect("the process starts");
    let event = program.next_event(None);
    assert_eq!(event, Some(ProcessEvent::Stdout(b"closed\n".to_vec())));
    // The process that started the program may hold the pipe open for a moment longer.
    assert!(wait_until(|| program.write_stdin(b"hello").is_err()));
}

fn files_over_the_limit() {
    const MAX: u64 = 32 << 20;
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).expect("there is a limit");
    setrlimit(Resource::RLIMIT_FSIZE, MAX, hard).expect("lowering a limit is permitted");
    let world = World::probe().expect("the host can be probed");
    let sandbox = Arc::new(world.build(standard().set("session.pause_after=50ms")));
    let mut session = sandbox.session().expect("the session opens");
    let large = "import os; x = os.urandom(40 << 20); len(x)";
    fine(session.run(large).expect("the session is alive").outcome());
    let refused = session.snapshot().expect_err("it is too large");
    assert!(refused.to_string().contains("File too large"), "{refused}");
    std::thread::sleep(Duration::from_millis(300));
    assert!(!session.is_paused());
    fine(
        session
            .run("len(x)")
            .expect("the session is alive")
            .outcome(),
    );
    let path = GuestPath::of_file("large").expect("a path");
    let file = Request::python("pass").file(path, vec![1; 40 << 20]);
    let refused = sandbox.run(file).expect_err("it is too large");
    assert!(refused.to_string().contains("File too large"), "{refused}");
    fine(&run(&sandbox, "pass"));
}
