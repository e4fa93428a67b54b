//! A test: its name, its requirements and its function.

use std::sync::Arc;

use libtest_mimic::{Completion, Trial};

use crate::need::{Need, Skip};
use crate::world::World;

/// One test. It fails by panicking.
pub struct Test {
    name: String,
    needs: Vec<Need>,
    run: Box<dyn FnOnce(&World) + Send>,
}

impl Test {
    /// Creates a test that needs sandboxes of level `standard`, as nearly all do.
    pub fn new(name: impl Into<String>, run: impl FnOnce(&World) + Send + 'static) -> Self {
        Self {
            name: name.into(),
            needs: vec![Need::Sandbox],
            run: Box::new(run),
        }
    }

    /// Adds a requirement.
    pub fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Renames the test.
    pub fn named(mut self, name: impl FnOnce(&str) -> String) -> Self {
        self.name = name(&self.name);
        self
    }

    /// Converts the test for the harness. Whether it is skipped is decided before it runs, never by its
    /// result.
    pub fn into_trial(self, world: &Arc<World>) -> Trial {
        let world = Arc::clone(world);
        Trial::ignorable_test(self.name, move || {
            match self.needs.iter().find_map(|need| need.missing_on(&world)) {
                Some(Skip::Mendable(reason)) if skips_are_forbidden() => {
                    Err(format!("may not be skipped here: {reason}").into())
                }
                Some(Skip::Forced(reason) | Skip::Mendable(reason)) => {
                    Ok(Completion::ignored_with(reason))
                }
                None => {
                    (self.run)(&world);
                    Ok(Completion::Completed)
                }
            }
        })
    }
}

/// Whether the environment forbids skips that a set-up could avoid, as in CI.
fn skips_are_forbidden() -> bool {
    std::env::var_os("SANDFORK_FORBID_SKIPS").is_some_and(|value| !value.is_empty())
}

/// Adds a requirement to each test.
pub fn needing(need: Need, tests: Vec<Test>) -> Vec<Test> {
    tests.into_iter().map(|test| test.needs(need)).collect()
}

/// Makes tests of functions, named after their module and function.
macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        vec![$($crate::test::Test::new($crate::test::name_of(module_path!(), stringify!($name)), $name)),+]
    };
}
pub(crate) use tests;

/// Returns the name of a test, such as `outcomes::time::busy_loop`, from those of its module and function.
pub fn name_of(module: &str, function: &str) -> String {
    let module = module.split_once("::").map_or("", |(_, module)| module);
    format!("{module}::{function}")
}
