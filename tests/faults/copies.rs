//! Fails every system call that copies a session, and every one by which a worker restores its state. The result is a
//! sound copy or an error that names the cause. Other sessions continue, and nothing is left behind.

use crate::bench::Bench;
use crate::family::{Call, Role};
use crate::fault::{Act, Fault};
use crate::found::Found;
use crate::scale::Scale;
use crate::set_up;
use crate::subject::Went;

/// The roles whose calls fail: the session's thread makes the copy, and the worker restores the state.
pub const ROLES: [Role; 2] = [Role::Attendant, Role::Worker];

/// The number of calls in a sample.
const SAMPLE: usize = 24;

pub fn fail_in_turn(bench: &mut Bench, role: Role, scale: Scale, found: &mut Found) {
    bench.ready();
    let calls = bench.record("copies", role);
    bench.settled();
    found.calls = calls.len();
    let faults: Vec<_> = calls
        .iter()
        .flat_map(|call| set_up::acts(call).into_iter().map(move |act| (*call, act)))
        .collect();
    for (call, act) in scale.of(&faults, SAMPLE, usize::MAX) {
        put(bench, &call, act, found);
    }
}

fn put(bench: &mut Bench, call: &Call, act: Act, found: &mut Found) {
    assert_eq!(bench.ask("open other").went, Some(Went::Well));
    let told = bench.ask_with("copies", Fault::at(call, act));
    let mut wrong = Vec::new();
    if let Some(fired) = told.fired {
        found.points += 1;
        match &told.went {
            went if Went::is_plain(went.as_ref()) => found.sound += 1,
            Some(Went::Refused { says, .. }) if !says.is_empty() => {
                found.refused += 1;
                found.said(says);
            }
            // The guest's own code saw the error.
            Some(Went::Ran { status, .. }) if status != "ok" => {
                found.refused += 1;
                found.said(status);
            }
            went => wrong.push(format!("it was told {went:?}")),
        }
        let place = format!("{fired} {act}");
        wrong = wrong
            .into_iter()
            .map(|how| format!("{place}: {how}"))
            .collect();
    }
    let other = bench.ask("ask other").went;
    if !Went::is_plain(other.as_ref()) {
        wrong.push(format!("{call} {act}: another session was told {other:?}"));
    }
    bench.ask("close other");
    let next = bench.ask("plain").went;
    if !Went::is_plain(next.as_ref()) {
        wrong.push(format!("{call} {act}: the next run: {next:?}"));
        bench.build();
    }
    if let Some(left) = bench.left_over() {
        wrong.push(format!("{call} {act}: leaves {left}"));
    }
    for how in wrong {
        found.is_wrong(how);
    }
}
