//! Tests of sandboxes for a caller whose environment differs from this process's.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use sandfork::batch::{Batch, Task};
use sandfork::{CallerEnvironment, Sandbox};

use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        only_listed_variables_are_passed,
        policy_time_zone_applies_to_python,
        tasks_with_own_policy_use_the_batch_environment,
        interpreter_name_is_looked_up_on_the_callers_path,
    ]
}

fn only_listed_variables_are_passed(world: &World) {
    let given = CallerEnvironment::current().changed_by([
        ("SANDFORK_TEST_TOKEN", Some("of the caller")),
        ("SANDFORK_TEST_OTHER", Some("secret")),
        ("SANDFORK_TEST_NONE", None),
    ]);
    let policy = standard()
        .set("env.pass=['SANDFORK_TEST_TOKEN', 'SANDFORK_TEST_NONE']")
        .python_unless_named(world.python())
        .policy();
    let sandbox = Sandbox::builder().policy(policy).environment(given).build();
    let sandbox = sandbox.unwrap_or_else(|error| panic!("no sandbox: {error}"));
    let code = "import os\nprint({k: v for k, v in os.environ.items() if 'SANDFORK' in k})";
    let outcome = run(&sandbox, code);
    assert_eq!(
        outcome.stdout(),
        "{'SANDFORK_TEST_TOKEN': 'of the caller'}\n"
    );
}

fn policy_time_zone_applies_to_python(world: &World) {
    let policy = standard()
        .set("env.set.TZ=UTC-2")
        .python_unless_named(world.python())
        .policy();
    let sandbox = Sandbox::builder().policy(policy).build();
    let sandbox = sandbox.unwrap_or_else(|error| panic!("no sandbox: {error}"));
    let outcome = run(&sandbox, "import time; print(time.timezone)");
    assert_eq!(outcome.stdout(), "-7200\n");
}

fn tasks_with_own_policy_use_the_batch_environment(world: &World) {
    let given = CallerEnvironment::current().changed_by([("SANDFORK_TEST_TOKEN", Some("given"))]);
    let recipe = || standard().python_unless_named(world.python());
    let passes = recipe().set("env.pass=['SANDFORK_TEST_TOKEN']").policy();
    let builder = Sandbox::builder().policy(recipe().policy());
    let sandbox = builder.environment(given).ready(0).build();
    let sandbox = sandbox.unwrap_or_else(|error| panic!("no sandbox: {error}"));
    let code = "import os\nprint(os.environ['SANDFORK_TEST_TOKEN'])";
    let task = Task::new(0, code).policy(Arc::new(passes));
    let mut results = Batch::new(sandbox).map([task]).expect("the batch starts");
    let done = results.next().expect("a result");
    assert_eq!(done.outcome().expect("the task ran").stdout(), "given\n");
}

fn interpreter_name_is_looked_up_on_the_callers_path(world: &World) {
    let programs = tempfile::tempdir().expect("a temporary directory");
    symlink(
        &world.host.interpreter.executable,
        programs.path().join("the-callers-python"),
    )
    .expect("a link");
    let policy = standard().set("python.interpreter=the-callers-python");
    let build = |path: OsString| {
        let environment = CallerEnvironment::default().changed_by([("PATH", Some(path))]);
        let builder = Sandbox::builder().policy(policy.policy());
        builder.environment(environment).build()
    };
    let refused = build("/usr/bin".into()).expect_err("it is not there");
    assert!(
        refused
            .to_string()
            .contains("no `the-callers-python` on PATH"),
        "{refused}"
    );
    let sandbox = build(programs.path().into());
    let sandbox = sandbox.unwrap_or_else(|error| panic!("no sandbox: {error}"));
    let outcome = run(&sandbox, "import sys; print(sys.executable)");
    let python = programs.path().join("the-callers-python");
    assert_eq!(outcome.stdout(), format!("{}\n", python.display()));
}
