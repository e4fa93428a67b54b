//! Lines of `sandfork map`: a task means the same in any layout of its JSON.

use sandfork::batch::{RecordLine, TaskId, TaskLine, TaskProgram};
use sandfork::{Policy, Request};
use serde_json::Value;

use crate::{Behaviour, Target};

pub(crate) const TARGET: Target = Target {
    name: "tasks",
    about: "a line of tasks or results: no panic; what is taken means the same in any layout",
    run,
    words: &[
        "\"id\":",
        "\"code\":",
        "\"file\":",
        "\"program\":[",
        "\"args\":[",
        "\"files\":{",
        "\"stdin\":",
        "{\"base64\":\"",
        "\"limits\":{",
        "\"wall\":\"",
        "\"cpu\":\"",
        "\"output\":\"",
        "\"memory\":",
        "\"policy\":\"",
        "\"status\":\"",
        "\"ok\"",
        "\"interrupted\"",
        "2s",
        "1.5h",
        "64KiB",
        "0B",
        "1e9s",
        "18446744073709551616s",
        "../",
        "/work/",
        "//",
        "\\u0000",
        "\\ud800",
        "AA==",
        "=",
        "null",
        "1",
        "-1",
        "9223372036854775808",
        "1.0",
        "\"a\",",
        "}",
        "]",
        "\u{feff}",
    ],
    inputs: 450_000,
};

fn run(line: &[u8]) -> Behaviour {
    let record = RecordLine::parse(line).is_ok();
    match TaskLine::parse(line) {
        Ok(task) => {
            assert_means_the_same(&task, line);
            let allowed = task.check(&Policy::default()).is_ok();
            let shape = format!("{} {allowed} {record}", kind(&task));
            let source = Request::python("");
            let _ = task.request(source);
            Behaviour::taken(&shape)
        }
        Err(error) => Behaviour::refused(&format!("{record} {error}")),
    }
}

/// Compares with the same members in another order and with other spaces.
fn assert_means_the_same(task: &TaskLine, line: &[u8]) {
    let tree: Value = serde_json::from_slice(line).expect("a task is JSON");
    let id = match &tree["id"] {
        Value::String(text) => TaskId::from(text.as_str()),
        number => TaskId::from(number.as_i64().expect("an id is a text or a whole number")),
    };
    assert_eq!(task.id, id);
    for text in [tree.to_string(), format!("{tree:#}")] {
        match TaskLine::parse(text.as_bytes()) {
            Ok(again) => assert_eq!(*task, again, "{text}"),
            Err(error) => panic!("{text} is refused: {error}"),
        }
    }
}

fn kind(task: &TaskLine) -> &'static str {
    match (&task.program, task.files.is_empty()) {
        (TaskProgram::Code { .. }, true) => "code",
        (TaskProgram::Code { .. }, false) => "code with files",
        (TaskProgram::File { .. }, _) => "file",
        (TaskProgram::Program(_), _) => "program",
    }
}
