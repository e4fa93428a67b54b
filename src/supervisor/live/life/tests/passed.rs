//! Files that a worker passes: each is looked at, and copied if it can change, only when the caller gets it.

use super::OK;
use super::scene::{SESSION, Scene, in_scene};
use crate::outcome::value::blob::LARGEST_PAYLOAD;
use crate::protocol::caller::ClientRequest;
use crate::protocol::{NamedError, ToolAnswer};

/// A frame for this request with a passed file of so many bytes. `fields` are those of its kind.
fn passes(scene: &mut Scene, id: u64, fields: &str, bytes: u64) {
    let blob = format!(r#""blob":{{"lengths":[{bytes}],"passed":true}}"#);
    scene.says(&format!(r#"{{"id":{id},{fields},{blob}}}"#));
}

const DISPLAY: &str = r#""kind":"display","data":{},"main":false"#;

#[test]
fn files_of_calls_that_wait_are_left_to_the_guest() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        for call in 1..=90 {
            let call = format!(r#""kind":"call","call":{call},"tool":"t","args":[],"kwargs":{{}}"#);
            passes(scene, 1, &call, 100_000);
        }
        assert_eq!((scene.life.io.taken, scene.life.io.accepted), (90, 1));
        let answer = ToolAnswer::raising(1, NamedError::new("E", ""));
        scene.asks(ClientRequest::Return(answer));
        assert_eq!(scene.life.io.accepted, 2);
        scene.says(OK);
        assert_eq!((scene.life.io.kills, scene.life.io.accepted), (0, 2));
    });
}

#[test]
fn a_file_of_a_display_that_no_one_gets_is_not_looked_at() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        passes(scene, 7, DISPLAY, 100_000);
        assert_eq!((scene.life.io.taken, scene.life.io.accepted), (1, 0));
        passes(scene, 1, DISPLAY, 100_000);
        assert_eq!(scene.life.io.accepted, 1);
        // More than a cell may display.
        passes(scene, 1, DISPLAY, 64 << 20);
        assert_eq!((scene.life.io.interrupts, scene.life.io.accepted), (1, 1));
    });
}

/// The supervisor reads what no one gets, too.
#[test]
fn a_display_for_another_cell_counts_in_that_which_runs() {
    in_scene(SESSION, |scene| {
        scene.cell(1);
        passes(scene, 7, DISPLAY, 64 << 20);
        assert_eq!((scene.life.io.interrupts, scene.life.io.accepted), (1, 0));
    });
}

/// A cell could have its caller map tens of thousands of them.
#[test]
fn bytes_that_fit_into_a_frame_are_not_passed() {
    for (bytes, kills) in [(1, 1), (LARGEST_PAYLOAD, 1), (LARGEST_PAYLOAD + 1, 0)] {
        in_scene(SESSION, |scene| {
            scene.cell(1);
            passes(scene, 1, DISPLAY, bytes);
            assert_eq!(scene.life.io.kills, kills, "{bytes}");
        });
    }
}
