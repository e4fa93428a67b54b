//! Tests of consecutive cells in one interpreter.

use std::thread;
use std::time::{Duration, Instant};

use sandfork::Status;
use sandfork::session::{Cell, Contents, ResultMode, SessionState};

use super::{assert_ended, open, run, value};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        variables_imports_and_files_stay,
        output_belongs_to_its_cell,
        output_between_cells_belongs_to_the_next,
        exception_keeps_the_session,
        thread_traceback_quotes_the_cell,
        exit_keeps_the_session,
        usage_is_per_cell,
        background_cpu_time_is_measured,
        last_statement_has_a_value_on_request,
        awaits_at_top_level,
        future_imports_persist,
        a_session_has_no_input,
        rich_values_are_displayed,
        enforced_layers_are_those_verified,
    ]
}

fn variables_imports_and_files_stay(world: &World) {
    let mut session = open(world, standard());
    run(
        &mut session,
        "import os, math\nx = 41\nopen('kept', 'w').write('text')",
    );
    assert_eq!(value(&mut session, "x + 1"), "42");
    assert_eq!(value(&mut session, "math.floor(2.5)"), "2");
    assert_eq!(value(&mut session, "open('kept').read()"), "'text'");
    assert_eq!(value(&mut session, "os.getcwd()"), "'/work'");
}

// As at Python's own prompt.
fn future_imports_persist(world: &World) {
    let mut session = open(world, standard());
    run(&mut session, "from __future__ import annotations");
    run(&mut session, "def f(a: Undefined): pass");
    assert_eq!(
        value(&mut session, "f.__annotations__"),
        "{'a': 'Undefined'}"
    );
}

fn output_belongs_to_its_cell(world: &World) {
    let mut session = open(world, standard());
    for number in 1..20 {
        let code = format!("import sys\nprint({number})\nprint(-{number}, file=sys.stderr)");
        let report = run(&mut session, code);
        assert_eq!(report.outcome().stdout(), format!("{number}\n"));
        assert_eq!(report.outcome().stderr(), format!("-{number}\n"));
    }
}

const PRINTS_LATER: &str = r"
import os, threading, time
def late():
    while not os.path.exists('go'):
        time.sleep(0.01)
    print('between', flush=True)
    open('done', 'w').close()
threading.Thread(target=late).start()
";

fn output_between_cells_belongs_to_the_next(world: &World) {
    let mut session = open(world, standard());
    run(&mut session, PRINTS_LATER);
    let go = session.open_write("go", Contents::Replaced);
    drop(go.expect("the file is created"));
    while session.stat("done").is_err() {
        thread::sleep(Duration::from_millis(10));
    }
    let report = run(&mut session, "print('next')");
    assert_eq!(report.outcome().stdout(), "between\nnext\n");
    assert_eq!(report.outcome().usage().output_bytes, 13);
}

fn exception_keeps_the_session(world: &World) {
    let mut session = open(world, standard());
    run(&mut session, "kept = 1");
    let cell = Cell::new("def fail():\n    raise ValueError('why')\nfail()").filename("<cell 2>");
    let report = run(&mut session, cell);
    assert_ended(&report, Status::Exception, SessionState::Live);
    let error = report.outcome().error().expect("the outcome has an error");
    assert_eq!(
        (error.name.as_str(), error.message.as_str()),
        ("ValueError", "why")
    );
    assert!(
        error.traceback.contains("File \"<cell 2>\", line 3"),
        "{}",
        error.traceback
    );
    assert!(
        error.traceback.contains("raise ValueError('why')"),
        "{}",
        error.traceback
    );
    assert!(!error.traceback.contains("sandfork"), "{}", error.traceback);
    assert_eq!(value(&mut session, "kept"), "1");
}

// The threading module's excepthook prints the traceback. Before Python 3.13 it reads sources only from files.
fn thread_traceback_quotes_the_cell(world: &World) {
    let mut session = open(world, standard());
    let code = "import threading\ndef fail():\n    raise ValueError('why')\n\
        thread = threading.Thread(target=fail, name='own')\nthread.start()\nthread.join()";
    let report = run(&mut session, code);
    let stderr = report.outcome().stderr();
    assert!(
        stderr.starts_with("Exception in thread own:\nTraceback (most recent call last):\n"),
        "{stderr}"
    );
    assert!(stderr.contains("    raise ValueError('why')\n"), "{stderr}");
    assert!(stderr.ends_with("ValueError: why\n"), "{stderr}");
    assert!(!stderr.contains("<sandfork "), "{stderr}");
}

