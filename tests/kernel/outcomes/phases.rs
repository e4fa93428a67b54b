//! Tests of the phases into which the time of a run is divided.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        phases_add_up_to_the_run,
        each_jail_step_is_timed,
        a_cell_of_a_session_has_no_phases,
    ]
}

fn phases_add_up_to_the_run(world: &World) {
    let sandbox = world.build(standard());
    run(&sandbox, "1");
    let called = Instant::now();
    let outcome = run(&sandbox, "import time; time.sleep(0.05)");
    let took = called.elapsed();
    let phases = outcome.usage().phases;
    let sum: Duration = phases.each().iter().map(|(_, time)| *time).sum();
    assert!(sum <= took, "{sum:?} of {took:?}");
    assert!(phases.code >= Duration::from_millis(50), "{phases:?}");
    // `exit` and `reap` may take no time: the supervisor may notice the end together with the result.
    for (name, time) in &phases.each()[..5] {
        assert!(!time.is_zero(), "{name} took no time: {phases:?}");
    }
}

fn each_jail_step_is_timed(world: &World) {
    let outcome = run(&world.build(standard()), "1");
    let phases = outcome.usage().phases;
    let sum: Duration = phases.jail_steps.each().iter().map(|(_, time)| *time).sum();
    // The worker may start before the supervisor reads the clock after requesting it.
    let standing = phases.place + phases.fork + phases.jail;
    assert!(sum <= standing, "{sum:?} of {standing:?}: {phases:?}");
    for (name, time) in phases.jail_steps.each() {
        assert!(!time.is_zero(), "{name} took no time: {phases:?}");
    }
    let json = serde_json::to_value(&outcome).expect("an outcome is JSON");
    let phases = &json["usage"]["phases"];
    let whole = |table: &Value| {
        let members = table.as_object().expect("an object");
        members.values().filter(|it| it.is_u64()).count()
    };
    assert_eq!(
        (whole(phases), whole(&phases["jail_steps"])),
        (7, 9),
        "{phases}"
    );
}

fn a_cell_of_a_session_has_no_phases(world: &World) {
    let sandbox = Arc::new(world.build(standard()));
    let mut session = sandbox.session().expect("a session can be had");
    let report = session.run("1").expect("the session is alive");
    let json = serde_json::to_value(report.outcome()).expect("an outcome is JSON");
    assert_eq!(json["usage"].get("phases"), None, "{json}");
}
