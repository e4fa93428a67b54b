//! The end of a worker: the outcome of its last cell, and the reason for the end of the session.

use super::OK;
use super::scene::{SESSION, code, in_scene, ms, reason};
use super::*;
use crate::protocol::caller::{ClientEvent, FileOperation, FileRequest};
use crate::protocol::message::{FailedStep, Tools, Variables};
use crate::supervisor::session_loop::cell::StateRequest;
use crate::supervisor::session_loop::pausing::Pause;
use sandfork_jail::restore::Step;

/// Returns the exit of a killed process.
fn killed() -> Exit {
    Exit {
        status: ExitStatus::Signal(libc::SIGKILL),
        ..code(0)
    }
}

#[test]
fn result_read_after_a_kill_reports_an_ended_session() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.life.io.exceeded = Some(Stop::watchdog(LimitName::Memory));
        scene.advance(ms(1));
        scene.worker_sends(OK);
        assert_eq!(scene.caller.outcomes(), []);
        assert!(reason(scene.end()).contains("memory-limit"));
        let ended = [("memory-limit", SessionState::Ended)];
        assert_eq!(scene.caller.outcomes(), ended);
    });
    // The cell did not end within the grace period after an interrupt.
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.caller_sends(ClientRequest::Interrupt);
        scene.advance(Duration::from_secs(2));
        scene.worker_sends(OK);
        let now = scene.now;
        scene.life.on_exit(killed(), now);
        assert!(reason(scene.end()).contains("interrupted"));
        let ended = [("interrupted", SessionState::Ended)];
        assert_eq!(scene.caller.outcomes(), ended);
    });
}

#[test]
fn cell_interrupted_by_session_age_ends_the_session() {
    in_scene(SESSION, |scene| {
        scene.now += Duration::from_secs(595);
        scene.cell(1);
        scene.advance(Duration::from_secs(5));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (1, 0));
        scene.worker_sends(
            r#"{"kind":"result","id":1,"status":"exception","error":{"name":"KeyboardInterrupt","message":""}}"#,
        );
        let ended = [("interrupted", SessionState::Ended)];
        assert_eq!(scene.caller.outcomes(), ended);
        scene.advance(ms(0));
        assert!(reason(scene.end()).contains("session.age"));
    });
}

#[test]
fn end_between_two_cells_has_a_reason() {
    in_scene(SESSION, |scene| {
        let now = scene.now;
        scene.life.on_exit(code(3), now);
        assert!(reason(scene.end()).contains("exited with 3 between two cells"));
    });
    in_scene(SESSION, |scene| {
        scene.advance(Duration::from_secs(60));
        assert!(reason(scene.end()).contains("session.idle"));
    });
    in_scene(SESSION, |scene| {
        assert!(reason(scene.end()).contains("zygote"));
    });
    in_scene(SESSION, |scene| {
        let now = scene.now;
        scene.life.on_link_end(now);
        scene.advance(ms(250));
        scene.cell(1);
        let (_, why) = &scene.caller.refusals[0];
        assert!(why.contains("closed its link"), "{why}");
    });
    in_scene(SESSION, |scene| {
        let now = scene.now;
        scene.life.on_exit(killed(), now);
        scene.life.io.oom_kills = 1;
        assert!(reason(scene.end()).contains("limits.memory"));
    });
}

#[test]
fn cell_of_a_lost_worker_is_refused() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        _ = scene.end();
        assert_eq!(scene.caller.outcomes(), []);
        assert_eq!(scene.caller.refusals[0].0, Some(1));
    });
}

#[test]
fn request_to_an_ending_worker_is_refused_with_the_reason() {
    in_scene(SESSION, |scene| {
        scene.advance(Duration::from_secs(60));
        scene.cell(1);
        let (id, why) = &scene.caller.refusals[0];
        assert_eq!(*id, Some(1));
        assert!(why.contains("session.idle"), "{why}");
        assert_eq!(scene.life.cells, 0);
    });
}

/// Returns the number of replies to a request.
fn answers(scene: &Scene, id: u64) -> usize {
    let caller = &scene.caller;
    let output = |event: &&ClientEvent| !matches!(event, ClientEvent::Output { .. });
    let answered = caller.events.iter().filter(output).map(ClientEvent::id);
    let refused = caller.refusals.iter().map(|(id, _)| *id);
    answered.chain(refused).filter(|of| *of == Some(id)).count()
}

/// Returns one request of each kind that gets a numbered reply, except those that end the loop.
fn requests() -> [ClientRequest; 5] {
    let (id, blob) = (1, None);
    let (pairs, tools) = (Vec::new(), Vec::new());
    [
        ClientRequest::Set(Variables { id, pairs, blob }),
        ClientRequest::Tools(Tools { id, tools }),
        ClientRequest::Snapshot { id },
        ClientRequest::Pause { id },
        ClientRequest::File(FileRequest {
            id,
            path: ".".into(),
            op: FileOperation::List,
        }),
    ]
}

#[test]
fn each_request_gets_one_reply_if_the_worker_ends_at_once() {
    let copy_point = r#"{"kind":"standing","id":1,"place":4096,"break":0,"shareable":[]}"#;
    let sequences: [&[&str]; 4] = [&[], &[OK], &[copy_point], &[copy_point, OK]];
    let exits = [None, Some(code(3)), Some(killed())];
    for messages in sequences {
        for exit in exits {
            for request in requests() {
                in_scene(SESSION, |scene| {
                    let case = format!("{request:?} {messages:?} {exit:?}");
                    assert!(scene.caller_sends(request).is_none());
                    for message in messages {
                        scene.worker_sends(message);
                    }
                    let now = scene.now;
                    if let Some(exit) = exit {
                        scene.life.on_exit(exit, now);
                    }
                    _ = scene.end();
                    assert_eq!(answers(scene, 1), 1, "{case}");
                });
            }
        }
    }
}

#[test]
fn pause_is_refused_if_the_copied_worker_ends() {
    in_scene(SESSION, |scene| {
        scene.life.pause = Pause::Overtaken(7);
        let now = scene.now;
        scene.life.on_exit(killed(), now);
        let why = reason(scene.end());
        let (id, refusal) = &scene.caller.refusals[0];
        assert_eq!((*id, answers(scene, 7)), (Some(7), 1));
        assert!(refusal.contains(&why), "{refusal}");
        assert!(!scene.life.is_paused());
    });
    // The caller has meanwhile sent a request that ends this loop.
    for request in [
        ClientRequest::Restart { id: 8 },
        ClientRequest::Rollback { id: 8, snapshot: 1 },
        ClientRequest::Close,
    ] {
        in_scene(SESSION, |scene| {
            scene.life.pause = Pause::Overtaken(7);
            assert!(scene.caller_sends(request).is_some());
            scene.life.on_leaving(&mut scene.caller);
            assert_eq!((answers(scene, 7), answers(scene, 8)), (1, 0));
            assert!(!scene.life.is_paused());
        });
    }
}

#[test]
fn failure_of_an_unknown_step_is_rejected() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        if let Some(cell) = &mut scene.life.cell {
            cell.state = StateRequest::Restoring(vec![Step::program_break(4096)]);
        }
        for step in [1, usize::MAX] {
            let failed = FailedStep { step, errno: 12 };
            let refused = scene.life.on_failed_step(&failed);
            refused.expect_err("the worker has only one step");
        }
    });
}
