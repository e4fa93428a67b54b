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
fn successful_cells_leave_the_session_live() {
    in_scene(SESSION, |scene| {
        for id in [1, 2] {
            scene.cell(id);
            scene.worker_sends(&OK.replace('1', &id.to_string()));
        }
        let live = ("ok", SessionState::Live);
        assert_eq!(scene.caller.outcomes(), [live, live]);
        // Nothing was measured, which differs from a measured zero.
        assert_eq!(scene.caller.peaks(), [None, None]);
        // The greeting, and a message for each cell.
        assert_eq!(scene.life.io.sent, 3);
    });
}

#[test]
fn longer_wall_time_raises_the_cpu_limit() {
    in_scene(SESSION, |scene| {
        let mut allowed = |id, wall| {
            scene.cell_for(id, wall);
            let allowed = scene.life.io.cpu;
            scene.worker_sends(&OK.replace('1', &id.to_string()));
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
fn second_concurrent_cell_is_refused() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.cell(2);
        let (id, why) = &scene.caller.refusals[0];
        assert_eq!((*id, why.contains("is running")), (Some(2), true), "{why}");
    });
}

#[test]
fn limit_interrupts_a_session_cell_before_it_kills() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.advance(ms(29_999));
        assert_eq!(scene.life.io.interrupts, 0);
        scene.advance(ms(1));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (1, 0));
        for reminders in 0..3 {
            assert_eq!(scene.life.io.reminders, reminders);
            let due = Some(scene.now + ms(1 << reminders));
            let check = Some(scene.life.io.next_check());
            assert_eq!(scene.life.next_event(), due.min(check));
            scene.advance(ms(1 << reminders));
        }
        scene.advance(ms(993));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (1, 1));
        assert!(reason(scene.end()).contains("timeout"));
        assert_eq!(scene.caller.outcomes(), [("timeout", SessionState::Ended)]);
    });
}

#[test]
fn session_survives_an_interrupted_cell() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        assert!(scene.caller_sends(ClientRequest::Interrupt).is_none());
        scene.worker_sends(
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
fn limit_kills_a_run_at_once() {
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.life.io.exceeded = Some(Stop::limit(LimitName::Cpu, Mechanism::Cgroup));
        scene.advance(ms(1));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (0, 1));
        // From now on the loop waits only for the end of the worker.
        assert_eq!(scene.life.next_event(), Some(scene.life.io.ends_by()));
    });
}

#[test]
fn memory_limit_kills_a_session_at_once() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.life.io.exceeded = Some(Stop::watchdog(LimitName::Memory));
        scene.advance(ms(1));
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (0, 1));
    });
}

#[test]
fn excess_output_interrupts_the_cell() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.life.io.drained = Drained::OverCap;
        let now = scene.now;
        scene.life.on_output(Stream::Stdout, now, &mut scene.caller);
        assert_eq!(scene.life.io.interrupts, 1);
    });
}

#[test]
fn excess_output_read_after_the_result_is_reported() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.life.io.drained = Drained::OverCap;
        scene.worker_sends(OK);
        let limited = ("output-limit", SessionState::Live);
        assert_eq!(scene.caller.outcomes(), [limited]);
        assert_eq!((scene.life.io.interrupts, scene.life.io.kills), (0, 0));
    });
}

#[test]
fn invalid_message_kills_the_worker() {
    let wrong = [
        r#"{"kind":"ready","version":2}"#,
        r#"{"kind":"result","id":7,"status":"ok"}"#,
        r#"{"kind":"unknown"}"#,
        "[",
    ];
    for header in wrong {
        in_scene(SESSION, |scene| {
            scene.cell(1);
            scene.worker_sends(header);
            assert_eq!(scene.life.io.kills, 1, "{header}");
            assert!(!scene.life.data_open);
            _ = scene.end();
            let broke = ("protocol-violation", SessionState::Ended);
            assert_eq!(scene.caller.outcomes(), [broke], "{header}");
        });
    }
}

