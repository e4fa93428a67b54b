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

/// Compares the task with the same members in another order and with other white space.
fn assert_means_the_same(task: &TaskLine, line: &[u8]) {
    // serde_json cannot represent every number: it may reject one or change it.
    let Ok(tree) = serde_json::from_slice::<Value>(line) else {
        return;
    };
    if has_large_numbers(&tree) {
        return;
    }
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

/// Returns whether the task contains a number that may be an integer of more than 64 bits, rounded.
fn has_large_numbers(tree: &Value) -> bool {
    match tree {
        Value::Number(number) => number.as_f64().is_some_and(|float| float.abs() > 1e18),
        Value::Array(items) => items.iter().any(has_large_numbers),
        Value::Object(members) => members.values().any(has_large_numbers),
        _ => false,
    }
}
