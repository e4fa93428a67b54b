//! Tests of forks of sessions and forks of those.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandfork::session::Session;

use super::reseeding::DRAWS;
use super::{lines_of, shown};
use crate::need::Need;
use crate::recipe::Recipe;
use crate::test::Test;
use crate::world::World;

const MADE: &str = include_str!("made.py");
const KEPT: &str = include_str!("kept.py");

const FORKS: usize = 3;

pub fn state(name: String, recipe: Recipe) -> Test {
    let test = Test::new(name, move |world: &World| {
        let mut session = open(world, recipe);
        ok(&mut session, MADE);
        let mut copied = copy(&mut session);
        let mut again = copy(&mut copied);
        for session in [&mut again, &mut copied, &mut session] {
            ok(session, KEPT);
        }
    });
    test.needs(Need::Snapshots)
}

/// Tests that each fork draws its own random numbers, even after the session has drawn some.
pub fn draws(name: String, recipe: Recipe) -> Test {
    let test = Test::new(name, move |world: &World| {
        let mut session = open(world, recipe);
        ok(&mut session, DRAWS);
        let snapshot = session.snapshot().unwrap_or_else(|error| panic!("{error}"));
        let forks = (0..FORKS).map(|_| snapshot.fork());
        let forks: Result<Vec<Session>, _> = forks.collect();
        let mut all = forks.unwrap_or_else(|error| panic!("{error}"));
        all.push(session);
        let mut drawn: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for session in &mut all {
            for (source, draw) in lines_of(&ok(session, DRAWS)) {
                drawn.entry(source).or_default().push(draw);
            }
        }
        assert!(drawn.len() >= 9, "{drawn:#?}");
        drawn.retain(|_, draws| {
            draws.sort();
            draws.dedup();
            draws.len() <= FORKS
        });
        assert!(drawn.is_empty(), "the same in two: {drawn:#?}");
    });
    test.needs(Need::Snapshots)
}

fn open(world: &World, recipe: Recipe) -> Session {
    let session = Arc::new(world.build(recipe)).session();
    session.unwrap_or_else(|error| panic!("no session: {error}"))
}

fn copy(session: &mut Session) -> Session {
    let copied = session.snapshot().and_then(|snapshot| snapshot.fork());
    copied.unwrap_or_else(|error| panic!("no copy: {error}"))
}

/// Runs a cell that must succeed and returns its stdout.
#[track_caller]
fn ok(session: &mut Session, source: &str) -> String {
    let report = session.run(source);
    let report = report.unwrap_or_else(|error| panic!("no cell: {error}"));
    let outcome = report.outcome();
    assert!(outcome.is_ok(), "{}", shown(outcome));
    outcome.stdout().into_owned()
}