#[test]
fn second_result_kills_the_worker() {
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.worker_sends(OK);
        assert_eq!(scene.life.io.kills, 0);
        scene.worker_sends(OK);
        assert_eq!(scene.life.io.kills, 1);
    });
}

#[test]
fn tool_call_in_a_run_kills_the_worker() {
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.worker_sends(r#"{"kind":"call","id":1,"call":1,"tool":"t","args":[],"kwargs":{}}"#);
        assert_eq!(scene.life.io.kills, 1);
    });
}

#[test]
fn closed_link_kills_only_a_worker_that_keeps_running() {
    for (is_ending, kills) in [(true, 0), (false, 1)] {
        in_scene(SESSION, |scene| {
            scene.cell(1);
            let now = scene.now;
            scene.life.on_link_end(now);
            scene.life.io.is_ending = is_ending;
            scene.advance(ms(249));
            assert_eq!(scene.life.io.kills, 0);
            scene.advance(ms(1));
            assert_eq!(scene.life.io.kills, kills);
        });
    }
}

#[test]
fn late_exit_report_keeps_the_time_of_the_exit() {
    for (said, exited) in [(None, 2), (Some(OK), 3)] {
        in_scene(Purpose::Run(Kind::Cell), |scene| {
            let started = scene.now;
            scene.advance(ms(3));
            // A result that is read after the exit was sent before the exit.
            if let Some(said) = said {
                scene.worker_sends(said);
            }
            let waits = scene.life.report_deferred_until(scene.now);
            assert_eq!(waits, said.map(|_| scene.now + REPORT_DELAY));
            scene.life.on_exit(code(0), started + ms(2));
            assert_eq!(scene.life.exited, Some(started + ms(exited)));
            // The exit report is deferred only for a limited time, because processes may be left.
            assert!(scene.life.report_deferred_until(scene.now).is_some());
            assert_eq!(
                scene.life.report_deferred_until(scene.now + REPORT_DELAY),
                None
            );
        });
    }
}

#[test]
fn exit_report_is_not_deferred_past_a_check() {
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.worker_sends(OK);
        assert!(scene.life.report_deferred_until(scene.now).is_some());
    });
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        let check = scene.life.next_event().unwrap();
        let early = REPORT_DELAY / 2;
        scene.advance((check - scene.now).saturating_sub(early));
        scene.worker_sends(OK);
        assert_eq!(scene.life.report_deferred_until(scene.now), None);
    });
}

#[test]
fn session_with_a_running_program_is_not_idle() {
    in_scene(SESSION, |scene| {
        scene.life.io.runs_programs = true;
        scene.advance(Duration::from_secs(60));
        assert_eq!(scene.life.io.kills, 0);
        scene.life.io.runs_programs = false;
        scene.life.on_programs(scene.now);
        scene.advance(ms(1));
        assert_eq!(scene.life.io.kills, 0);
        scene.advance(Duration::from_secs(60));
        assert!(reason(scene.end()).contains("session.idle"));
    });
}

#[test]
fn restart_and_close_requests_end_the_loop() {
    in_scene(SESSION, |scene| {
        let restart = scene.caller_sends(ClientRequest::Restart { id: 5 });
        assert!(matches!(restart, Some(SessionExit::Restart(5))));
        let closed = scene.caller_sends(ClientRequest::Close);
        assert!(matches!(closed, Some(SessionExit::Closed)));
    });
}

#[test]
fn cell_start_and_run_end_are_quiet_periods() {
    in_scene(SESSION, |scene| {
        assert_eq!(scene.life.quiet(scene.now), None);
        scene.cell(1);
        let (quiet, until) = scene.life.quiet(scene.now).unwrap();
        assert_eq!((quiet, until), (Quiet::Starting, scene.now + QUIET));
        assert_eq!(scene.life.quiet(until), None);
    });
    in_scene(Purpose::Run(Kind::Cell), |scene| {
        scene.now += QUIET;
        scene.worker_sends(OK);
        let (quiet, until) = scene.life.quiet(scene.now).unwrap();
        assert_eq!((quiet, until), (Quiet::Ending, scene.now + QUIET));
        // Exit functions may keep running, and print.
        assert_eq!(scene.life.quiet(until), None);
        let now = scene.now + 2 * QUIET;
        scene.life.on_exit(code(0), now);
        assert_eq!(scene.life.quiet(now), Some((Quiet::Ending, now + QUIET)));
    });
}

