//! Lines of `sandfork map`: a task means the same in any layout of its JSON.

use std::convert::Infallible;

use sandfork::batch::TaskId;
use sandfork::internals::batch::{RecordLine, TaskLine};
use sandfork::{Policy, Request};
use serde_json::Value;

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "tasks",
    run,
    inputs: 24_000,
};

fn run(line: &[u8]) -> bool {
    let _ = RecordLine::parse(line);
    match TaskLine::parse(line) {
        Ok(task) => {
            assert_means_the_same(&task, line);
            let _ = task.check(&Policy::default());
            let _ = task.request(None, |_| Ok::<_, Infallible>(Request::python("")));
            true
        }
        Err(error) => {
            let _ = error.to_string();
            false
        }
    }
}

/// Compares with the same members in another order and with other spaces.
fn assert_means_the_same(task: &TaskLine, line: &[u8]) {
    let tree: Value = serde_json::from_slice(line).expect("a task is JSON");
    let id = match &tree["id"] {
        Value::Null => None,
        Value::String(text) => Some(TaskId::from(text.as_str())),
        number => number.as_i64().map(TaskId::from),
    };
    assert_eq!(task.id, id);
    for text in [tree.to_string(), format!("{tree:#}")] {
        match TaskLine::parse(text.as_bytes()) {
            Ok(again) => assert_eq!(*task, again, "{text}"),
            Err(error) => panic!("{text} is refused: {error}"),
        }
    }
}