fn exit_keeps_the_session(world: &World) {
    let mut session = open(world, standard());
    let report = run(&mut session, "import sys\nkept = 2\nsys.exit(3)");
    assert_ended(&report, Status::Exit, SessionState::Live);
    assert_eq!(report.outcome().exit_code(), 3);
    assert_eq!(value(&mut session, "kept"), "2");
}

fn usage_is_per_cell(world: &World) {
    let mut session = open(world, standard());
    let busy =
        "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass";
    let busy = run(&mut session, busy);
    let idle = run(&mut session, "1");
    let cpu = |report: &sandfork::session::CellReport| report.outcome().usage().cpu.as_millis();
    // Without a cgroup, CPU time is counted in kernel ticks of 10 ms, which lose some of it.
    assert!(cpu(&busy) >= 200, "{}", cpu(&busy));
    assert!(cpu(&idle) < 150, "{}", cpu(&idle));
    assert!(idle.outcome().usage().wall < busy.outcome().usage().wall);
}

// The usage between cells is measured on request, by the next cell, and at the end of the session.
fn background_cpu_time_is_measured(world: &World) {
    const USED: Duration = Duration::from_millis(500);
    let code = "import threading, time\n\
                def burn():\n\
                \x20   while time.thread_time() < 1: pass\n\
                \x20   open('done', 'w').close()\n\
                threading.Thread(target=burn).start()";
    let mut session = open(world, standard().patient());
    let meter = session.interrupter();
    for turn in 1..=2 {
        let report = run(&mut session, code);
        assert!(
            report.outcome().usage().cpu < USED,
            "the cell only starts it"
        );
        while session.stat("done").is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        if turn == 1 {
            let until = Instant::now() + Duration::from_secs(10);
            while meter.cpu_between_cells() < USED && Instant::now() < until {
                meter.count_cpu();
                thread::sleep(Duration::from_millis(10));
            }
            assert!(meter.cpu_between_cells() >= USED, "{meter:?}");
            let report = run(&mut session, "import os; os.remove('done')");
            let (cell, before) = (report.outcome().usage().cpu, meter.cpu_between_cells());
            assert!(before >= USED, "{before:?}, {cell:?}");
        }
    }
    drop(session);
    assert!(meter.cpu_between_cells() >= 2 * USED, "{meter:?}");
}

fn last_statement_has_a_value_on_request(world: &World) {
    let mut session = open(world, standard());
    let report = run(&mut session, Cell::new("x = 3").last(ResultMode::Statement));
    assert_eq!(report.outcome().value(), Some(&3.into()));
    let report = run(&mut session, "x = 4");
    assert_eq!(report.outcome().value(), None);
}

fn awaits_at_top_level(world: &World) {
    let mut session = open(world, standard());
    run(
        &mut session,
        "import asyncio\nasync def twice(n):\n    await asyncio.sleep(0)\n    return 2 * n",
    );
    assert_eq!(value(&mut session, "await twice(21)"), "42");
}

fn a_session_has_no_input(world: &World) {
    let mut session = open(world, standard());
    let report = run(&mut session, "input()");
    assert_ended(&report, Status::Exception, SessionState::Live);
    let error = report.outcome().error().expect("the outcome has an error");
    assert!(error.message.contains("input"), "{}", error.message);
}

fn rich_values_are_displayed(world: &World) {
    let mut session = open(world, standard());
    let code =
        "class Rich:\n    def _repr_html_(self): return '<b>rich</b>'\ndisplay(Rich())\nRich()";
    let report = run(&mut session, code);
    assert_ended(&report, Status::Ok, SessionState::Live);
    let shown = report.shown();
    assert_eq!(shown.len(), 2);
    assert_eq!((shown[0].is_main(), shown[1].is_main()), (false, true));
    for one in shown {
        assert_eq!(one.data()["text/html"].to_string(), "'<b>rich</b>'");
    }
}

fn enforced_layers_are_those_verified(world: &World) {
    let mut session = open(world, standard());
    let report = run(&mut session, "1");
    assert_eq!(report.outcome().enforced(), session.enforced());
    assert!(!session.enforced().layers.is_empty());
}