#[test]
fn uncopyable_session_is_not_stopped() {
    in_scene(SESSION, |scene| {
        scene.life.io.refusal = Some(SnapshotRefusal::Level);
        assert!(
            scene
                .caller_sends(ClientRequest::Snapshot { id: 1 })
                .is_none()
        );
        let (id, why) = scene.caller.refusals.remove(0);
        assert!(
            why.starts_with("cannot snapshot: the sandbox is of level"),
            "{why}"
        );
        // Only the greeting was sent.
        assert_eq!((id, scene.life.io.sent), (Some(1), 1));
        scene.cell(2);
        scene.worker_sends(&OK.replace('1', "2"));
        assert_eq!(scene.caller.outcomes(), [("ok", SessionState::Live)]);
    });
}

#[test]
fn session_continues_after_a_failed_copy() {
    in_scene(SESSION, |scene| {
        scene.caller_sends(ClientRequest::Snapshot { id: 1 });
        scene.worker_sends(r#"{"kind":"standing","id":1,"place":7,"break":8}"#);
        // The greeting, the request, and the message to resume.
        assert_eq!(scene.life.io.sent, 3);
        assert!(scene.caller.refusals.is_empty());
        scene.worker_sends(OK);
        let (id, why) = scene.caller.refusals.remove(0);
        assert!(why.starts_with("cannot snapshot: "), "{why}");
        assert_eq!((id, scene.life.io.kills), (Some(1), 0));
    });
}

#[test]
fn snapshot_refusal_quotes_the_guest_exception() {
    in_scene(SESSION, |scene| {
        scene.caller_sends(ClientRequest::Snapshot { id: 1 });
        let error = r#"{"name":"OSError","message":"no","traceback":""}"#;
        scene.worker_sends(&format!(
            r#"{{"kind":"result","id":1,"status":"exception","error":{error}}}"#
        ));
        let (_, why) = scene.caller.refusals.remove(0);
        assert!(why.ends_with("OSError: no"), "{why}");
    });
}

#[test]
fn unrequested_copy_point_kills_the_worker() {
    let standing = r#"{"kind":"standing","id":1,"place":7,"break":8}"#;
    in_scene(SESSION, |scene| {
        scene.worker_sends(standing);
        assert_eq!(scene.life.io.kills, 1);
    });
    in_scene(SESSION, |scene| {
        scene.cell(1);
        scene.worker_sends(standing);
        assert_eq!(scene.life.io.kills, 1);
    });
    // Each request allows one copy point.
    in_scene(SESSION, |scene| {
        scene.caller_sends(ClientRequest::Snapshot { id: 1 });
        scene.worker_sends(standing);
        assert_eq!(scene.life.io.kills, 0);
        scene.worker_sends(standing);
        assert_eq!(scene.life.io.kills, 1);
    });
}

#[test]
fn cpu_time_between_cells_is_reported_on_request() {
    in_scene(SESSION, |scene| {
        let reported = |scene: &mut Scene, counted| {
            scene.life.io.cpu_us = Some(counted);
            let left = scene.life.on_caller(scene.now, &mut scene.caller);
            assert!(left.is_none());
            scene.caller.between_cells
        };
        assert_eq!(reported(scene, 5000), ms(5));
        assert_eq!(reported(scene, 5000), ms(5));
        assert_eq!(reported(scene, 7000), ms(7));
        // The outcome of a running cell reports its own time.
        scene.cell(1);
        assert_eq!(reported(scene, 9000), ms(7));
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
