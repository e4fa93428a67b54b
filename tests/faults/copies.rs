//! Fails every system call that copies a session, and every one by which a worker restores its state. The result is a
//! sound copy or an error that names the cause. Other sessions continue, and nothing is left behind.

use crate::bench::Bench;
use crate::family::{Call, Role};
use crate::fault::{Act, Fault};
use crate::found::Found;
use crate::scale::Scale;
use crate::set_up;
use crate::subject::Reply;

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
    assert_eq!(bench.ask("open other").reply, Some(Reply::Done));
    let report = bench.ask_with("copies", Fault::at(call, act));
    let mut wrong = Vec::new();
    if let Some(fired) = report.fired {
        found.points += 1;
        match &report.reply {
            reply if Reply::is_plain(reply.as_ref()) => found.sound += 1,
            Some(Reply::Refused { says, .. }) if !says.is_empty() => {
                found.refused += 1;
                found.record_message(says);
            }
            // The guest's own code saw the error.
            Some(Reply::Ran { status, .. }) if status != "ok" => {
                found.refused += 1;
                found.record_message(status);
            }
            reply => wrong.push(format!("the caller got {reply:?}")),
        }
        let place = format!("{fired} {act}");
        wrong = wrong
            .into_iter()
            .map(|how| format!("{place}: {how}"))
            .collect();
    }
    let other = bench.ask("ask other").reply;
    if !Reply::is_plain(other.as_ref()) {
        wrong.push(format!("{call} {act}: another session got {other:?}"));
    }
    bench.ask("close other");
    let next = bench.ask("plain").reply;
    if !Reply::is_plain(next.as_ref()) {
        wrong.push(format!("{call} {act}: the next run: {next:?}"));
        bench.build();
    }
    if let Some(left) = bench.left_over() {
        wrong.push(format!("{call} {act}: leaves {left}"));
    }
    for how in wrong {
        found.record_wrong(how);
    }
}
