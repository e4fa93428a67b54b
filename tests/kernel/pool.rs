//! Tests of the pool of ready workers: each is as fresh as any other, and ends with its sandbox.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandfork::{Cancel, Outcome, Request, Sandbox, Status};

use crate::apart::{self, Part};
use crate::check::{fine, shown};
use crate::leftovers::traces::wait_until;
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::{World, run};

pub const PARTS: [Part; 1] = [("pool-alone", alone)];

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        ready_worker_is_used,
        ready_worker_exists_without_allowed_imports,
        pool_is_refilled_during_a_run,
        ready_workers_are_fresh,
        session_uses_a_ready_worker,
    ];
    tests.extend(needing(
        Need::EveryProcess,
        tests![ready_workers_end_with_their_sandbox],
    ));
    tests
}

fn pooled(world: &World) -> Sandbox {
    let policy = standard().python(world.python()).policy();
    let built = Sandbox::builder().policy(policy).ready(2).build();
    built.unwrap_or_else(|error| panic!("no sandbox: {error}"))
}

/// Returns whether the run's worker had been forked before the run was requested.
fn was_ready(outcome: &Outcome) -> bool {
    outcome.usage().phases.fork.is_zero()
}

/// Runs the code until a ready worker serves it.
fn run_in_ready(sandbox: &Sandbox, code: &str) -> Outcome {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let outcome = run(sandbox, code);
        if was_ready(&outcome) {
            return outcome;
        }
        assert!(
            Instant::now() < until,
            "none stands ready: {}",
            shown(&outcome)
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn ready_worker_is_used(world: &World) {
    let sandbox = pooled(world);
    assert!(!was_ready(&run(&sandbox, "1")), "no run had asked for one");
    let outcome = run_in_ready(&sandbox, "6 * 7");
    fine(&outcome);
    assert_eq!(outcome.value(), Some(&42.into()));
    assert!(!outcome.enforced().layers.is_empty());
    let never = world.build(standard());
    for _ in 0..5 {
        assert!(!was_ready(&run(&never, "1")));
        thread::sleep(Duration::from_millis(20));
    }
}

fn ready_worker_exists_without_allowed_imports(world: &World) {
    let policy = standard().python(world.python()).set("imports.allow=[]");
    let sandbox = Sandbox::builder().policy(policy.policy()).ready(2).build();
    let sandbox = sandbox.expect("a sandbox");
    fine(&run_in_ready(&sandbox, "1"));
    let imports = run_in_ready(&sandbox, "import json");
    assert_eq!(
        imports.error().map(|it| it.name.as_str()),
        Some("ImportError")
    );
}

// The pool is refilled while a run is in progress, not only after it. So a pool of one worker can serve two concurrent
// runs, if the second starts a moment later.
fn pool_is_refilled_during_a_run(world: &World) {
    let policy = standard().python(world.python()).policy();
    let sandbox = Sandbox::builder().policy(policy).ready(1).build();
    let sandbox = sandbox.expect("a sandbox");
    let both_were_ready = || {
        // Lets the pool become idle, so that only this run wakes it.
        thread::sleep(Duration::from_millis(200));
        let cancel = Cancel::new().expect("a descriptor is available");
        let long = Request::python("import time; time.sleep(60)").cancel(&cancel);
        let (long, short) = thread::scope(|scope| {
            let long = scope.spawn(|| run(&sandbox, long));
            thread::sleep(Duration::from_millis(200));
            let short = run(&sandbox, "1");
            cancel.cancel();
            (long.join().expect("the thread does not panic"), short)
        });
        fine(&short);
        assert_eq!(long.status(), Status::Interrupted, "{}", shown(&long));
        was_ready(&long) && was_ready(&short)
    };
    // A busy machine may be late with either worker.
    assert!((0..20).any(|_| both_were_ready()));
}

fn ready_workers_are_fresh(world: &World) {
    let sandbox = pooled(world);
    let code = "import os, random\nseen = os.listdir('/work') + os.listdir('/tmp')\n\
                open('/work/mark', 'w').write('x')\nprint(seen, os.urandom(8).hex(), random.random())";
    let printed: Vec<String> = (0..10)
        .map(|_| run_in_ready(&sandbox, code).stdout().into_owned())
        .collect();
    for (number, one) in printed.iter().enumerate() {
        assert!(one.starts_with("[] "), "{one}");
        assert!(!printed[..number].contains(one), "twins: {one}");
    }
}

fn session_uses_a_ready_worker(world: &World) {
    let sandbox = Arc::new(pooled(world));
    for number in 0..10 {
        let mut session = sandbox.session().expect("a session");
        let report = session.run(format!("x = {number}\nx")).expect("a cell");
        assert_eq!(report.outcome().value(), Some(&i64::from(number).into()));
        thread::sleep(Duration::from_millis(10));
    }
}

fn ready_workers_end_with_their_sandbox(_: &World) {
    apart::finishes("pool-alone");
}

/// Runs in a separate process in which nothing else creates processes and descriptors.
fn alone() {
    let descriptors = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let build = || {
        let builder = Sandbox::builder().policy(standard().policy()).ready(3);
        builder.build().expect("a sandbox")
    };
    // The first sandbox opens what the process keeps.
    drop(build());
    let before = descriptors();
    let sandbox = build();
    let outcome = run_in_ready(&sandbox, "6 * 7");
    fine(&outcome);
    // A ready worker may be killed from outside, for instance by the OOM killer.
    let waiting = || -> Vec<Pid> {
        let below = descendants(std::process::id()).into_iter();
        below.filter(|pid| is_worker(*pid)).collect()
    };
    assert!(wait_until(|| !waiting().is_empty()), "none stands ready");
    // Includes workers that are being made.
    thread::sleep(Duration::from_millis(200));
    let waiting = waiting();
    for worker in &waiting {
        kill(*worker, Signal::SIGKILL).expect("the worker is alive");
    }
    let is_reaped = |pid: &Pid| !is_worker(*pid);
    assert!(wait_until(|| waiting.iter().all(is_reaped)));
    thread::sleep(Duration::from_millis(50));
    fine(&run(&sandbox, "1"));
    let below = descendants(std::process::id());
    assert!(!below.is_empty());
    drop(sandbox);
    assert_eq!(descriptors(), before);
    for pid in below {
        let gone = !std::path::Path::new(&format!("/proc/{pid}")).exists();
        assert!(gone, "{pid} is left");
    }
}

/// Returns all descendants of a process, from `/proc/PID/task/TID/children` (proc(5)).
fn descendants(root: u32) -> Vec<Pid> {
    let (mut found, mut unseen) = (Vec::new(), vec![root.to_string()]);
    while let Some(parent) = unseen.pop() {
        for task in fs::read_dir(format!("/proc/{parent}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_ascii_whitespace() {
                found.push(Pid::from_raw(child.parse().expect("a number")));
                unseen.push(child.to_owned());
            }
        }
    }
    found
}

/// Returns whether the process is a worker: process 2 of a pid namespace two levels down (`NSpid` of proc(5)).
fn is_worker(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let numbers: Vec<&str> = numbers
        .unwrap_or_default()
        .split_ascii_whitespace()
        .collect();
    numbers.len() >= 3 && numbers.last() == Some(&"2")
}
