//! Tests of host functions that the guest calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use sandfork::session::{NamedError, OutgoingValue, Parents, SessionState, ToolArguments};
use sandfork::{Status, Value};

use super::{assert_ended, open, run, value};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        tool_receives_the_guests_arguments,
        an_exception_of_the_host_is_raised_in_the_guest,
        threads_of_the_guest_call_tools,
        tool_time_does_not_count_for_the_cell,
        cell_with_endless_calls_is_ended,
        unread_replies_are_bounded,
        tools_survive_a_restart,
        panicking_tool_does_not_affect_the_next_cell,
        session_restarts_after_a_tool_panic,
        a_call_between_cells_is_refused,
    ]
}

#[allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps)] // as a tool is
fn add(arguments: ToolArguments) -> Result<OutgoingValue, NamedError> {
    let by_name = arguments.kwargs.get("plus").and_then(Value::as_i64);
    let sum: i64 = arguments.args.iter().filter_map(Value::as_i64).sum();
    Ok((sum + by_name.unwrap_or(0)).into())
}

fn tool_receives_the_guests_arguments(world: &World) {
    let mut session = open(world, standard());
    let report = session.tool("add", add).expect("the tool is defined");
    assert_ended(&report, Status::Ok, SessionState::Live);
    assert_eq!(value(&mut session, "add(1, 2, plus=39)"), "42");
    assert_eq!(
        value(
            &mut session,
            "from sandfork_host import add as again\nagain(1)"
        ),
        "1"
    );
    let report = run(
        &mut session,
        "import sandfork_host\nsandfork_host.missing()",
    );
    assert_ended(&report, Status::Exception, SessionState::Live);
}

fn an_exception_of_the_host_is_raised_in_the_guest(world: &World) {
    let mut session = open(world, standard());
    let fail = |_: ToolArguments| Err(NamedError::new("ValueError", "not that one"));
    session.tool("fail", fail).expect("the tool is defined");
    let code = "try:\n    fail()\nexcept ValueError as error:\n    told = str(error)\ntold";
    assert_eq!(value(&mut session, code), "'not that one'");
}

fn threads_of_the_guest_call_tools(world: &World) {
    let mut session = open(world, standard().patient());
    session.tool("add", add).expect("the tool is defined");
    let code = "from concurrent.futures import ThreadPoolExecutor\n\
                with ThreadPoolExecutor(16) as pool:\n    \
                sums = list(pool.map(lambda n: add(n, n), range(200)))\n\
                sums == [2 * n for n in range(200)]";
    assert_eq!(value(&mut session, code), "True");
}

fn tool_time_does_not_count_for_the_cell(world: &World) {
    let mut session = open(world, standard().set("limits.wall=3s"));
    let slow = |_: ToolArguments| {
        thread::sleep(Duration::from_millis(3500));
        Ok(Value::None.into())
    };
    session.tool("slow", slow).expect("the tool is defined");
    let report = run(&mut session, "slow()");
    assert_ended(&report, Status::Ok, SessionState::Live);
    let report = run(&mut session, "slow()\nimport time\ntime.sleep(60)");
    assert_ended(&report, Status::Timeout, SessionState::Live);
}

/// A cell of eight threads that call in turn, so that a call is in progress at every moment.
const CALLED_ALWAYS: &str = "import threading\n\
    def loop():\n    while True: call()\n\
    threads = [threading.Thread(target=loop, daemon=True) for _ in range(8)]\n\
    for thread in threads: thread.start()\n\
    threads[0].join()";

#[allow(clippy::unnecessary_wraps)] // as a tool is
fn brief(_: ToolArguments) -> Result<OutgoingValue, NamedError> {
    thread::sleep(Duration::from_millis(2));
    Ok(Value::None.into())
}

fn cell_with_endless_calls_is_ended(world: &World) {
    let mut session = open(world, standard().set("limits.wall=100ms"));
    session.tool("call", brief).expect("the tool is defined");
    let report = run(&mut session, CALLED_ALWAYS);
    assert_eq!(report.outcome().status(), Status::Timeout);
}

/// Sends calls and reads none of their replies: first until the socket is full of replies, which the guest can
/// detect, and then fewer calls than may wait at once.
const NEVER_READ: &str = r#"
import array, fcntl, json, select, socket, struct, termios
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, 1023)
poll = select.poll()

