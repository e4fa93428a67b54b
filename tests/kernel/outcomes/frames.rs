//! Tests of guests that tamper with their link to the supervisor: a guest can only harm its own run.

use std::time::Duration;

use sandfork::{LimitName, Mechanism, Status};

use crate::check::{ended, fine, limited, shown};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        a_forged_result_does_not_hide_an_exit_code,
        a_forged_result_does_not_hide_a_signal,
        a_forged_result_does_not_stop_the_clock,
        forged_limit_is_ignored,
        forged_value_is_serialized_once,
        violations,
        a_flood_of_valid_frames,
        an_endless_frame,
        a_closed_link_before_exit,
        a_closed_link_with_a_running_guest,
    ]
}

/// Defines functions with which a guest sends frames in the worker's name.
const FORGE: &str = "\
import json, os, struct, sys, time
def send(header, payload=b''):
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    os.write(1023, struct.pack('<II', len(data), len(payload)) + data + payload)
def result(**fields):
    send({'kind': 'result', 'id': 1, 'status': 'ok', **fields})
";

fn forge(world: &World, code: &str) -> sandfork::Outcome {
    world.with_shared(standard(), |sandbox| run(sandbox, format!("{FORGE}{code}")))
}

fn a_forged_result_does_not_hide_an_exit_code(world: &World) {
    let outcome = forge(world, "result(value=42)\nos._exit(5)");
    ended(&outcome, Status::Exit);
    assert_eq!(outcome.exit_code(), 5, "{}", shown(&outcome));
}

fn a_forged_result_does_not_hide_a_signal(world: &World) {
    let outcome = forge(world, "result(value=42)\nos.kill(os.getpid(), 11)");
    ended(&outcome, Status::Signal);
    assert_eq!(outcome.exit_code(), 139);
}

fn a_forged_result_does_not_stop_the_clock(world: &World) {
    let code = format!("{FORGE}result(value=42)\nwhile True: pass");
    let outcome = world.run(standard().set("limits.wall=500ms"), &code);
    limited(&outcome, LimitName::Wall, Mechanism::Deadline);
}

// Fields that a worker must not set are ignored.
fn forged_limit_is_ignored(world: &World) {
    let code = "result(usage={'cpu_ms': -1}, enforced={'level': 'none'}, limit='cpu', stdout='lies')\n\
                os._exit(0)\n";
    let outcome = forge(world, code);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "");
    assert!(outcome.enforced().layers.len() >= 6);
}

// A tree that names one buffer in each of its parts would serialize to gigabytes.
fn forged_value_is_serialized_once(world: &World) {
    let code = "part = b'{\"type\":\"bytes\",\"buffer\":1}'\n\
                tree = b'[' + b','.join([part] * 60000) + b']'\n\
                lengths = [len(tree), 1 << 20]\n\
                payload = tree + bytes(-len(tree) % 64) + bytes(1 << 20)\n\
                value = {'type': 'json', 'buffer': 0}\n\
                send({'kind': 'result', 'id': 1, 'status': 'ok', 'value': value,\n\
                      'blob': {'lengths': lengths}}, payload)\n\
                os._exit(0)\n";
    let outcome = forge(world, code);
    fine(&outcome);
    let written = serde_json::to_string(&outcome).expect("serialization succeeds");
    assert!(written.len() < 20 << 20, "{}", written.len());
}

fn violations(world: &World) {
    for code in [
        "result()\nresult()",
        "os.write(1023, b'\\xff' * 64)",
        "os.write(1023, struct.pack('<II', 0xffffffff, 0))",
        "os.write(1023, struct.pack('<II', 2, 0xffffffff) + b'{}')",
        "send(b'{')",
        "send(b'\\xff\\xfe\\xfd')",
        "send({'kind': 'no-such-kind'})",
        "send({'kind': 'result'})",
        "send({'kind': 'result', 'id': 1, 'status': 'ok'}, b'payload')",
        "send(b'[' * 60000 + b']' * 60000)",
        "send(b'{\"kind\":\"result\",\"id\":1,\"status\":\"ok\",\"value\":' + b'[' * 5000 + b']' * 5000 + b'}')",
        "send({'kind': 'result', 'id': 1, 'status': 'ok', 'value': {'type': 'no-such-type'}})",
        "result(value={'type': 'bytes', 'buffer': 0})",
        "result(blob={'lengths': [9]})",
        // Larger than what the supervisor keeps of a run, or a payload in a file.
        "send({'kind': 'result', 'id': 1, 'status': 'ok', 'blob': {'lengths': [5 << 20]}}, bytes(5 << 20))",
        "result(blob={'lengths': [9], 'passed': True})",
        "send({'kind': 'call', 'id': 1, 'call': 1, 'tool': 'x', 'args': [], 'kwargs': []})",
    ] {
        let outcome = forge(world, &format!("{code}\ntime.sleep(20)"));
        assert_eq!(
            outcome.status(),
            Status::ProtocolViolation,
            "{code}: {}",
            shown(&outcome)
        );
        assert_eq!(outcome.exit_code(), 122);
        assert!(
            outcome.usage().wall < Duration::from_secs(18),
            "{code}: {}",
            shown(&outcome)
        );
    }
}

// The deadline is checked however much there is to read.
fn a_flood_of_valid_frames(world: &World) {
    let code = format!(
        "{FORGE}data = json.dumps({{'kind': 'ready', 'version': 1}}).encode()\n\
         block = (struct.pack('<II', len(data), 0) + data) * 1000\n\
         while True: os.write(1023, block)\n"
    );
    let outcome = world.run(standard().set("limits.wall=1s"), &code);
    assert!(
        matches!(
            outcome.status(),
            Status::Timeout | Status::ProtocolViolation
        ),
        "{}",
        shown(&outcome)
    );
    assert!(
        outcome.usage().wall < Duration::from_secs(25),
        "{}",
        shown(&outcome)
    );
}

fn an_endless_frame(world: &World) {
    let code = format!(
        "{FORGE}os.write(1023, struct.pack('<II', 60000, 0))\n\
         while True: os.write(1023, b' ' * 50000)\n"
    );
    let outcome = world.run(standard(), &code);
    ended(&outcome, Status::ProtocolViolation);
}

fn a_closed_link_before_exit(world: &World) {
    let outcome = forge(world, "print('out')\nos.closerange(3, 1024)");
    ended(&outcome, Status::Exit);
    assert_eq!((outcome.exit_code(), &*outcome.stdout()), (0, "out\n"));
}

fn a_closed_link_with_a_running_guest(world: &World) {
    let outcome = forge(world, "os.closerange(3, 1024)\ntime.sleep(20)");
    ended(&outcome, Status::ProtocolViolation);
    assert!(
        outcome.usage().wall < Duration::from_secs(18),
        "{}",
        shown(&outcome)
    );
}
