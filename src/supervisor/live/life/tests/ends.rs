//! Workers that end: the outcome of their last cell, and the reason for the end of the session.

use super::OK;
use super::scene::{SESSION, code, in_scene, ms, reason};
use super::*;

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
