//! Tests with a missing or unsuitable Python interpreter.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sandfork::ErrorKind;
use tempfile::TempDir;

use super::refused;
use crate::need::Need;
use crate::programs;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        a_name_that_is_not_on_the_path,
        a_path_that_is_not_there,
        a_directory_without_an_interpreter,
        a_file_that_is_not_a_program,
        a_shell_script,
        another_program,
    ];
    for (major, minor) in [(2, 7), (3, 6), (3, 8)] {
        let name = format!("bad_input::interpreters::python_{major}_{minor}");
        let test = Test::new(name, move |world: &World| too_old(world, major, minor));
        tests.push(test.needs(Need::OldPython(major, minor)));
    }
    tests
}

/// Returns the test that takes longer than any other: it waits for the interpreter's deadline.
pub fn waiting() -> Vec<Test> {
    tests![a_script_that_never_answers]
}

/// Runs all tests except the long one.
pub fn all(world: &World) {
    a_name_that_is_not_on_the_path(world);
    a_path_that_is_not_there(world);
    a_directory_without_an_interpreter(world);
    a_file_that_is_not_a_program(world);
    a_shell_script(world);
    another_program(world);
}

/// Creates a file outside the directories over which a sandbox mounts its own.
pub fn file(name: &str, mode: u32, text: &str) -> TempDir {
    let directory = tempfile::Builder::new()
        .prefix("sandfork-test-")
        .tempdir_in("/var/tmp");
    let directory = directory.expect("the directory is created");
    programs::install(&directory.path().join(name), mode, text);
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))
        .expect("the test owns the file");
    directory
}

#[track_caller]
fn unsuitable(world: &World, path: &Path, expected: &[&str]) {
    let shown = path.display().to_string();
    let names = [&[shown.as_str(), "python.interpreter"], expected].concat();
    refused(
        world,
        standard().python(path),
        ErrorKind::Interpreter,
        &names,
    );
}

fn a_name_that_is_not_on_the_path(world: &World) {
    let recipe = standard().python("python-of-another-world");
    let expected = [
        "`python-of-another-world` on PATH",
        "install CPython 3.9",
        "python.interpreter",
    ];
    refused(world, recipe, ErrorKind::Interpreter, &expected);
}

fn a_path_that_is_not_there(world: &World) {
    unsuitable(world, Path::new("/no/such/python"), &["cannot be found"]);
}

fn a_directory_without_an_interpreter(world: &World) {
    let recipe = standard().python("/usr/share");
    let expected = ["/usr/share has no bin/python", "python3 -m venv"];
    refused(world, recipe, ErrorKind::Interpreter, &expected);
}

fn a_file_that_is_not_a_program(world: &World) {
    let directory = file("python", 0o644, "not a program");
    unsuitable(
        world,
        &directory.path().join("python"),
        &["Permission denied"],
    );
    let directory = file("python", 0o755, "not a program");
    unsuitable(
        world,
        &directory.path().join("python"),
        &["Exec format error"],
    );
}

fn a_shell_script(world: &World) {
    let directory = file("python", 0o755, "#!/bin/sh\necho hello\n");
    unsuitable(world, &directory.path().join("python"), &[]);
}

fn a_script_that_never_answers(world: &World) {
    let directory = file("python", 0o755, "#!/bin/sh\nexec sleep 600\n");
    unsuitable(world, &directory.path().join("python"), &["no answer"]);
}

fn another_program(world: &World) {
    unsuitable(world, Path::new("/bin/true"), &[]);
    unsuitable(world, Path::new("/bin/cat"), &[]);
}

fn too_old(world: &World, major: u8, minor: u8) {
    let old = world
        .too_old(major, minor)
        .expect("the interpreter was found");
    let version = format!("Python {major}.{minor}.");
    unsuitable(world, &old.executable, &[&version, "CPython 3.9 or later"]);
}
