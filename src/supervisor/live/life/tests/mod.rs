#![allow(clippy::unwrap_used)]

mod ends;
mod passed;
mod pausing;
mod scene;

use self::scene::{SESSION, Scene, code, in_scene, ms, reason};
use super::*;
use crate::outcome::LimitName;
use crate::protocol::caller::{ClientRequest, SessionState};
use crate::supervisor::snapshot::SnapshotRefusal;

const OK: &str = r#"{"kind":"result","id":1,"status":"ok","value":null}"#;

#[test]
fn cell_after_cell_is_reported_live() {
    in_scene(SESSION, |scene| {
        for id in [1, 2] {
            scene.cell(id);
            scene.says(&OK.replace('1', &id.to_string()));
        }
        let live = ("ok", SessionState::Live);
        assert_eq!(scene.caller.outcomes(), [live, live]);
        // Nothing was measured, which is not the same as nothing used.
        assert_eq!(scene.caller.peaks(), [None, None]);
        // The greeting, and a message for each cell.
        assert_eq!(scene.life.io.sent, 3);
    });
}

#[test]
fn a_wall_time_of_the_caller_is_for_computing_too() {
    in_scene(SESSION, |scene| {
        let mut allowed = |id, wall| {
            scene.cell_for(id, wall);
            let allowed = scene.life.io.cpu;
            scene.says(&OK.replace('1', &id.to_string()));
            (allowed, scene.life.io.cpu)
        };
        let between = ms(10_000);
        assert_eq!(allowed(1, None), (ms(10_000), between));
        assert_eq!(allowed(2, Some(30.0)), (ms(60_000), between));
        assert_eq!(allowed(3, Some(40.0)), (ms(80_000), between));
        assert_eq!(allowed(4, Some(2.0)), (ms(10_000), between));
    });
}

#[test]
fn a_cell_beside_another_is_refused() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.cell(2);
        let (id, why) = &scene.caller.refusals[0];
        assert_eq!((*id, why.contains("is running")), (Some(2), true), "{why}");
    });
}

#[test]
fn a_limit_interrupts_a_cell_of_a_session_and_then_ends_it() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.passes(ms(29_999));
        assert_eq!(scene.life.io.interrupts, 0);
        scene.passes(ms(1));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (1, 0));
        for reminders in 0..3 {
            assert_eq!(scene.life.io.reminders, reminders);
            let due = Some(scene.now + ms(1 << reminders));
            let check = Some(scene.life.io.next_check());
            assert_eq!(scene.life.next_event(), due.min(check));
            scene.passes(ms(1 << reminders));
        }
        scene.passes(ms(993));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (1, 1));
        assert!(reason(scene.ends()).contains("timeout"));
        assert_eq!(scene.caller.outcomes(), [("timeout", SessionState::Ended)]);
    });
}

#[test]
fn a_session_survives_a_cell_that_ends_when_interrupted() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        assert!(scene.asks(ClientRequest::Interrupt).is_none());
        scene.says(
            r#"{"kind":"result","id":1,"status":"exception","error":{"name":"KeyboardInterrupt","message":""}}"#,
        );
        assert_eq!(
            scene.caller.outcomes(),
            [("interrupted", SessionState::Live)]
        );
        assert_eq!(scene.life.io.kills, 0);
    });
}

#[test]
fn a_limit_ends_a_run_at_once() {
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.life.io.over = Some(Stop::limit(LimitName::Cpu, Mechanism::Cgroup));
        scene.passes(ms(1));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (0, 1));
        // Until nothing is left of it, only its end is waited for.
        assert_eq!(scene.life.next_event(), Some(scene.life.io.ends_by()));
    });
}

#[test]
fn memory_cannot_wait_for_the_cell_to_end() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.life.io.over = Some(Stop::watchdog(LimitName::Memory));
        scene.passes(ms(1));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (0, 1));
    });
}

#[test]
fn too_much_output_is_a_limit() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.life.io.drained = Drained::OverCap;
        let now = scene.now;
        scene.life.on_output(Stream::Stdout, now, &mut scene.caller);
        assert_eq!(scene.life.io.interrupts, 1);
    });
}

#[test]
fn too_much_output_of_a_cell_that_has_ended_is_a_limit() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.life.io.drained = Drained::OverCap;
        scene.says(OK);
        let limited = ("output-limit", SessionState::Live);
        assert_eq!(scene.caller.outcomes(), [limited]);
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (0, 0));
    });
}

