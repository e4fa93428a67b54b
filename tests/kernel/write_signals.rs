//! A host that has the default of SIGPIPE and SIGXFSZ, as a C program does, outlives what its guests cause.

use std::sync::Arc;

use nix::sys::signal::{SigHandler, Signal, signal};
use sandfork::Request;
use sandfork::session::{ProcessEvent, Program};

use crate::apart::{self, Part};
use crate::check::fine;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub const PARTS: [Part; 1] = [("broken-pipes", broken_pipes)];

pub fn tests() -> Vec<Test> {
    tests![a_guest_that_closes_its_standard_input]
}

fn a_guest_that_closes_its_standard_input(_: &World) {
    apart::finishes("broken-pipes");
}

#[allow(unsafe_code, reason = "Rust's own start ignores SIGPIPE")]
fn has_default(number: Signal) {
    // SAFETY: the default action runs no code of this process.
    unsafe { signal(number, SigHandler::SigDfl) }.expect("it can have one");
}

fn broken_pipes() {
    has_default(Signal::SIGPIPE);
    let world = World::look().expect("the machine can be looked at");
    let sandbox = Arc::new(world.build(standard().set("stdio.stdin=pass")));
    let unread = Request::python("pass").stdin_bytes(vec![b'x'; 1 << 20]);
    fine(&run(&sandbox, unread));
    let session = sandbox.session().expect("there is room");
    let closes = Program::new(["sh", "-c", "exec 0<&-; echo closed; sleep 60"]).stdin();
    let program = session.programs().start(closes).expect("it starts");
    let event = program.next_event(None);
    assert_eq!(event, Some(ProcessEvent::Stdout(b"closed\n".to_vec())));
    let refused = program.write_stdin(b"hello").expect_err("it is closed");
    assert!(refused.to_string().contains("standard input"), "{refused}");
}
