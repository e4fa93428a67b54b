//! Tests that workers do not draw the same random numbers, although all are forks of one interpreter.

use std::collections::BTreeMap;

use sandfork::Sandbox;

use super::lines;
use crate::recipe::Recipe;
use crate::test::Test;
use crate::world::{World, run};

pub const DRAWS: &str = include_str!("draws.py");
const WORKERS: usize = 6;

/// Preloads modules with random state: every worker inherits the numbers that they drew in the zygote.
const STATEFUL: &str =
    "python.preload=[\"random\", \"secrets\", \"ssl\", \"tempfile\", \"uuid\", \"hashlib\"]";

/// Tests the standard library only, with and without preloading.
pub fn bare(name: String, recipe: Recipe) -> Test {
    Test::new(name, move |world: &World| {
        world.with_shared(recipe.clone(), |sandbox| all_differ(sandbox, 9));
        all_differ(&world.build(recipe.set(STATEFUL)), 9);
    })
}

/// Tests numpy too.
pub fn preloaded(name: String, recipe: Recipe) -> Test {
    Test::new(name, move |world: &World| {
        all_differ(&world.build(recipe.set(STATEFUL)), 13);
    })
}

#[track_caller]
fn all_differ(sandbox: &Sandbox, sources: usize) {
    let mut draws: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for _ in 0..WORKERS {
        for (source, draw) in lines(&run(sandbox, DRAWS)) {
            draws.entry(source).or_default().push(draw);
        }
    }
    assert!(draws.len() >= sources, "{draws:#?}");
    draws.retain(|_, drawn| {
        drawn.sort();
        drawn.dedup();
        drawn.len() < WORKERS
    });
    assert!(
        draws.is_empty(),
        "not one for each of {WORKERS} workers: {draws:#?}"
    );
}
