//! Tests of sandboxes that cannot be provided: the error is one sentence that names the cause and the
//! remedy, nothing is left behind, and no weaker jail is used instead.

mod exhausted;
pub mod interpreters;
mod memory_files;
mod no_user_namespaces;
mod preloads;

use sandfork::{Error, ErrorKind, Sandbox};

use crate::apart::{self, Part};
use crate::check;
use crate::leftovers::traces::Traces;
use crate::need::{Need, Skip};
use crate::recipe::{Recipe, standard};
use crate::test::{Test, tests};
use crate::world::World;

pub const PARTS: [Part; 4] = [
    ("no-descriptors", exhausted::without_descriptors),
    ("no-processes", exhausted::without_processes),
    ("refusals", leave_nothing_behind_part),
    ("no-user-namespaces", no_user_namespaces::part),
];

pub fn tests(world: &World) -> Vec<Test> {
    let mut tests = tests![
        leave_nothing_behind,
        a_missing_path,
        a_limit_above_the_host,
        the_minimum_memory_limit_is_enough,
        a_source_that_is_too_large,
    ];
    if let Some(Skip::Forced(_)) = Need::Cgroup.missing_on(world) {
        tests.extend(tests![an_unavailable_level]);
    }
    tests.extend(exhausted::tests());
    tests.extend(interpreters::tests());
    tests.extend(memory_files::tests());
    tests.extend(preloads::tests());
    tests.extend(no_user_namespaces::tests());
    tests
}

/// Tries to build an impossible sandbox and checks the error.
#[track_caller]
fn refused(world: &World, recipe: Recipe, kind: ErrorKind, names: &[&str]) {
    let policy = recipe.python_unless_named(world.python()).policy();
    let error = Sandbox::builder()
        .policy(policy)
        .build()
        .expect_err("this cannot be provided");
    assert_reported(&error, kind, names);
}

#[track_caller]
fn assert_reported(error: &Error, kind: ErrorKind, names: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(!text.contains('\n'), "not one sentence: {text}");
    for name in names {
        assert!(text.contains(name), "does not say `{name}`: {text}");
    }
}

fn a_missing_path(world: &World) {
    let recipe = standard().set("filesystem.read=/no/such/directory");
    refused(
        world,
        recipe,
        ErrorKind::Host,
        &["--set", "/no/such/directory", "create it"],
    );
}

fn a_limit_above_the_host(world: &World) {
    let recipe = standard().set("limits.memory=1000TiB");
    refused(
        world,
        recipe,
        ErrorKind::Host,
        &["limits.memory", "1000 TiB", "lower it"],
    );
}

fn an_unavailable_level(world: &World) {
    let recipe = standard().set("assurance.require=full");
    refused(
        world,
        recipe,
        ErrorKind::Host,
        &["level `full`", "layer `cgroup`", "systemd-run"],
    );
}

// Any memory limit that a policy accepts is enough for Python itself.
fn the_minimum_memory_limit_is_enough(world: &World) {
    let recipe = standard().set("limits.memory=16MiB");
    check::fine(&world.run(recipe, "print('fits')"));
}

fn a_source_that_is_too_large(world: &World) {
    world.with_shared(standard(), |sandbox| {
        let error = sandbox
            .run(" ".repeat(64 << 20))
            .expect_err("there is a bound");
        assert_reported(&error, ErrorKind::Request, &["source is too large"]);
    });
}

// Repeats all refusals in a separate process, where anything left behind is visible.
fn leave_nothing_behind(_: &World) {
    apart::finishes("refusals");
}

fn leave_nothing_behind_part() {
    nix::sys::prctl::set_child_subreaper(true).expect("any process can be a subreaper");
    let world = World::probe().expect("the host can be probed");
    let cgroups = &world.host.machine.cgroup;
    a_limit_above_the_host(&world);
    let before = Traces::record(cgroups);
    a_missing_path(&world);
    a_limit_above_the_host(&world);
    interpreters::all(&world);
    preloads::all(&world);
    before.assert_same(cgroups);
    Traces::no_processes();
}
