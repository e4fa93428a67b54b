//! Tests that nothing is left behind, however runs, sandboxes and supervisors end.

mod killed;
mod mixed;
pub mod traces;

use crate::apart::Part;
use crate::need::Need;
use crate::test::{Test, needing, tests};
use killed::{killed_supervisor, killed_supervisor_that_had_forked};
use mixed::mixed_runs;

pub const PARTS: [Part; 6] = [
    ("mixed-runs", mixed::part),
    ("killed-supervisor", killed::part),
    ("supervisor-to-be-killed", killed::supervisor),
    ("killed-supervisor-that-had-forked", killed::forked_part),
    (
        "forking-supervisor-to-be-killed",
        killed::forking_supervisor,
    ),
    ("next-supervisor", killed::next_supervisor),
];

pub fn tests() -> Vec<Test> {
    let mut tests = tests![mixed_runs];
    tests.extend(needing(
        Need::EveryProcess,
        tests![killed_supervisor, killed_supervisor_that_had_forked],
    ));
    tests
}
