//! Tests of values in both directions, small and large.

use sandfork::session::{Attachments, Buffers, OutgoingValue, SessionState, ToolArguments};
use sandfork::{ErrorKind, Outcome, Status, Value};

use super::{assert_ended, open, run, value};
use crate::need::Need;
use crate::recipe::{data_science, standard};
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        short_values_cross_both_ways,
        long_bytes_cross_both_ways,
        unsupported_value_is_shown_as_text,
        failed_descriptor_passing_is_reported,
        oversized_value_is_reported_with_a_remedy,
        deep_value_is_rejected_and_the_session_survives,
        cell_json_includes_buffers,
    ];
    let arrays = tests![arrays_come_out_with_their_type];
    tests.extend(needing(Need::Packages, arrays));
    tests
}

fn short_values_cross_both_ways(world: &World) {
    let mut session = open(world, standard());
    let list: Vec<Value> = vec![1.into(), "two".into(), 3.5.into(), Value::None, true.into()];
    let report = session
        .set("given", Value::from(list.clone()))
        .expect("the variable is set");
    assert_ended(&report, Status::Ok, SessionState::Live);
    assert_eq!(
        value(&mut session, "given == [1, 'two', 3.5, None, True]"),
        "True"
    );
    let report = run(&mut session, "given");
    assert_eq!(
        report.outcome().value().and_then(Value::as_list),
        Some(list.as_slice())
    );
    assert_eq!(
        value(&mut session, "{'a': (1, {2}), 3: b'x'}"),
        "{'a': (1, {2}), 3: <bytes>}"
    );
}

fn oversized_value_is_reported_with_a_remedy(world: &World) {
    let mut session = open(world, standard());
    let long = || "x".repeat(3 << 20);
    let refused = session.set("given", long()).expect_err("it is too long");
    let refused = refused.to_string();
    assert!(refused.contains("`Attachments::text`"), "{refused}");
    let refused = session.run(" ".repeat(17 << 20)).expect_err("it is longer");
    let refused = refused.to_string();
    assert!(
        refused.starts_with("the source is too large: "),
        "{refused}"
    );
    let answers = move |_: ToolArguments| Ok(long().into());
    session.tool("long", answers).expect("the tool is defined");
    let received = value(
        &mut session,
        "try:\n    long()\nexcept ValueError as error:\n    told = str(error)\ntold",
    );
    assert!(received.contains("`Attachments::text`"), "{received}");
}

fn long_bytes_cross_both_ways(world: &World) {
    let mut session = open(world, standard());
    for length in [10, 100_000, 20_000_000] {
        let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
        let mut attachments = Attachments::default();
        let parcel = OutgoingValue {
            value: attachments.bytes(bytes.clone()),
            attachments,
        };
        let report = session.set("given", parcel).expect("the variable is set");
        assert_ended(&report, Status::Ok, SessionState::Live);
        let report = run(&mut session, "bytes(given)[::-1]");
        assert_ended(&report, Status::Ok, SessionState::Live);
        let value = report.outcome().value().expect("the cell has a value");
        let buffers = report.buffers();
        let mut back = value.bytes(&buffers).expect("bytes").to_vec();
        back.reverse();
        assert!(back == bytes, "{length} bytes are not the same");
    }
}

fn arrays_come_out_with_their_type(world: &World) {
    let mut session = open(world, data_science());
    let report = run(
        &mut session,
        "import numpy\nnumpy.arange(100000, dtype='f8').reshape(100, 1000)",
    );
    assert_ended(&report, Status::Ok, SessionState::Live);
    let value = report.outcome().value().expect("the cell has a value");
    assert_eq!(value.ndarray(&Buffers::default()), None);
    let buffers = report.buffers();
    let array = value.ndarray(&buffers).expect("an array");
    assert_eq!(array.shape, [100, 1000]);
    assert_eq!(array.bytes[8..16], 1.0f64.to_le_bytes());
}

fn unsupported_value_is_shown_as_text(world: &World) {
    let mut session = open(world, standard());
    let code = "class Odd:\n    def __repr__(self): raise RuntimeError('no')\n[1, Odd(), object]";
    let shown = value(&mut session, code);
    assert!(shown.starts_with("[1, "), "{shown}");
    let cyclic = "loop = []\nloop.append(loop)\nloop";
    assert!(value(&mut session, cyclic).starts_with('['));
}

/// The kernel counts descriptors in flight by user, so for all tenants together: a tenant that has many in flight must
/// not end the sessions of the others. Here the guest itself has them.
const UNDER_WAY: &str = "
import array, socket
pairs = []
try:
    while True:
        pairs.append(socket.socketpair())
        few = array.array('i', [1] * 100)
        pairs[-1][0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, few)])
except OSError as error:
    print(error.errno)
";

fn failed_descriptor_passing_is_reported(world: &World) {
    let mut session = open(world, standard());
    let report = run(&mut session, UNDER_WAY);
    assert_eq!(
        report.outcome().stdout(),
        format!("{}\n", libc::ETOOMANYREFS)
    );
    let report = run(&mut session, "bytes(1_000_000)");
    assert_ended(&report, Status::Ok, SessionState::Live);
    let shown = report.outcome().value().map(ToString::to_string);
    let shown = shown.unwrap_or_default();
    assert!(shown.contains("not passed"), "{shown}");
    let report = run(&mut session, "pairs.clear()\nlen(bytes(1_000_000))");
    assert_eq!(report.outcome().value(), Some(&Value::from(1_000_000)));
}

fn deep_value_is_rejected_and_the_session_survives(world: &World) {
    let nested = |levels: u32| (0..levels).fold(Value::None, |inner, _| Value::List(vec![inner]));
    let mut session = open(world, standard());
    let report = session.set("few", nested(90)).expect("the variable is set");
    assert_ended(&report, Status::Ok, SessionState::Live);
    for levels in [1000, 50_000] {
        let refused = session.set("many", nested(levels));
        let refused = refused.expect_err("it is too deep");
        assert_eq!(refused.kind(), ErrorKind::Request, "{refused}");
    }
    let deep = move |_: ToolArguments| Ok(nested(50_000).into());
    let report = session.tool("deep", deep).expect("the tool is declared");
    assert_ended(&report, Status::Ok, SessionState::Live);
    let report = run(&mut session, "deep()");
    assert_ended(&report, Status::Exception, SessionState::Live);
    let error = report.outcome().error().expect("the outcome has an error");
    assert_eq!(error.name, "ValueError", "{}", error.message);
}

fn cell_json_includes_buffers(world: &World) {
    let code = "list(range(10_000)), b'abc' * 5, 'x' * 100_000, [{'n': n} for n in range(3000)]";
    let mut session = open(world, standard());
    let json = |outcome: &Outcome| serde_json::to_value(outcome).expect("valid JSON");
    let of_run = json(&world.run(standard(), code));
    let of_cell = json(run(&mut session, code).outcome());
    assert!(of_run["value"]["items"].is_array(), "{}", of_run["value"]);
    assert!(of_cell["value"] == of_run["value"], "they differ");
    // The value is sent in a file.
    let of_cell = json(run(&mut session, "'x' * 5_000_000").outcome());
    let text = of_cell["value"].as_str().map(str::len);
    assert_eq!(text, Some(5_000_000));
}