#[test]
fn what_a_worker_may_not_send_ends_it() {
    let wrong = [
        r#"{"kind":"ready","version":2}"#,
        r#"{"kind":"result","id":7,"status":"ok"}"#,
        r#"{"kind":"unknown"}"#,
        "[",
    ];
    for header in wrong {
        in_scene(SESSION, |scene| {
            scene.cell(1);
            scene.says(header);
            assert_eq!(scene.life.io.kills, 1, "{header}");
            assert!(!scene.life.data_open);
            _ = scene.ends();
            let broke = ("protocol-violation", SessionState::Ended);
            assert_eq!(scene.caller.outcomes(), [broke], "{header}");
        });
    }
}

#[test]
fn a_second_result_is_a_violation() {
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.says(OK);
        assert_eq!(scene.life.io.kills, 0);
        scene.says(OK);
        assert_eq!(scene.life.io.kills, 1);
    });
}

#[test]
fn a_run_calls_no_tools() {
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.says(r#"{"kind":"call","id":1,"call":1,"tool":"t","args":[],"kwargs":{}}"#);
        assert_eq!(scene.life.io.kills, 1);
    });
}

#[test]
fn a_closed_link_is_looked_at_until_the_worker_ends_or_goes_on() {
    for (is_ending, kills) in [(true, 0), (false, 1)] {
        in_scene(SESSION, |scene| {
            scene.cell(1);
            let now = scene.now;
            scene.life.on_link_end(now);
            scene.life.io.is_ending = is_ending;
            scene.passes(ms(249));
            assert_eq!(scene.life.io.kills, 0);
            scene.passes(ms(1));
            assert_eq!(scene.life.io.kills, kills);
        });
    }
}

#[test]
fn a_late_report_of_the_exit_has_the_time_of_the_exit() {
    for (said, exited) in [(None, 2), (Some(OK), 3)] {
        in_scene(Purpose::Run(Kind::Cell), |scene| {
            let started = scene.now;
            scene.passes(ms(3));
            // A result that is read later than the process ended was sent before.
            if let Some(said) = said {
                scene.says(said);
            }
            let waits = scene.life.report_waits(scene.now);
            assert_eq!(waits, said.map(|_| scene.now + REPORT_WAITS));
            scene.life.on_exit(code(0), started + ms(2));
            assert_eq!(scene.life.exited, Some(started + ms(exited)));
            // A worker of which something is left is not waited for blindly.
            assert!(scene.life.report_waits(scene.now).is_some());
            assert_eq!(scene.life.report_waits(scene.now + REPORT_WAITS), None);
        });
    }
}

#[test]
fn the_report_of_an_exit_does_not_wait_while_a_limit_is_due() {
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.says(OK);
        assert!(scene.life.report_waits(scene.now).is_some());
    });
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        let check = scene.life.next_event().unwrap();
        let early = REPORT_WAITS / 2;
        scene.passes((check - scene.now).saturating_sub(early));
        scene.says(OK);
        assert_eq!(scene.life.report_waits(scene.now), None);
    });
}

#[test]
fn a_session_that_runs_a_program_is_not_idle() {
    in_scene(SESSION, |scene| {
        scene.life.io.runs_programs = true;
        scene.passes(Duration::from_secs(60));
        assert_eq!(scene.life.io.kills, 0);
        scene.life.io.runs_programs = false;
        scene.life.on_programs(scene.now);
        scene.passes(ms(1));
        assert_eq!(scene.life.io.kills, 0);
        scene.passes(Duration::from_secs(60));
        assert!(reason(scene.ends()).contains("session.idle"));
    });
}

#[test]
fn a_session_is_closed_or_begun_anew_at_the_callers_wish() {
    in_scene(SESSION, |scene| {
        let restart = scene.asks(ClientRequest::Restart { id: 5 });
        assert!(matches!(restart, Some(SessionExit::Restart(5))));
        let closed = scene.asks(ClientRequest::Close);
        assert!(matches!(closed, Some(SessionExit::Closed)));
    });
}

