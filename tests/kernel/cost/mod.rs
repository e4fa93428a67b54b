//! Counts what a run costs in system calls, page faults and waits. These do not depend on the machine's speed: a run
//! that needs more of them than before has become slower everywhere.
//!
//! One process makes the runs while another traces it and everything that it forks (ptrace(2)). Waits are counted in
//! a process that is not traced, because a tracer adds waits: the kernel counts voluntary context switches
//! (getrusage(2)).

mod tracer;

use std::io::{self, BufRead, Write};
use std::process::Stdio;

use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{Pid, getpgid, getppid};
use sandfork::Value;
use sandfork::internals::host::CgroupSupport;
use sandfork::internals::supervisor::SandboxProcesses;

use self::tracer::{Counts, Span, Tracer};
use crate::apart::{self, Part};
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, name_of};
use crate::world::{World, run};

/// The most system calls of a run on demand under the default policy, from the call to its return, by calling process,
/// and the most page faults of its worker: about 15 % above the measured counts, to allow for other kernels and
/// interpreters. Lower these with the cost of a run.
const MAX: Counts = Counts {
    supervisor: 104,
    zygote: 41,
    worker: 261,
    faults: 300,
};

/// The same with cgroups of version 2, where each run may need a new cgroup: before Linux 6.12 the memory peak cannot
/// be reset, and on an emulated CPU no run is light enough for its cgroup to be kept. Creating a cgroup, opening its
/// counters and removing it take 26 calls; 133 calls were measured in total.
const MAX_ON_V2: Counts = Counts {
    supervisor: 150,
    ..MAX
};

/// The most page faults if fork eagerly copies the pages that workers write to.
const FAULTS_WITH_EAGER_COPY: usize = 150;

/// What a separate network adds: creating the namespace, bounding its buffers, bringing its interface up, and checking
/// each. Such a namespace is not reused, unlike an empty one.
const OF_LOOPBACK: Counts = Counts {
    supervisor: 18,
    zygote: 0,
    worker: 8,
    faults: 20,
};

/// What `network.mode = "allow"` adds to that: the worker's sockets, their checks, a link and a report. The egress
/// process counts as the zygote.
const OF_HOSTS: Counts = Counts {
    supervisor: 24,
    zygote: 28,
    worker: 8,
    faults: 20,
};

/// The most waits of a run, of the supervisor's threads and of the worker until its program has begun: twice the
/// measured number, because a message may arrive before or after its receiver starts to wait.
const MAX_WAITS: [i64; 2] = [8, 4];

/// The fewest plausible calls: lower counts mean that the tracer has lost a process.
const LEAST: Counts = Counts {
    supervisor: 40,
    zygote: 10,
    worker: 60,
    faults: 5,
};

/// The number of counted runs. The cheapest of them is free of what a busy machine adds, such as another read of the
/// clock.
const RUNS: usize = 10;

/// The number of calls that the counter is checked with.
const KNOWN: usize = 100;

pub const PARTS: [Part; 3] = [
    ("cost-runs", runs),
    ("cost-tracer", trace),
    ("cost-waits", wait),
];

pub fn tests() -> Vec<Test> {
    let name = name_of(module_path!(), "run_stays_within_its_call_and_fault_budget");
    let counted = Test::new(name, |_| apart::finishes("cost-tracer")).needs(Need::X86_64);
    let name = name_of(module_path!(), "run_stays_within_its_wait_budget");
    vec![counted, Test::new(name, |_| apart::finishes("cost-waits"))]
}

/// Process ids that do not exist, in calls by which the traced process marks the beginning and end of a span.
#[derive(Clone, Copy)]
enum Mark {
    Begin = 0x3ade_0001,
    End = 0x3ade_0002,
}

fn mark(mark: Mark) {
    _ = getpgid(Some(Pid::from_raw(mark as i32)));
}

