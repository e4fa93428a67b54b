//! Pauses of sessions, up to the copy of the worker.

use std::time::Duration;

use super::OK;
use super::scene::{SESSION, code, in_scene, reason};
use crate::protocol::caller::{ClientRequest, SessionState};
use crate::supervisor::session_loop::pausing::Pause;
use crate::supervisor::session_loop::{Purpose, SessionTerms};
use crate::supervisor::snapshot::SnapshotRefusal;

/// The worker's report that it has stopped at a copy point for a pause.
const COPY_POINT: &str =
    r#"{"kind":"standing","id":18446744073709551615,"place":4096,"break":0,"shareable":[]}"#;

#[test]
fn failed_pause_is_not_retried_until_the_next_use() {
    in_scene(SESSION, |scene| {
        let before = scene.life.io.sent;
        scene.advance(Duration::from_secs(29));
        assert!(!scene.life.is_pausing());
        scene.advance(Duration::from_secs(2));
        assert!(scene.life.is_pausing());
        // The fake worker cannot be copied.
        scene.worker_sends(COPY_POINT);
        scene.worker_sends(r#"{"kind":"result","id":18446744073709551615,"status":"ok"}"#);
        let paused = scene.life.take_paused(scene.now, &mut scene.caller);
        assert!(!scene.life.is_pausing() && paused.is_none());
        // The requests to stop at a copy point and to resume.
        assert_eq!(scene.life.io.sent, before + 2);
        scene.advance(Duration::from_secs(20));
        assert_eq!(scene.life.io.sent, before + 2);
        scene.cell(1);
        scene.worker_sends(OK);
        scene.advance(Duration::from_secs(31));
        assert!(scene.life.is_pausing());
        assert_eq!(scene.caller.outcomes(), [("ok", SessionState::Live)]);
        assert_eq!(scene.caller.refusals, []);
    });
    in_scene(SESSION, |scene| {
        scene.life.io.refusal = Some(SnapshotRefusal::Kernel);
        scene.advance(Duration::from_secs(31));
        assert!(!scene.life.is_pausing());
        // The attempt does not restart the idle time.
        scene.advance(Duration::from_secs(29));
        assert!(reason(scene.end()).contains("session.idle"));
    });
}

#[test]
fn cpu_time_before_a_failed_pause_is_reported() {
    in_scene(SESSION, |scene| {
        scene.life.io.cpu_us = Some(5000);
        scene.advance(Duration::from_secs(31));
        assert!(scene.life.is_pausing());
        // The fake worker cannot be copied.
        scene.worker_sends(COPY_POINT);
        scene.worker_sends(r#"{"kind":"result","id":18446744073709551615,"status":"ok"}"#);
        scene.cell(1);
        assert_eq!(scene.caller.between_cells, Duration::from_millis(5));
    });
}

#[test]
fn busy_guest_postpones_the_pause() {
    let terms = SessionTerms {
        pause_after: Some(Duration::from_secs(5)),
        ..SessionTerms::default()
    };
    in_scene(Purpose::Session(terms), |scene| {
        scene.life.io.is_busy = true;
        scene.advance(Duration::from_secs(6));
        scene.life.io.is_busy = false;
        scene.advance(Duration::from_secs(4));
        assert!(!scene.life.is_pausing());
        scene.advance(Duration::from_secs(2));
        assert!(scene.life.is_pausing());
    });
}

#[test]
fn requested_pause_is_refused_with_the_reason() {
    in_scene(SESSION, |scene| {
        scene.life.io.refusal = Some(SnapshotRefusal::Level);
        scene.caller_sends(ClientRequest::Pause { id: 1 });
        scene.life.io.refusal = None;
        scene.caller_sends(ClientRequest::Pause { id: 2 });
        scene.cell(3);
        // The fake worker cannot be copied.
        scene.worker_sends(&COPY_POINT.replace("18446744073709551615", "2"));
        scene.worker_sends(&OK.replace('1', "2"));
        let refused: Vec<_> = scene.caller.refusals.iter().map(|(id, _)| *id).collect();
        assert_eq!(refused, [Some(1), Some(3), Some(2)]);
        let (_, why) = &scene.caller.refusals[2];
        assert!(why.contains("changed while it was copied"), "{why}");
        assert!(!scene.life.is_paused());
    });
    // The worker ends meanwhile.
    in_scene(SESSION, |scene| {
        scene.caller_sends(ClientRequest::Pause { id: 1 });
        let now = scene.now;
        scene.life.on_exit(code(3), now);
        _ = scene.end();
        let ended = [("exit", SessionState::Ended)];
        assert_eq!(scene.caller.outcomes(), ended);
    });
}

#[test]
fn use_during_a_requested_pause_refuses_it() {
    in_scene(SESSION, |scene| {
        // The state after a pause that the caller requested, followed by an immediate file request.
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
fn messages_during_a_pause_are_not_forwarded() {
    in_scene(SESSION, |scene| {
        scene.advance(Duration::from_secs(31));
        scene.worker_sends(r#"{"kind":"call","id":18446744073709551615,"call":1,"tool":"t","args":[],"kwargs":{}}"#);
        scene
            .worker_sends(r#"{"kind":"display","id":18446744073709551615,"data":{},"main":false}"#);
        assert_eq!(scene.caller.events.len(), 0);
        assert_eq!(scene.life.io.kills, 0);
        let now = scene.now;
        scene.life.on_exit(code(3), now);
        assert!(reason(scene.end()).contains("exited with 3 between two cells"));
        assert_eq!(scene.caller.events.len(), 0);
        assert_eq!(scene.caller.refusals, []);
    });
}
