//! Tests of cgroup reuse: a worker never sees, pays for or waits for a previous worker of its cgroup.

use std::path::Path;
use std::time::Duration;

use sandfork::internals::host::CgroupSupport;
use sandfork::{ErrorKind, Outcome, Request, Status};

use crate::apart::{self, Part};
use crate::check::{ended, fine, shown};
use crate::leftovers::traces::{own_cgroups, wait_until};
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::{World, run};

pub const PARTS: [Part; 2] = [
    ("cgroups-kept", light_runs_keep_cgroups),
    ("cgroups-loosened", loosened_alone),
];

pub fn tests() -> Vec<Test> {
    needing(
        Need::Cgroup,
        tests![
            light_runs_share_few_cgroups,
            loosened_limit_is_detected_before_the_next_run,
            cpu_time_is_counted_per_run,
            cgroup_of_a_heavy_run_is_not_reused,
            negative_dentries_do_not_outlive_their_run,
        ],
    )
}

fn light_runs_share_few_cgroups(_: &World) {
    apart::finishes("cgroups-kept");
}

/// The CPU time below which a run's cgroup is kept for another run.
const LIGHT: Duration = Duration::from_millis(25);

/// Runs in a separate process in which this is the only sandbox.
fn light_runs_keep_cgroups() {
    let world = World::probe().expect("the host can be probed");
    let support = &world.host.machine.cgroup;
    let sandbox = world.build(standard());
    let runs: Vec<Outcome> = (0..20).map(|_| run(&sandbox, "1")).collect();
    runs.iter().for_each(fine);
    // On an emulated CPU, it can happen that no run is light enough.
    let are_light = runs.iter().all(|run| run.usage().cpu < LIGHT);
    let names = made(support);
    let kept = match support {
        CgroupSupport::V1(_) if are_light => 1..=4,
        // If the kernel cannot reset the memory peak, no cgroup is kept.
        _ => 0..=4,
    };
    assert!(
        names.iter().all(|names| kept.contains(&names.len())),
        "{names:?}"
    );
    if let CgroupSupport::V1(_) = support
        && are_light
    {
        // Cgroups are numbered in the order of their creation.
        let numbers = names
            .iter()
            .flatten()
            .filter_map(|name| name[1..].parse::<u64>().ok());
        assert!(numbers.max().is_some_and(|newest| newest < 10), "{names:?}");
    }
    drop(sandbox);
    assert!(own_cgroups(support, std::process::id()).is_empty());
}

fn loosened_limit_is_detected_before_the_next_run(_: &World) {
    apart::finishes("cgroups-loosened");
}

fn loosened_alone() {
    let world = World::probe().expect("the host can be probed");
    let support = &world.host.machine.cgroup;
    let sandbox = world.build(standard());
    let first = run(&sandbox, "1");
    fine(&first);
    // Under version 2 none may be kept; on an emulated CPU every run may be heavy.
    let is_kept = matches!(support, CgroupSupport::V1(_)) && first.usage().cpu < LIGHT;
    // Includes cgroups of idle workers in the pool, which were verified before.
    let mut loosened = 0;
    for root in own_cgroups(support, std::process::id()) {
        for name in below(&root) {
            let written = std::fs::write(root.join(name).join("pids.max"), "max");
            loosened += usize::from(written.is_ok());
        }
    }
    assert!(loosened > 0 || !is_kept);
    let mut runs = (0..2 * loosened).map(|_| sandbox.run(Request::python("1")));
    if let Some(error) = runs.find_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::NotEnforced);
        assert!(error.to_string().contains("pids.max max"), "{error}");
    } else {
        assert!(!is_kept);
    }
    // A cgroup that failed the check is not kept.
    (0..2 * loosened).for_each(|_| fine(&run(&sandbox, "1")));
}

