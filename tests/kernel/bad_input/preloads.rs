//! Modules that cannot be preloaded.

use sandfork::ErrorKind;

use super::interpreters::file;
use super::refused;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        a_module_that_is_not_installed,
        a_module_that_raises,
        a_module_that_lacks_another,
        a_module_that_starts_a_thread,
        a_module_that_exits,
        a_module_that_dies,
    ]
}

pub fn all(world: &World) {
    a_module_that_is_not_installed(world);
    a_module_that_raises(world);
    a_module_that_lacks_another(world);
    a_module_that_starts_a_thread(world);
    a_module_that_exits(world);
    a_module_that_dies(world);
}

#[track_caller]
fn fails(world: &World, code: &str, says: &[&str]) {
    let directory = file("awkward.py", 0o644, code);
    let recipe = standard()
        .set(format!("python.path={}", directory.path().display()))
        .set("python.preload=awkward");
    refused(world, recipe, ErrorKind::Interpreter, says);
}

fn a_module_that_is_not_installed(world: &World) {
    let recipe = standard().set("python.preload=no_such_module");
    let says = [
        "`no_such_module`",
        "ModuleNotFoundError",
        "install it",
        "python.preload",
    ];
    refused(world, recipe, ErrorKind::Interpreter, &says);
}

fn a_module_that_raises(world: &World) {
    fails(
        world,
        "raise OSError('a\\nb')",
        &["`awkward`", "OSError", "python.preload"],
    );
}

/// Optional or not: it is there, and what it needs is not.
fn a_module_that_lacks_another(world: &World) {
    let says = ["`awkward`", "no_such_module", "python.preload"];
    fails(world, "import no_such_module", &says);
}

fn a_module_that_starts_a_thread(world: &World) {
    let code = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()";
    fails(
        world,
        code,
        &["`awkward`", "started a thread", "python.preload"],
    );
}

fn a_module_that_exits(world: &World) {
    fails(
        world,
        "import sys\nsys.exit(3)",
        &["`awkward`", "SystemExit", "python.preload"],
    );
}

/// No process is left to report the module, but its output is reported.
fn a_module_that_dies(world: &World) {
    fails(
        world,
        "import os\nos._exit(3)",
        &["ended before it was ready"],
    );
    fails(
        world,
        "import ctypes\nctypes.string_at(0)",
        &["ended before it was ready"],
    );
}
