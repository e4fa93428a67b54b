//! Workers are copies of one interpreter, and must not draw the same random numbers.

use std::collections::BTreeMap;

use sandfork::Sandbox;

use super::lines;
use crate::recipe::Recipe;
use crate::test::Test;
use crate::world::{World, run};

pub const DRAWS: &str = include_str!("draws.py");
const WORKERS: usize = 6;

/// With modules preloaded that keep state: what they drew in the zygote, every worker has.
const STATEFUL: &str =
    "python.preload=[\"random\", \"secrets\", \"ssl\", \"tempfile\", \"uuid\", \"hashlib\"]";

/// With the standard library alone, preloaded or not.
pub fn bare(name: String, recipe: Recipe) -> Test {
    Test::new(name, move |world: &World| {
        world.with_shared(recipe.clone(), |sandbox| all_differ(sandbox, 9));
        all_differ(&world.build(recipe.set(STATEFUL)), 9);
    })
}

/// With numpy too.
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
