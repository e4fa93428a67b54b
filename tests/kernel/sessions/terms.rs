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
    tests![those_that_wait_too_long_or_are_too_old_are_ended]
}

// In parallel, since they mostly sleep.
fn those_that_wait_too_long_or_are_too_old_are_ended(world: &World) {
    thread::scope(|scope| {
        for one in [
            one_that_waits_too_long_is_ended,
            one_that_is_too_old_is_ended,
            one_that_is_too_old_is_ended_in_a_cell,
            one_without_an_end_waits,
        ] {
            scope.spawn(move || one(world));
        }
    });
}

fn one_that_waits_too_long_is_ended(world: &World) {
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
    let refused = session.run("1").expect_err("it has ended");
    assert_eq!(refused.kind(), ErrorKind::SessionEnded);
    assert!(refused.to_string().contains("`session.idle`"), "{refused}");
    session.restart().expect("there is another worker");
    assert_eq!(value(&mut session, "1"), "1");
}

fn one_that_is_too_old_is_ended(world: &World) {
    let mut session = open(world, standard().set("session.age=3s"));
    assert_eq!(value(&mut session, "1"), "1");
    sleep(Duration::from_secs(4));
    let refused = session.run("1").expect_err("it has ended");
    assert_eq!(refused.kind(), ErrorKind::SessionEnded);
    assert!(refused.to_string().contains("`session.age`"), "{refused}");
}

fn one_that_is_too_old_is_ended_in_a_cell(world: &World) {
    let mut session = open(world, standard().set("session.age=3s"));
    let report = run(&mut session, "import time; time.sleep(20)");
    assert_ended(&report, Status::Interrupted, SessionState::Ended);
    let refused = session.run("1").expect_err("it has ended");
    assert!(refused.to_string().contains("`session.age`"), "{refused}");
}

fn one_without_an_end_waits(world: &World) {
    let endless = standard()
        .set("session.idle=never")
        .set("session.age=never");
    let mut session = open(world, endless);
    sleep(Duration::from_millis(300));
    assert_eq!(value(&mut session, "1"), "1");
}
