//! Tests of sessions: what a worker keeps from cell to cell, and what ends it.

mod cells;
mod clocks;
mod directories;
mod ends;
mod files;
mod guards;
mod hostile_copies;
mod memory;
mod pauses;
mod programs;
mod saved;
mod shown_trees;
mod snapshots;
mod stress;
mod terms;
mod tools;
mod types;
mod values;
mod watch;

use std::sync::Arc;

use sandfork::session::{Cell, CellReport, Session, SessionState};
use sandfork::{Sandbox, Status};

use crate::apart::Part;
use crate::check::shown;
use crate::recipe::Recipe;
use crate::test::Test;
use crate::world::World;

pub const PARTS: [Part; 5] = [
    ("copied-sessions", memory::copied_sessions),
    ("ended-interpreter", snapshots::ended_interpreter),
    ("paused-sessions", pauses::part),
    ("dropped-sessions", ends::dropped_sessions),
    ("stressed-sessions", stress::part),
];

pub fn tests() -> Vec<Test> {
    let mut tests = cells::tests();
    tests.extend(clocks::tests());
    tests.extend(directories::tests());
    tests.extend(ends::tests());
    tests.extend(files::tests());
    tests.extend(guards::tests());
    tests.extend(hostile_copies::tests());
    tests.extend(memory::tests());
    tests.extend(pauses::tests());
    tests.extend(programs::tests());
    tests.extend(saved::tests());
    tests.extend(shown_trees::tests());
    tests.extend(snapshots::tests());
    tests.extend(stress::tests());
    tests.extend(terms::tests());
    tests.extend(tools::tests());
    tests.extend(types::tests());
    tests.extend(values::tests());
    tests.extend(watch::tests());
    tests
}

/// Opens a session in a new sandbox.
fn open(world: &World, recipe: Recipe) -> Session {
    session(&Arc::new(world.build(recipe)))
}

fn session(sandbox: &Arc<Sandbox>) -> Session {
    let session = sandbox.session();
    session.unwrap_or_else(|error| panic!("no session: {error}"))
}

/// Runs a cell with any ending.
#[track_caller]
fn run(session: &mut Session, cell: impl Into<Cell>) -> CellReport {
    let report = session.run(cell);
    report.unwrap_or_else(|error| panic!("no cell: {error}"))
}

/// Runs a cell that must succeed and returns its value as Python's `repr`.
#[track_caller]
fn value(session: &mut Session, source: &str) -> String {
    let report = run(session, source);
    assert_ended(&report, Status::Ok, SessionState::Live);
    let value = report.outcome().value().cloned().unwrap_or_default();
    value.to_string()
}

#[track_caller]
fn assert_ended(report: &CellReport, status: Status, session: SessionState) {
    let outcome = report.outcome();
    assert_eq!(
        (outcome.status(), report.session()),
        (status, session),
        "{}",
        shown(outcome)
    );
}
