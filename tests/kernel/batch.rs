//! Tests of batches: many tasks in one sandbox and in several.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sandfork::batch::{Batch, Order, Task};
use sandfork::internals::capacity::DESCRIPTORS_OF_A_RUN;
use sandfork::{GuestPath, Request};
use serde_json::json;

use crate::apart::{self, Part};
use crate::leftovers::traces::wait_until;
use crate::recipe::{standard, strict};
use crate::test::{Test, tests};
use crate::world::World;

pub const PARTS: [Part; 1] = [("batch-descriptors", descriptors)];

pub fn tests() -> Vec<Test> {
    tests![
        every_task_has_its_own_result,
        tasks_of_one_policy_share_a_zygote,
        dropped_batch_ends_running_tasks,
        cancelled_batch_ends_running_tasks,
        invalid_task_is_not_retried,
        run_uses_no_more_descriptors_than_budgeted
    ]
}

fn jobs(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).expect("at least one")
}

fn every_task_has_its_own_result(world: &World) {
    let path = GuestPath::of_file("own").expect("a valid name");
    let tasks = (0..120_i64).map(move |id| {
        let request = Request::python("int(open('own').read()) ** 2");
        Task::new(id, request.file(path.clone(), id.to_string()))
    });
    let batch = Batch::new(world.build(standard()))
        .jobs(jobs(4))
        .order(Order::AsGiven);
    let results = batch.map(tasks).expect("the batch starts");
    for (id, done) in (0..120).zip(results) {
        let result = serde_json::to_value(&done).expect("a result is JSON");
        assert_eq!(
            (&result["id"], &result["value"]),
            (&json!(id), &json!(id * id)),
            "{result}"
        );
        assert_eq!(done.attempts(), 1);
        let outcome = done.outcome().expect("the task ran");
        assert!(done.elapsed() >= outcome.usage().phases.until_result());
    }
}

// Workers of one zygote have the same hash seed.
fn tasks_of_one_policy_share_a_zygote(world: &World) {
    let python =
        |recipe: crate::recipe::Recipe| recipe.python_unless_named(world.python()).policy();
    let other = Arc::new(python(strict()));
    // A different policy object with the same effect.
    let same = Arc::new(python(strict()));
    let tasks = (0..60_i64).map(move |id| {
        let task = Task::new(id, "hash('a')");
        match id % 3 {
            0 => task,
            1 => task.policy(Arc::clone(&other)),
            _ => task.policy(Arc::clone(&same)),
        }
    });
    let batch = Batch::new(world.build(standard())).jobs(jobs(3));
    let mut seeds: HashMap<String, BTreeSet<String>> = HashMap::new();
    for done in batch.map(tasks).expect("the batch starts") {
        let result = serde_json::to_value(&done).expect("a result is JSON");
        let policy = result["policy"]["name"].to_string();
        let value = result["value"].to_string();
        seeds.entry(policy).or_default().insert(value);
    }
    assert_eq!(seeds.len(), 2, "{seeds:?}");
    assert!(seeds.values().all(|values| values.len() == 1), "{seeds:?}");
    let all: BTreeSet<_> = seeds.values().flatten().collect();
    assert_eq!(all.len(), 2, "{seeds:?}");
}

const FOREVER: &str = "while True: pass";

fn dropped_batch_ends_running_tasks(world: &World) {
    let batch = Batch::new(world.build(standard())).jobs(jobs(2));
    let tasks = (0..10_i64).map(|id| Task::new(id, if id == 0 { "1" } else { FOREVER }));
    let mut results = batch.map(tasks).expect("the batch starts");
    results.next().expect("the first ends");
    let asked = Instant::now();
    drop(results);
    assert!(
        asked.elapsed() < Duration::from_secs(25),
        "{:?}",
        asked.elapsed()
    );
}

fn cancelled_batch_ends_running_tasks(world: &World) {
    let sandbox = Arc::new(world.build(standard().patient()));
    let batch = Batch::new(Arc::clone(&sandbox)).jobs(jobs(2));
    let tasks = (0..10_i64).map(|id| Ok::<_, ()>(Task::new(id, FOREVER)));
    let results = batch.try_map(tasks).expect("the batch starts");
    let call_off = results.call_off();
    thread::spawn(move || {
        wait_until(|| sandbox.stats()["running"] == 2);
        call_off.now();
    });
    let statuses: Vec<&str> = results
        .map(|done| done.expect("all tasks are valid"))
        .inspect(|done| assert!(!done.is_finished()))
        .map(|done| done.status())
        .collect();
    assert_eq!(statuses, ["interrupted", "interrupted"]);
}

fn invalid_task_is_not_retried(world: &World) {
    let path = |text| GuestPath::of_file(text).expect("valid names");
    let twice = Request::python("1")
        .file(path("a"), "")
        .file(path("a/b"), "");
    let batch = Batch::new(world.build(standard()));
    let results = batch
        .map([Task::new("twice", twice)])
        .expect("the batch starts");
    let done: Vec<_> = results.collect();
    assert_eq!(
        (done.len(), done[0].status(), done[0].attempts()),
        (1, "refused", 1)
    );
}

fn run_uses_no_more_descriptors_than_budgeted(_: &World) {
    apart::finishes("batch-descriptors");
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Counts descriptors in a separate process, where nothing else opens any.
fn descriptors() {
    const JOBS: usize = 8;
    let world = World::probe().expect("the host can be probed");
    let sandbox = Arc::new(world.build(standard().set("stdio.stdin=pass")));
    let idle = open_descriptors();
    let over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(open_descriptors());
            }
            most
        });
        let path = GuestPath::of_file("a/b").expect("valid names");
        let request = Request::python("import time; time.sleep(0.03)")
            .file(path, "x")
            .stdin_bytes(vec![0; 100_000]);
        let tasks = (0..400_i64).map(move |id| Task::new(id, &request));
        let batch = Batch::new(Arc::clone(&sandbox)).jobs(jobs(JOBS));
        let results = batch.map(tasks).expect("the batch starts");
        assert!(results.into_iter().all(|done| done.status() == "ok"));
        over.store(true, Ordering::Relaxed);
        watching.join().expect("the thread does not panic")
    });
    let of_runs = most - idle;
    assert!(of_runs > JOBS * 8, "only {of_runs} were seen");
    let allowed = JOBS * usize::try_from(DESCRIPTORS_OF_A_RUN).expect("a small number");
    assert!(
        of_runs <= allowed,
        "{of_runs} for {JOBS} runs, more than {allowed}"
    );
    println!("{of_runs} descriptors for {JOBS} runs");
}
