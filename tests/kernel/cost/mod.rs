//! What a run costs in system calls, page faults and waits, which no machine's speed changes: a run that needs more of
//! them than it did has become slower everywhere.
//!
//! A process of its own makes runs while another traces it, with all that it forks (ptrace(2)). Another makes runs that
//! nothing traces, because a tracer adds waits: the kernel counts those as voluntary context switches (getrusage(2)).

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

/// The most system calls of a run on demand under the default policy, from the call to its return, by who makes
/// them, and the most page faults of its worker: about 15 % more than were counted, for other kernels and interpreters. To be lowered with
/// what a run costs.
const MOST: Counts = Counts {
    supervisor: 104,
    zygote: 41,
    worker: 261,
    faults: 300,
};

/// The same on cgroups of version 2, of which each run may have a new one: before Linux 6.12 a peak of memory
/// cannot be reset, and on an emulated processor no run is light enough for its cgroup to be kept. Making
/// one, opening what it counts and removing it are 26 calls; 133 were counted in all.
const MOST_ON_V2: Counts = Counts {
    supervisor: 150,
    ..MOST
};

/// The most page faults where a fork copies at once what workers write to.
const FAULTS_WITH_EAGER_COPY: usize = 150;

/// What a network of its own adds: making the namespace, bounding its buffers and bringing its interface up, with
/// checks of each. It is not lent, as an empty one is.
const OF_LOOPBACK: Counts = Counts {
    supervisor: 18,
    zygote: 0,
    worker: 8,
    faults: 20,
};

/// What hosts add to that: the worker's sockets, checks of them, a link and a report. The egress process counts with
/// the zygote.
const OF_HOSTS: Counts = Counts {
    supervisor: 24,
    zygote: 28,
    worker: 8,
    faults: 20,
};

/// The most waits of a run, of the supervisor's threads and of the worker until its program has begun: twice what was
/// counted, because a message may or may not be there before it is waited for.
const MOST_WAITS: [i64; 2] = [8, 4];

/// Fewer calls mean that the counter has lost a process.
const LEAST: Counts = Counts {
    supervisor: 40,
    zygote: 10,
    worker: 60,
    faults: 5,
};

/// How many runs are counted. What a busy machine adds, such as one more look at a clock, is not in the
/// cheapest of them.
const RUNS: usize = 10;

/// What the counter is tried with.
const KNOWN: usize = 100;

pub const PARTS: [Part; 3] = [
    ("cost-runs", runs),
    ("cost-tracer", trace),
    ("cost-waits", wait),
];

pub fn tests() -> Vec<Test> {
    let name = name_of(
        module_path!(),
        "a_run_takes_no_more_calls_and_faults_than_it_did",
    );
    let counted = Test::new(name, |_| apart::finishes("cost-tracer")).needs(Need::X86_64);
    let name = name_of(module_path!(), "a_run_waits_no_more_often_than_it_did");
    vec![counted, Test::new(name, |_| apart::finishes("cost-waits"))]
}

/// Processes that there are not, by which the one that is traced marks a beginning and an end.
#[derive(Clone, Copy)]
enum Mark {
    Begin = 0x3ade_0001,
    End = 0x3ade_0002,
}

fn mark(mark: Mark) {
    _ = getpgid(Some(Pid::from_raw(mark as i32)));
}

/// What is traced: a known number of calls, and then runs in a warm sandbox.
fn runs() {
    let mut line = String::new();
    let told = io::stdin().lock().read_line(&mut line);
    told.expect("the tracer says when it is there");
    mark(Mark::Begin);
    for _ in 0..KNOWN {
        _ = getppid();
    }
    mark(Mark::End);
    let world = World::look().expect("the machine can be looked at");
    for mode in ["none", "loopback", "allow"] {
        let sandbox = world.build(standard().set(format!("network.mode={mode}")));
        for _ in 0..3 {
            run(&sandbox, "1");
        }
        match sandbox.copied_at_fork() {
            Some(Ok(_)) => println!("at once"),
            // The kernel refuses it, or this user's other zygotes have pinned all that it may pin.
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
        .expect("it can be started again");
    let mut tracer = Tracer::seize(Pid::from_raw(child.id().cast_signed()));
    let mut stdin = child.stdin.take().expect("it is a pipe");
    writeln!(stdin, "go").expect("it listens");
    let spans = tracer.follow();
    let stdout = child.stdout.take().expect("it is a pipe");
    let copied = io::read_to_string(stdout).expect("it says how pages are copied");
    // The tracer has waited for it; this closes what is left of it here.
    _ = child.wait();
    let [known, runs @ ..] = &spans[..] else {
        panic!("nothing was marked");
    };
    assert_eq!(known.counts.supervisor, KNOWN, "the counter does not count");
    assert_eq!(runs.len(), 3 * RUNS);
    let (alone, with_network) = runs.split_at(RUNS);
    let (with_network, with_hosts) = with_network.split_at(RUNS);
    let most = match World::look().expect("it was looked at").host.machine.cgroup {
        CgroupSupport::V2 { .. } => MOST_ON_V2,
        _ => MOST,
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

/// Counts the waits of runs in this process, which does nothing else, and in their workers.
fn wait() {
    const COUNT: &str = "import resource\nresource.getrusage(resource.RUSAGE_SELF).ru_nvcsw";
    let world = World::look().expect("the machine can be looked at");
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
        .zip(MOST_WAITS)
        .all(|(waits, most)| *waits <= most);
    assert!(is_within, "{least:?} waits are more than {MOST_WAITS:?}");
}

fn check(runs: &[Span], most: Counts) {
    let counts = runs.iter().map(|span| span.counts);
    let cheapest = counts.reduce(Counts::least).expect("there were runs");
    for span in runs {
        println!("{:?}", span.counts);
    }
    assert!(
        cheapest.is_within(&LEAST, &most),
        "{cheapest:?} is not between {LEAST:?} and {most:?}; the last run:\n{}",
        runs[runs.len() - 1]
    );
}