def wait(events, ms):
    poll.register(link, events)
    return poll.poll(ms)

def call(number, patience):
    header = json.dumps({"kind": "call", "id": 1, "call": number, "tool": "call", "args": ["x" * 8000], "kwargs": {}})
    rest = struct.pack("<II", len(header), 0) + header.encode()
    while rest and wait(select.POLLOUT, patience):
        rest = rest[link.send(rest, socket.MSG_DONTWAIT):]
    return rest

def waiting():
    count = array.array("i", [0])
    fcntl.ioctl(link, termios.FIONREAD, count)
    return count[0]

number, full = 1000, False
while not full:
    before, number = waiting(), number + 1
    call(number, 5000)
    full = not any(waiting() > before or time.sleep(0.01) for _ in range(200))
taken, rest = 0, b""
while taken < 700 and not rest:
    number, taken = number + 1, taken + 1
    rest = call(number, 1500)
    time.sleep(0.002)
while wait(select.POLLIN, 1000):
    link.recv(1 << 16, socket.MSG_DONTWAIT)
link.sendall(rest)
bool(rest)"#;

#[allow(clippy::unnecessary_wraps)] // as a tool is
fn long(_: ToolArguments) -> Result<OutgoingValue, NamedError> {
    Ok(Value::from("x".repeat(30_000)).into())
}

fn unread_replies_are_bounded(world: &World) {
    let mut session = open(world, standard());
    session.tool("call", long).expect("the tool is defined");
    let never_read = format!("import time{NEVER_READ}");
    assert_eq!(value(&mut session, &never_read), "True");
}

fn tools_survive_a_restart(world: &World) {
    let mut session = open(world, standard());
    session.tool("add", add).expect("the tool is defined");
    run(&mut session, "import os; os._exit(1)");
    session.restart().expect("the session restarts");
    assert_eq!(value(&mut session, "add(20, 22)"), "42");
}

fn a_call_between_cells_is_refused(world: &World) {
    let mut session = open(world, standard());
    session.tool("add", add).expect("the tool is defined");
    // No cell runs between the creation of the test's directory and that of the guest's.
    let late = "import os, threading, time\nsaid = []\n\
                def late():\n    while not os.path.exists('now'): time.sleep(0.01)\n    \
                try:\n        said.append(add(1))\n    except RuntimeError as error:\n        said.append(str(error))\n    \
                os.mkdir('called')\n\
                threading.Thread(target=late, daemon=True).start()";
    run(&mut session, late);
    session
        .make_dir("now", Parents::Required)
        .expect("the directory is created");
    let until = Instant::now() + Duration::from_secs(60);
    while session.list("called").is_err() {
        assert!(Instant::now() < until, "it has not called");
        thread::sleep(Duration::from_millis(10));
    }
    let received = value(&mut session, "said");
    assert!(received.contains("only while a cell runs"), "{received}");
}

// The caller catches the panic and continues.
fn panicking_tool_does_not_affect_the_next_cell(world: &World) {
    // The cell's clock stops while it waits for the tool, for up to ten times the limit.
    let mut session = open(world, standard().set("limits.wall=1h"));
    let panics = |_: ToolArguments| panic!("a tool of a test panics");
    session.tool("panics", panics).expect("the tool is defined");
    let left = catch_unwind(AssertUnwindSafe(|| session.run("print('shown')\npanics()")));
    assert!(left.is_err());
    // The session waits until the abandoned cell has ended.
    let report = run(&mut session, "6 * 7");
    assert_eq!(report.outcome().value(), Some(&42.into()));
    assert_eq!(report.outcome().stdout(), "");
}

fn session_restarts_after_a_tool_panic(world: &World) {
    let mut session = open(world, standard().set("limits.wall=1h"));
    let panics = |_: ToolArguments| panic!("a tool of a test panics");
    session.tool("panics", panics).expect("the tool is defined");
    let ignores = "import time\nend = time.monotonic() + 0.3\nwhile time.monotonic() < end:\n    \
                   try:\n        panics()\n    except BaseException:\n        pass";
    let left = catch_unwind(AssertUnwindSafe(|| session.run(ignores)));
    assert!(left.is_err());
    session.restart().expect("the session restarts");
    assert_eq!(value(&mut session, "6 * 7"), "42");
}
