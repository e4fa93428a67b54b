//! Files that a worker passes are checked, and copied if they can change, only when the caller gets them.

use super::OK;
use super::scene::{SESSION, Scene, in_scene};
use crate::outcome::value::blob::LARGEST_PAYLOAD;
use crate::protocol::caller::ClientRequest;
use crate::protocol::{NamedError, ToolAnswer};

/// Sends a frame for request `id` with a passed file of `bytes` bytes. `fields` are the fields of its kind.
fn send_file(scene: &mut Scene, id: u64, fields: &str, bytes: u64) {
    let blob = format!(r#""blob":{{"lengths":[{bytes}],"passed":true}}"#);
    scene.worker_sends(&format!(r#"{{"id":{id},{fields},{blob}}}"#));
}

const DISPLAY: &str = r#""kind":"display","data":{},"main":false"#;

#[test]
fn files_of_queued_calls_are_not_accepted_yet() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        for call in 1..=90 {
            let call = format!(r#""kind":"call","call":{call},"tool":"t","args":[],"kwargs":{{}}"#);
            send_file(scene, 1, &call, 100_000);
        }
        assert_eq!((scene.life.io.taken, scene.life.io.accepted), (90, 1));
        let answer = ToolAnswer::raising(1, NamedError::new("E", ""));
        scene.caller_sends(ClientRequest::Return(answer));
        assert_eq!(scene.life.io.accepted, 2);
        scene.worker_sends(OK);
        assert_eq!((scene.life.io.kills, scene.life.io.accepted), (0, 2));
    });
}

#[test]
fn file_of_a_discarded_display_is_not_accepted() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        send_file(scene, 7, DISPLAY, 100_000);
        assert_eq!((scene.life.io.taken, scene.life.io.accepted), (1, 0));
        send_file(scene, 1, DISPLAY, 100_000);
        assert_eq!(scene.life.io.accepted, 1);
        // More than a cell may display.
        send_file(scene, 1, DISPLAY, 64 << 20);
        assert_eq!((scene.life.io.interrupts, scene.life.io.accepted), (1, 1));
    });
}

/// The supervisor reads displays that it discards, too.
#[test]
fn display_for_another_cell_counts_for_the_running_cell() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        send_file(scene, 7, DISPLAY, 64 << 20);
        assert_eq!((scene.life.io.interrupts, scene.life.io.accepted), (1, 0));
    });
}

/// Otherwise a cell could make its caller map tens of thousands of small files.
#[test]
fn passed_file_that_fits_into_a_frame_kills_the_worker() {
    for (bytes, kills) in [(1, 1), (LARGEST_PAYLOAD, 1), (LARGEST_PAYLOAD + 1, 0)] {
        in_scene(SESSION, |scene| {
            scene.cell(1);
            send_file(scene, 1, DISPLAY, bytes);
            assert_eq!(scene.life.io.kills, kills, "{bytes}");
        });
    }
}
