//! Functions of the host, called by the guest.

use std::time::Duration;

use sandfork::outcome::Status;
use sandfork::protocol::caller::SessionState;
use sandfork::protocol::{NamedError, Value};
use sandfork::session::ToolArguments;

use super::{assert_ended, open, run, value};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        a_tool_is_called_with_what_the_guest_says,
        an_exception_of_the_host_is_raised_in_the_guest,
        threads_of_the_guest_call_tools,
        the_time_of_a_tool_is_not_the_cells,
        tools_are_there_again_after_a_restart,
        a_call_between_cells_is_refused,
    ]
}

#[allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps)] // as a tool is
fn add(arguments: ToolArguments) -> Result<sandfork::session::Parcel, NamedError> {
    let by_name = arguments.kwargs.get("plus").and_then(Value::as_i64);
    let sum: i64 = arguments.args.iter().filter_map(Value::as_i64).sum();
    Ok((sum + by_name.unwrap_or(0)).into())
}

fn a_tool_is_called_with_what_the_guest_says(world: &World) {
    let mut session = open(world, standard());
    let report = session.tool("add", add).expect("it is defined");
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
    session.tool("fail", fail).expect("it is defined");
    let code = "try:\n    fail()\nexcept ValueError as error:\n    told = str(error)\ntold";
    assert_eq!(value(&mut session, code), "'not that one'");
}

fn threads_of_the_guest_call_tools(world: &World) {
    let mut session = open(world, standard());
    session.tool("add", add).expect("it is defined");
    let code = "from concurrent.futures import ThreadPoolExecutor\n\
                with ThreadPoolExecutor(16) as pool:\n    \
                sums = list(pool.map(lambda n: add(n, n), range(200)))\n\
                sums == [2 * n for n in range(200)]";
    assert_eq!(value(&mut session, code), "True");
}

fn the_time_of_a_tool_is_not_the_cells(world: &World) {
    let mut session = open(world, standard().set("limits.wall=1500ms"));
    let slow = |_: ToolArguments| {
        std::thread::sleep(Duration::from_secs(2));
        Ok(Value::None.into())
    };
    session.tool("slow", slow).expect("it is defined");
    let report = run(&mut session, "slow()");
    assert_ended(&report, Status::Ok, SessionState::Live);
    let report = run(&mut session, "slow()\nimport time\ntime.sleep(60)");
    assert_ended(&report, Status::Timeout, SessionState::Live);
}

fn tools_are_there_again_after_a_restart(world: &World) {
    let mut session = open(world, standard());
    session.tool("add", add).expect("it is defined");
    run(&mut session, "import os; os._exit(1)");
    session.restart().expect("another worker is made");
    assert_eq!(value(&mut session, "add(20, 22)"), "42");
}

fn a_call_between_cells_is_refused(world: &World) {
    let mut session = open(world, standard());
    session.tool("add", add).expect("it is defined");
    let late = "import threading, time\nsaid = []\n\
                def late():\n    time.sleep(0.5)\n    \
                try:\n        said.append(add(1))\n    except RuntimeError as error:\n        said.append(str(error))\n\
                threading.Thread(target=late, daemon=True).start()";
    run(&mut session, late);
    std::thread::sleep(Duration::from_secs(2));
    let told = value(&mut session, "said");
    assert!(told.contains("only while a cell runs"), "{told}");
}