#[test]
fn the_first_moment_of_a_cell_and_the_last_of_a_run_are_quiet() {
    in_scene(SESSION, |scene| {
        assert_eq!(scene.life.quiet(scene.now), None);
        scene.cell(1);
        let (quiet, until) = scene.life.quiet(scene.now).unwrap();
        assert_eq!((quiet, until), (Quiet::Starting, scene.now + QUIET));
        assert_eq!(scene.life.quiet(until), None);
    });
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.now += QUIET;
        scene.says(OK);
        let (quiet, until) = scene.life.quiet(scene.now).unwrap();
        assert_eq!((quiet, until), (Quiet::Ending, scene.now + QUIET));
        // Exit functions may run on, and print.
        assert_eq!(scene.life.quiet(until), None);
        let now = scene.now + 2 * QUIET;
        scene.life.on_exit(code(0), now);
        assert_eq!(scene.life.quiet(now), Some((Quiet::Ending, now + QUIET)));
    });
}

#[test]
fn a_session_that_cannot_be_copied_is_not_asked_to_stand() {
    in_scene(SESSION, |scene| {
        scene.life.io.refusal = Some(SnapshotRefusal::Level);
        assert!(scene.asks(ClientRequest::Snapshot { id: 1 }).is_none());
        let (id, why) = scene.caller.refusals.remove(0);
        assert!(
            why.starts_with("cannot snapshot: the sandbox is of level"),
            "{why}"
        );
        // Only the greeting.
        assert_eq!((id, scene.life.io.sent), (Some(1), 1));
        scene.cell(2);
        scene.says(&OK.replace('1', "2"));
        assert_eq!(scene.caller.outcomes(), [("ok", SessionState::Live)]);
    });
}

#[test]
fn a_copy_that_fails_lets_the_session_go_on() {
    in_scene(SESSION, |scene| {
        scene.asks(ClientRequest::Snapshot { id: 1 });
        scene.says(r#"{"kind":"standing","id":1,"place":7,"break":8}"#);
        // The greeting, the request, and the message to go on.
        assert_eq!(scene.life.io.sent, 3);
        assert!(scene.caller.refusals.is_empty());
        scene.says(OK);
        let (id, why) = scene.caller.refusals.remove(0);
        assert!(why.starts_with("cannot snapshot: "), "{why}");
        assert_eq!((id, scene.life.io.kills), (Some(1), 0));
    });
}

#[test]
fn a_guest_that_does_not_stand_gives_its_reason() {
    in_scene(SESSION, |scene| {
        scene.asks(ClientRequest::Snapshot { id: 1 });
        let error = r#"{"name":"OSError","message":"no","traceback":""}"#;
        scene.says(&format!(
            r#"{{"kind":"result","id":1,"status":"exception","error":{error}}}"#
        ));
        let (_, why) = scene.caller.refusals.remove(0);
        assert!(why.ends_with("OSError: no"), "{why}");
    });
}

#[test]
fn a_worker_that_stands_unasked_breaks_the_protocol() {
    let standing = r#"{"kind":"standing","id":1,"place":7,"break":8}"#;
    in_scene(SESSION, |scene| {
        scene.says(standing);
        assert_eq!(scene.life.io.kills, 1);
    });
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.says(standing);
        assert_eq!(scene.life.io.kills, 1);
    });
    // It stands once for each request.
    in_scene(SESSION, |scene| {
        scene.asks(ClientRequest::Snapshot { id: 1 });
        scene.says(standing);
        assert_eq!(scene.life.io.kills, 0);
        scene.says(standing);
        assert_eq!(scene.life.io.kills, 1);
    });
}

#[test]
fn processor_time_between_cells_is_counted_when_the_caller_asks() {
    in_scene(SESSION, |scene| {
        let told = |scene: &mut Scene, counted| {
            scene.life.io.cpu_us = Some(counted);
            let left = scene.life.on_caller(scene.now, &mut scene.caller);
            assert!(left.is_none());
            scene.caller.between_cells
        };
        assert_eq!(told(scene, 5000), ms(5));
        assert_eq!(told(scene, 5000), ms(5));
        assert_eq!(told(scene, 7000), ms(7));
        // The outcome of a cell tells of what is used meanwhile.
        scene.cell(1);
        assert_eq!(told(scene, 9000), ms(7));
    });
    // Without a cgroup.
    in_scene(SESSION, |scene| {
        for (measured, counted) in [(5000, 5), (5000, 5), (7000, 7)] {
            scene.life.io.measured.cpu_us = measured;
            let left = scene.life.on_caller(scene.now, &mut scene.caller);
            assert!(left.is_none());
            assert_eq!(scene.caller.between_cells, ms(counted));
        }
    });
}