/// The traced process: makes a known number of calls, then runs in a warm sandbox.
fn runs() {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.expect("the tracer says when it is there");
    mark(Mark::Begin);
    for _ in 0..KNOWN {
        _ = getppid();
    }
    mark(Mark::End);
    let world = World::probe().expect("the host can be probed");
    for mode in ["none", "loopback", "allow"] {
        let sandbox = world.build(standard().set(format!("network.mode={mode}")));
        for _ in 0..3 {
            run(&sandbox, "1");
        }
        match sandbox.copied_at_fork() {
            Some(Ok(_)) => println!("at once"),
            // The kernel lacks or forbids io_uring, or this user's other zygotes have used up RLIMIT_MEMLOCK.
            Some(Err(Errno::ENOMEM | Errno::EPERM | Errno::ENOSYS)) => println!("one by one"),
            other => panic!("no pages are copied at a fork: {other:?}"),
        }
        for _ in 0..RUNS {
            mark(Mark::Begin);
            run(&sandbox, "1");
            mark(Mark::End);
        }
    }
}

fn trace() {
    let mut child = apart::command("cost-runs")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the process starts");
    let mut tracer = Tracer::seize(Pid::from_raw(child.id().cast_signed()));
    let mut stdin = child.stdin.take().expect("the stream is piped");
    writeln!(stdin, "go").expect("the server listens");
    let spans = tracer.follow();
    let stdout = child.stdout.take().expect("the stream is piped");
    let copied = io::read_to_string(stdout).expect("it says how pages are copied");
    // The tracer has already reaped the process; this only releases the handle.
    _ = child.wait();
    let [known, runs @ ..] = &spans[..] else {
        panic!("nothing was marked");
    };
    assert_eq!(known.counts.supervisor, KNOWN, "the counter does not count");
    assert_eq!(runs.len(), 3 * RUNS);
    let (alone, with_network) = runs.split_at(RUNS);
    let (with_network, with_hosts) = with_network.split_at(RUNS);
    let most = match World::probe()
        .expect("the host can be probed")
        .host
        .machine
        .cgroup
    {
        CgroupSupport::V2 { .. } => MAX_ON_V2,
        _ => MAX,
    };
    let [alone_copied, network_copied, hosts_copied] = copied.lines().collect::<Vec<_>>()[..]
    else {
        panic!("it said {copied}");
    };
    let most = |copied| match copied {
        "at once" => Counts {
            faults: FAULTS_WITH_EAGER_COPY,
            ..most
        },
        _ => most,
    };
    check(alone, most(alone_copied));
    check(with_network, most(network_copied).plus(OF_LOOPBACK));
    let of_hosts = most(hosts_copied).plus(OF_LOOPBACK).plus(OF_HOSTS);
    check(with_hosts, of_hosts);
}

/// Counts the waits of runs in this process, which is otherwise idle, and in their workers.
fn wait() {
    const COUNT: &str = "import resource\nresource.getrusage(resource.RUSAGE_SELF).ru_nvcsw";
    let world = World::probe().expect("the host can be probed");
    let sandbox = world.build(standard());
    let count = || {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the kernel counts");
        usage.voluntary_context_switches()
    };
    let mut least = [i64::MAX; 2];
    for _ in 0..RUNS {
        let before = count();
        let outcome = run(&sandbox, COUNT);
        let worker = outcome.value().and_then(Value::as_i64);
        let waits = [count() - before, worker.expect("the worker counts")];
        println!("{waits:?}");
        least = std::array::from_fn(|who| least[who].min(waits[who]));
    }
    assert!(
        least[0] > 0,
        "a run ends without a wait: nothing is counted"
    );
    let is_within = least
        .iter()
        .zip(MAX_WAITS)
        .all(|(waits, most)| *waits <= most);
    assert!(is_within, "{least:?} waits are more than {MAX_WAITS:?}");
}

fn check(runs: &[Span], most: Counts) {
    let counts = runs.iter().map(|span| span.counts);
    let cheapest = counts.reduce(Counts::least).expect("at least one run");
    for span in runs {
        println!("{:?}", span.counts);
    }
    assert!(
        cheapest.is_within(&LEAST, &most),
        "{cheapest:?} is not between {LEAST:?} and {most:?}; the last run:\n{}",
        runs[runs.len() - 1]
    );
}
