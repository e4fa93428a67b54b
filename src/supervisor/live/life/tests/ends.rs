//! Workers that end: the outcome of their last cell, and the reason for the end of the session.

use super::OK;
use super::scene::{SESSION, code, in_scene, ms, reason};
use super::*;
use crate::protocol::caller::{ClientEvent, FileOperation, FileRequest};
use crate::protocol::message::{FailedStep, Tools, Variables};
use crate::supervisor::live::cell::StateRequest;
use crate::supervisor::live::pausing::Pause;
use sandfork_jail::restore::Step;

/// The end of a process that was killed.
fn killed() -> Exit {
    Exit {
        status: ExitStatus::Signal(libc::SIGKILL),
        ..code(0)
    }
}

#[test]
fn a_result_that_is_read_after_a_limit_ended_its_worker_is_of_an_ended_session() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.life.io.over = Some(Stop::watchdog(LimitName::Memory));
        scene.passes(ms(1));
        scene.says(OK);
        assert_eq!(scene.caller.outcomes(), []);
        assert!(reason(scene.ends()).contains("memory-limit"));
        let ended = [("memory-limit", SessionState::Ended)];
        assert_eq!(scene.caller.outcomes(), ended);
    });
    // It did not end within the time that an interrupt leaves it.
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.asks(ClientRequest::Interrupt);
        scene.passes(Duration::from_secs(2));
        scene.says(OK);
        let now = scene.now;
        scene.life.on_exit(killed(), now);
        assert!(reason(scene.ends()).contains("interrupted"));
        let ended = [("interrupted", SessionState::Ended)];
        assert_eq!(scene.caller.outcomes(), ended);
    });
}

#[test]
fn a_cell_that_the_age_of_its_session_interrupts_says_that_the_session_ends() {
    in_scene(SESSION, |scene| {
        scene.now += Duration::from_secs(595);
        scene.cell(1);
        scene.passes(Duration::from_secs(5));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (1, 0));
        scene.says(
            r#"{"kind":"result","id":1,"status":"exception","error":{"name":"KeyboardInterrupt","message":""}}"#,
        );
        let ended = [("interrupted", SessionState::Ended)];
        assert_eq!(scene.caller.outcomes(), ended);
        scene.passes(ms(0));
        assert!(reason(scene.ends()).contains("session.age"));
    });
}

#[test]
fn an_end_between_two_cells_has_its_reason() {
    in_scene(SESSION, |scene| {
        let now = scene.now;
        scene.life.on_exit(code(3), now);
        assert!(reason(scene.ends()).contains("exited with 3 between two cells"));
    });
    in_scene(SESSION, |scene| {
        scene.passes(Duration::from_secs(60));
        assert!(reason(scene.ends()).contains("session.idle"));
    });
    in_scene(SESSION, |scene| {
        assert!(reason(scene.ends()).contains("zygote"));
    });
    in_scene(SESSION, |scene| {
        let now = scene.now;
        scene.life.on_link_end(now);
        scene.passes(ms(250));
        scene.cell(1);
        let (_, why) = &scene.caller.refusals[0];
        assert!(why.contains("closed its link"), "{why}");
    });
    in_scene(SESSION, |scene| {
        let now = scene.now;
        scene.life.on_exit(killed(), now);
        scene.life.io.oom_kills = 1;
        assert!(reason(scene.ends()).contains("limits.memory"));
    });
}

#[test]
fn a_cell_whose_worker_is_lost_is_refused_and_not_guessed_at() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        _ = scene.ends();
        assert_eq!(scene.caller.outcomes(), []);
        assert_eq!(scene.caller.refusals[0].0, Some(1));
    });
}

#[test]
fn a_request_to_an_ending_worker_is_refused_with_the_reason() {
    in_scene(SESSION, |scene| {
        scene.passes(Duration::from_secs(60));
        scene.cell(1);
        let (id, why) = &scene.caller.refusals[0];
        assert_eq!(*id, Some(1));
        assert!(why.contains("session.idle"), "{why}");
        assert_eq!(scene.life.cells, 0);
    });
}

/// How often the request with this number was answered.
fn answers(scene: &Scene, id: u64) -> usize {
    let caller = &scene.caller;
    let output = |event: &&ClientEvent| !matches!(event, ClientEvent::Output { .. });
    let answered = caller.events.iter().filter(output).map(ClientEvent::id);
    let refused = caller.refusals.iter().map(|(id, _)| *id);
    answered.chain(refused).filter(|of| *of == Some(id)).count()
}

/// One of each request that is answered by its number, but for those by which the loop ends.
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
fn each_request_is_answered_once_if_its_worker_ends_in_the_same_turn() {
    let stands = r#"{"kind":"standing","id":1,"place":4096,"break":0,"shareable":[]}"#;
    let says: [&[&str]; 4] = [&[], &[OK], &[stands], &[stands, OK]];
    let exits = [None, Some(code(3)), Some(killed())];
    for said in says {
        for exit in exits {
            for request in requests() {
                in_scene(SESSION, |scene| {
                    let case = format!("{request:?} {said:?} {exit:?}");
                    assert!(scene.asks(request).is_none());
                    for line in said {
                        scene.says(line);
                    }
                    let now = scene.now;
                    if let Some(exit) = exit {
                        scene.life.on_exit(exit, now);
                    }
                    _ = scene.ends();
                    assert_eq!(answers(scene, 1), 1, "{case}");
                });
            }
        }
    }
}

#[test]
fn a_pause_whose_worker_ends_once_it_is_copied_is_refused() {
    in_scene(SESSION, |scene| {
        scene.life.pause = Pause::Overtaken(7);
        let now = scene.now;
        scene.life.on_exit(killed(), now);
        let why = reason(scene.ends());
        let (id, refusal) = &scene.caller.refusals[0];
        assert_eq!((*id, answers(scene, 7)), (Some(7), 1));
        assert!(refusal.contains(&why), "{refusal}");
        assert!(!scene.life.is_paused());
    });
    // What the caller has sent meanwhile asks for another worker.
    for request in [
        ClientRequest::Restart { id: 8 },
        ClientRequest::Rollback { id: 8, snapshot: 1 },
        ClientRequest::Close,
    ] {
        in_scene(SESSION, |scene| {
            scene.life.pause = Pause::Overtaken(7);
            assert!(scene.asks(request).is_some());
            scene.life.on_leaving(&mut scene.caller);
            assert_eq!((answers(scene, 7), answers(scene, 8)), (1, 0));
            assert!(!scene.life.is_paused());
        });
    }
}

#[test]
fn a_step_that_a_worker_does_not_have_cannot_fail() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        if let Some(cell) = &mut scene.life.cell {
            cell.state = StateRequest::Restoring(vec![Step::program_break(4096)]);
        }
        for step in [1, usize::MAX] {
            let failed = FailedStep { step, errno: 12 };
            let refused = scene.life.on_failed_step(&failed);
            refused.expect_err("it has one step");
        }
    });
}
