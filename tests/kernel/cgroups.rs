//! A worker's cgroup may have had another worker: nothing of that one is seen, charged or waited for.

use std::path::Path;
use std::time::Duration;

use sandfork::Outcome;
use sandfork::host::CgroupSupport;
use sandfork::outcome::Status;

use crate::apart::{self, Part};
use crate::check::{ended, fine, shown};
use crate::leftovers::traces::own_cgroups;
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub const PARTS: [Part; 1] = [("cgroups-kept", kept_alone)];

pub fn tests() -> Vec<Test> {
    tests![
        light_runs_share_few_cgroups,
        processor_time_is_each_runs_own,
        what_a_heavy_run_counted_is_not_the_next_ones,
    ]
    .into_iter()
    .map(|test| test.needs(Need::Cgroup))
    .collect()
}

fn light_runs_share_few_cgroups(_: &World) {
    apart::finishes("cgroups-kept");
}

/// In a process of its own, whose only sandbox this is.
fn kept_alone() {
    let world = World::look().expect("the machine can be looked at");
    let support = &world.host.machine.cgroup;
    let sandbox = world.build(standard());
    for _ in 0..20 {
        fine(&run(&sandbox, "1"));
    }
    let names = made(support);
    let kept = match support {
        // Where the kernel cannot reset the peak of memory there is none to keep.
        CgroupSupport::V2 { .. } => 0..=4,
        _ => 1..=4,
    };
    assert!(
        names.iter().all(|names| kept.contains(&names.len())),
        "{names:?}"
    );
    if let CgroupSupport::V1 { .. } = support {
        // The numbers are in the order in which they were made.
        let numbers = names
            .iter()
            .flatten()
            .filter_map(|name| name[1..].parse::<u64>().ok());
        assert!(numbers.max().is_some_and(|newest| newest < 10), "{names:?}");
    }
    drop(sandbox);
    assert!(own_cgroups(support, std::process::id()).is_empty());
}

/// The names of the workers' cgroups that there are, in each hierarchy.
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

/// Each takes little enough for its cgroup to be kept; all together would be seen.
fn processor_time_is_each_runs_own(world: &World) {
    let sandbox = world.build(standard());
    let code = "import time\nuntil = time.process_time() + 0.01\n\
                while time.process_time() < until: pass";
    let used: Vec<Duration> = (0..20).map(|_| run(&sandbox, code).usage().cpu).collect();
    let (earlier, last) = used.split_at(15);
    let [fewest, later] = [earlier, last].map(|used| used.iter().min().expect("some"));
    assert!(*fewest >= Duration::from_millis(10), "{used:?}");
    // However slow the machine is: what fifteen runs took is not a few times what one took.
    assert!(*later < 8 * *fewest, "{used:?}");
}

fn what_a_heavy_run_counted_is_not_the_next_ones(world: &World) {
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
