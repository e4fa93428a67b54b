//! Tests of policies with unusually long plans and reports.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use sandfork::Sandbox;

use crate::check::fine;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        a_thousand_paths_are_shown,
        hundreds_of_modules_are_preloaded,
        a_long_error_of_a_preload_is_reported,
    ]
}

/// Creates a host directory with these files, which guests may read.
fn directory(files: impl Iterator<Item = (String, &'static str)>) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755))
        .expect("the test owns the file");
    for (name, contents) in files {
        fs::write(place.path().join(name), contents).expect("the file is written");
    }
    place
}

fn a_thousand_paths_are_shown(world: &World) {
    let names: Vec<String> = (0..1000).map(|it| format!("{it:040}")).collect();
    let place = directory(names.iter().map(|name| (name.clone(), "x")));
    let paths: Vec<String> = names
        .iter()
        .map(|name| format!("\"{}\"", place.path().join(name).display()))
        .collect();
    let recipe = standard().set(format!("filesystem.read=[{}]", paths.join(",")));
    let code = format!("[open(path).read() for path in ({})]", paths.join(","));
    let outcome = run(&world.build(recipe), code + " == ['x'] * 1000");
    fine(&outcome);
    assert_eq!(outcome.value(), Some(&true.into()));
}

fn hundreds_of_modules_are_preloaded(world: &World) {
    let names: Vec<String> = (0..400).map(|it| format!("module{it:024}")).collect();
    let place = directory(names.iter().map(|name| (format!("{name}.py"), "")));
    let recipe = standard()
        .set(format!("python.path=[\"{}\"]", place.path().display()))
        .set(format!("python.preload={names:?}"));
    let code = format!("import sys; sys.modules.keys() >= set({names:?})");
    let outcome = run(&world.build(recipe), code);
    fine(&outcome);
    assert_eq!(outcome.value(), Some(&true.into()));
}

fn a_long_error_of_a_preload_is_reported(world: &World) {
    let failing = ("failing.py".to_owned(), "raise ImportError('\\1' * 3000)");
    let place = directory([failing].into_iter());
    let recipe = standard()
        .python(world.python())
        .set(format!("python.path=[\"{}\"]", place.path().display()))
        .set("python.preload=[\"failing\"]");
    let error = Sandbox::builder().policy(recipe.policy()).build();
    let error = error.expect_err("it cannot be imported").to_string();
    assert!(
        error.contains("failing") && error.contains("ImportError"),
        "{error}"
    );
}
