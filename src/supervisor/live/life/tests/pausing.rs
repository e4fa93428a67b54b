//! Sessions that are paused, as far as their worker takes part in it.

use std::time::Duration;

use super::OK;
use super::scene::{SESSION, code, in_scene, reason};
use crate::protocol::caller::{ClientRequest, SessionState};
use crate::supervisor::live::pausing::Pause;
use crate::supervisor::live::{Purpose, SessionTerms};
use crate::supervisor::snapshot::SnapshotRefusal;

/// What the worker says when it is asked to stand for a pause.
const STANDS: &str =
    r#"{"kind":"standing","id":18446744073709551615,"place":4096,"break":0,"shareable":[]}"#;

#[test]
fn a_session_that_cannot_be_paused_is_not_tried_again_until_it_is_used() {
    in_scene(SESSION, |scene| {
        let before = scene.life.io.sent;
        scene.passes(Duration::from_secs(29));
        assert!(!scene.life.is_pausing());
        scene.passes(Duration::from_secs(2));
        assert!(scene.life.is_pausing());
        // The fake worker cannot be copied.
        scene.says(STANDS);
        scene.says(r#"{"kind":"result","id":18446744073709551615,"status":"ok"}"#);
        let paused = scene.life.take_paused(scene.now, &mut scene.caller);
        assert!(!scene.life.is_pausing() && paused.is_none());
        // It was asked to stand, and to go on.
        assert_eq!(scene.life.io.sent, before + 2);
        scene.passes(Duration::from_secs(20));
        assert_eq!(scene.life.io.sent, before + 2);
        scene.cell(1);
        scene.says(OK);
        scene.passes(Duration::from_secs(31));
        assert!(scene.life.is_pausing());
        assert_eq!(scene.caller.outcomes(), [("ok", SessionState::Live)]);
        assert_eq!(scene.caller.refusals, []);
    });
    in_scene(SESSION, |scene| {
        scene.life.io.refusal = Some(SnapshotRefusal::Kernel);
        scene.passes(Duration::from_secs(31));
        assert!(!scene.life.is_pausing());
        // The attempt begins no new wait for the next cell.
        scene.passes(Duration::from_secs(29));
        assert!(reason(scene.ends()).contains("session.idle"));
    });
}

#[test]
fn processor_time_before_a_pause_is_told_all_the_same() {
    in_scene(SESSION, |scene| {
        scene.life.io.cpu_us = Some(5000);
        scene.passes(Duration::from_secs(31));
        assert!(scene.life.is_pausing());
        // The fake worker cannot be copied.
        scene.says(STANDS);
        scene.says(r#"{"kind":"result","id":18446744073709551615,"status":"ok"}"#);
        scene.cell(1);
        assert_eq!(scene.caller.between_cells, Duration::from_millis(5));
    });
}

#[test]
fn a_session_whose_guest_is_at_work_is_looked_at_again() {
    let terms = SessionTerms {
        pause_after: Some(Duration::from_secs(5)),
        ..SessionTerms::default()
    };
    in_scene(Purpose::Session(terms), |scene| {
        scene.life.io.is_at_work = true;
        scene.passes(Duration::from_secs(6));
        scene.life.io.is_at_work = false;
        scene.passes(Duration::from_secs(4));
        assert!(!scene.life.is_pausing());
        scene.passes(Duration::from_secs(2));
        assert!(scene.life.is_pausing());
    });
}

#[test]
fn a_caller_that_asks_for_a_pause_hears_why_there_is_none() {
    in_scene(SESSION, |scene| {
        scene.life.io.refusal = Some(SnapshotRefusal::Level);
        scene.asks(ClientRequest::Pause { id: 1 });
        scene.life.io.refusal = None;
        scene.asks(ClientRequest::Pause { id: 2 });
        scene.cell(3);
        // The fake worker cannot be copied.
        scene.says(&STANDS.replace("18446744073709551615", "2"));
        scene.says(&OK.replace('1', "2"));
        let asked: Vec<_> = scene.caller.refusals.iter().map(|(id, _)| *id).collect();
        assert_eq!(asked, [Some(1), Some(3), Some(2)]);
        let (_, why) = &scene.caller.refusals[2];
        assert!(why.contains("changed while it was copied"), "{why}");
        assert!(!scene.life.is_paused());
    });
    // Its worker ends meanwhile.
    in_scene(SESSION, |scene| {
        scene.asks(ClientRequest::Pause { id: 1 });
        let now = scene.now;
        scene.life.on_exit(code(3), now);
        _ = scene.ends();
        let ended = [("exit", SessionState::Ended)];
        assert_eq!(scene.caller.outcomes(), ended);
    });
}

#[test]
fn a_pause_that_is_overtaken_by_a_use_is_refused() {
    in_scene(SESSION, |scene| {
        // As after a pause that the caller asked for, and a file that it read at once.
        scene.life.pause = Pause::Overtaken(7);
        scene.life.on_programs(scene.now);
        assert!(scene.life.is_paused());
        let paused = scene.life.take_paused(scene.now, &mut scene.caller);
        assert!(paused.is_none() && !scene.life.is_paused());
        let (id, why) = &scene.caller.refusals[0];
        assert_eq!(*id, Some(7));
        assert!(why.contains("changed while it was copied"), "{why}");
    });
}

#[test]
fn what_a_guest_says_while_it_is_paused_reaches_no_caller() {
    in_scene(SESSION, |scene| {
        scene.passes(Duration::from_secs(31));
        scene.says(r#"{"kind":"call","id":18446744073709551615,"call":1,"tool":"t","args":[],"kwargs":{}}"#);
        scene.says(r#"{"kind":"display","id":18446744073709551615,"data":{},"main":false}"#);
        assert_eq!(scene.caller.events.len(), 0);
        assert_eq!(scene.life.io.kills, 0);
        let now = scene.now;
        scene.life.on_exit(code(3), now);
        assert!(reason(scene.ends()).contains("exited with 3 between two cells"));
        assert_eq!(scene.caller.events.len(), 0);
        assert_eq!(scene.caller.refusals, []);
    });
}
