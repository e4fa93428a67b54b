//! Many threads, one sandbox: every outcome belongs to its run.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use sandfork::{Admission, ErrorKind, Request, Sandbox};
use serde_json::json;

use crate::check::{fine, shown};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

const THREADS: usize = 16;
const RUNS: usize = 20;

pub fn tests() -> Vec<Test> {
    tests![outputs_are_not_mixed, an_admission_holds_back_a_crowd]
}

fn outputs_are_not_mixed(world: &World) {
    let sandbox = world.build(standard());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for number in 0..RUNS {
                    let token = format!("{thread}-{number}");
                    let code = format!(
                        "import os, sys\n\
                         assert os.listdir('/work') == os.listdir('/tmp') == []\n\
                         open('/work/mine', 'w').write('{token}')\n\
                         for _ in range(50): print('{token}')\n\
                         print('{token}', file=sys.stderr)\n\
                         open('/work/mine').read()\n"
                    );
                    let outcome = run(sandbox, code);
                    fine(&outcome);
                    assert_eq!(outcome.stdout(), format!("{token}\n").repeat(50));
                    assert_eq!(outcome.stderr(), format!("{token}\n"));
                    let seen = serde_json::to_value(&outcome).expect("an outcome is JSON");
                    assert_eq!(seen["value"], json!(token), "{}", shown(&outcome));
                }
            });
        }
    });
}

/// Prints its start and end times, from a clock that all guests share.
const TIMED: &str = "import time\nbegun = time.monotonic()\ntime.sleep(0.02)\n\
                     print(begun, time.monotonic())";

fn an_admission_holds_back_a_crowd(world: &World) {
    const IN_FLIGHT: usize = 2;
    let two = NonZeroUsize::new(IN_FLIGHT).expect("two is not zero");
    let admission = Admission::new(two, 2);
    let policy = standard().python_unless_named(world.python()).policy();
    let sandbox = Sandbox::builder()
        .policy(policy)
        .admission(&admission)
        .build();
    let sandbox = sandbox.unwrap_or_else(|error| panic!("no sandbox: {error}"));
    let refused = AtomicUsize::new(0);
    let client = |name: String| -> Vec<(f64, f64)> {
        let mut times = Vec::new();
        while times.len() < 5 {
            match sandbox.run(Request::python(TIMED).client(name.as_str())) {
                Ok(outcome) => {
                    fine(&outcome);
                    let printed = outcome.stdout().into_owned();
                    let mut printed = printed.split_whitespace().map(|it| it.parse().unwrap());
                    times.push((printed.next().unwrap(), printed.next().unwrap()));
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                    refused.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(2));
                }
            }
        }
        times
    };
    let times: Vec<(f64, f64)> = thread::scope(|scope| {
        let client = &client;
        let clients = (0..12).map(|number| scope.spawn(move || client(format!("{}", number % 4))));
        let clients: Vec<_> = clients.collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("it only asks"))
            .collect()
    });
    assert_eq!(times.len(), 60);
    let at_once = |moment: f64| {
        times
            .iter()
            .filter(|run| run.0 <= moment && moment < run.1)
            .count()
    };
    let most = times.iter().map(|run| at_once(run.0)).max();
    assert_eq!(most, Some(IN_FLIGHT));
    assert!(refused.into_inner() > 0);
}