/// Returns the names of the existing worker cgroups, by hierarchy.
fn made(support: &CgroupSupport) -> Vec<Vec<String>> {
    let roots = own_cgroups(support, std::process::id());
    assert!(!roots.is_empty());
    roots.iter().map(|root| below(root)).collect()
}

fn below(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).expect("it can be listed").flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

// Each run is light enough for its cgroup to be kept; their accumulated CPU time would be noticed.
fn cpu_time_is_counted_per_run(world: &World) {
    let sandbox = world.build(standard());
    let code = "import time\nuntil = time.process_time() + 0.01\n\
                while time.process_time() < until: pass";
    let used: Vec<Duration> = (0..20).map(|_| run(&sandbox, code).usage().cpu).collect();
    let (earlier, last) = used.split_at(15);
    let [fewest, later] = [earlier, last].map(|used| used.iter().min().expect("some"));
    assert!(*fewest >= Duration::from_millis(10), "{used:?}");
    // Holds on a slow machine too: fifteen runs together take far more than a few times one run.
    assert!(*later < 8 * *fewest, "{used:?}");
}

fn cgroup_of_a_heavy_run_is_not_reused(world: &World) {
    let heavy = [
        ("kept = bytearray(100 << 20)", Status::Ok),
        (
            "import subprocess\nfor _ in [1, 2]: subprocess.run(['true'], check=True)",
            Status::Ok,
        ),
        (
            "import time\nuntil = time.process_time() + 0.3\n\
             while time.process_time() < until: pass",
            Status::Ok,
        ),
        (
            "import os, time\nfor _ in range(200):\n if os.fork() == 0: time.sleep(60)",
            Status::PidsLimit,
        ),
        ("open('/tmp/x', 'wb').write(bytes(30 << 20))", Status::Ok),
    ];
    let sandbox = world.build(standard());
    for (code, status) in heavy {
        let heavy = run(&sandbox, code);
        ended(&heavy, status);
        let light = [(); 3].map(|()| run(&sandbox, "1"));
        light.iter().for_each(unburdened);
        let least = light.iter().map(|outcome| outcome.usage().cpu).min();
        assert!(least < Some(heavy.usage().cpu), "{}", shown(&light[0]));
    }
}

#[track_caller]
fn unburdened(outcome: &Outcome) {
    fine(outcome);
    let usage = outcome.usage();
    let shown = shown(outcome);
    assert!(usage.peak_pids.is_none_or(|peak| peak == 1), "{shown}");
    let small = |peak| (1..20 << 20).contains(&peak);
    assert!(usage.peak_memory_bytes.is_none_or(small), "{shown}");
}

// Each failed lookup leaves a negative dentry in a hash table of the host, which slows all of its lookups.
fn negative_dentries_do_not_outlive_their_run(world: &World) {
    const NAMES: u64 = 40_000;
    let sandbox = world.build(standard().patient());
    fine(&run(&sandbox, "1"));
    // The kernel counts negative dentries of the whole host, including those of concurrent tests. Each attempt uses new
    // names, because existing entries would not be counted again.
    let mut left = Vec::new();
    let are_gone = (0..3).any(|time| {
        let before = negative_dentries();
        let code = format!(
            "import os\nfor name in range({NAMES}):\n    \
             try: os.stat(f'/usr/lib/sandfork-{time}-{{name}}')\n    \
             except FileNotFoundError: pass"
        );
        fine(&run(&sandbox, code.as_str()));
        let now_left = || negative_dentries().saturating_sub(before);
        let are_gone = wait_until(|| now_left() < NAMES / 2);
        left.push(now_left());
        are_gone
    });
    assert!(are_gone, "{left:?} are left");
}

/// Returns the fifth field of `dentry-state` (proc_sys_fs(5)).
fn negative_dentries() -> u64 {
    let state = std::fs::read_to_string("/proc/sys/fs/dentry-state").expect("the file is readable");
    let negative = state.split_whitespace().nth(4).expect("five fields");
    negative.parse().expect("a number")
}
