//! Tests of the limits that end sessions that are not closed.

use std::thread::{self, sleep};
use std::time::Duration;

use sandfork::session::SessionState;
use sandfork::{ErrorKind, Status};

use super::{assert_ended, open, run, value};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![idle_and_old_sessions_are_ended]
}

// In parallel, since they mostly sleep.
fn idle_and_old_sessions_are_ended(world: &World) {
    thread::scope(|scope| {
        for one in [
            idle_session_is_ended,
            old_session_is_ended,
            old_session_is_ended_in_a_cell,
            unlimited_session_stays_open,
        ] {
            scope.spawn(move || one(world));
        }
    });
}

fn idle_session_is_ended(world: &World) {
    let mut session = open(world, standard().set("session.idle=2s"));
    // Each cell restarts the idle time.
    for _ in 0..4 {
        sleep(Duration::from_millis(600));
        assert_eq!(value(&mut session, "1"), "1");
    }
    // The time of a cell is not idle time.
    let report = run(&mut session, "import time; time.sleep(3)");
    assert_ended(&report, Status::Ok, SessionState::Live);
    sleep(Duration::from_secs(3));
    let refused = session.run("1").expect_err("the session has ended");
    assert_eq!(refused.kind(), ErrorKind::SessionEnded);
    assert!(refused.to_string().contains("`session.idle`"), "{refused}");
    session.restart().expect("the session restarts");
    assert_eq!(value(&mut session, "1"), "1");
}

fn old_session_is_ended(world: &World) {
    let mut session = open(world, standard().set("session.age=3s"));
    assert_eq!(value(&mut session, "1"), "1");
    sleep(Duration::from_secs(4));
    let refused = session.run("1").expect_err("the session has ended");
    assert_eq!(refused.kind(), ErrorKind::SessionEnded);
    assert!(refused.to_string().contains("`session.age`"), "{refused}");
}

fn old_session_is_ended_in_a_cell(world: &World) {
    let mut session = open(world, standard().set("session.age=3s"));
    let report = run(&mut session, "import time; time.sleep(20)");
    assert_ended(&report, Status::Interrupted, SessionState::Ended);
    let refused = session.run("1").expect_err("the session has ended");
    assert!(refused.to_string().contains("`session.age`"), "{refused}");
}

fn unlimited_session_stays_open(world: &World) {
    let endless = standard()
        .set("session.idle=never")
        .set("session.age=never");
    let mut session = open(world, endless);
    sleep(Duration::from_millis(300));
    assert_eq!(value(&mut session, "1"), "1");
}
