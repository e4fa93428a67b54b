//! Tests that a killed supervisor takes all its processes with it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, fork, sleep};
use sandfork::{OutputSink, Request};
use sandfork_jail::sys::process::exit_now;

use super::traces::{Traces, children, own_cgroups, wait_until};
use crate::apart;
use crate::guests;
use crate::recipe::standard;
use crate::world::{World, run};

pub fn killed_supervisor(_: &World) {
    apart::finishes("killed-supervisor");
}

pub fn killed_supervisor_that_had_forked(_: &World) {
    apart::finishes("killed-supervisor-that-had-forked");
}

/// Runs in a separate process, which reaps the orphans of the killed supervisor like an init.
pub fn part() {
    ends_with("supervisor-to-be-killed");
}

/// The same for a supervisor with a surviving child that holds copies of all its descriptors.
pub fn forked_part() {
    ends_with("forking-supervisor-to-be-killed");
}

fn ends_with(name: &str) {
    nix::sys::prctl::set_child_subreaper(true).expect("any process can be a subreaper");
    let world = World::probe().expect("the host can be probed");
    let cgroups = &world.host.machine.cgroup;
    let mut supervisor = start(name);
    let pid = supervisor.id();
    let mut family = descendants(pid);
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let is_forked = |process: &Process| program(process.pid) == program(pid);
    let forked: Vec<_> = family
        .extract_if(.., |process| is_forked(process))
        .collect();
    // The waiting parent, the zygote's init, the zygote, two processes for each run, and a daemon.
    assert!(family.len() > 3 + 2 * GUESTS, "{family:?}");
    let made = own_cgroups(cgroups, pid);
    supervisor.kill().expect("the child has not been reaped");
    supervisor.wait().expect("the child has not been reaped");
    let survivors = || {
        while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
            waitpid(None, Some(WaitPidFlag::WNOHANG))
        {}
        family
            .iter()
            .filter_map(Process::survivor)
            .collect::<Vec<_>>()
    };
    assert!(wait_until(|| survivors().is_empty()), "{:#?}", survivors());
    for process in forked {
        assert!(process.survivor().is_some(), "it outlives its parent");
        let pid = Pid::from_raw(process.pid.cast_signed());
        kill(pid, Signal::SIGKILL).expect("the child has not been reaped");
    }
    Traces::no_processes();
    // Only the killed supervisor could have removed its cgroups. The next one does; it may belong to another test.
    assert!(made.is_superset(&own_cgroups(cgroups, pid)), "{made:?}");
    apart::finishes("next-supervisor");
    assert_eq!(own_cgroups(cgroups, pid), BTreeSet::new());
}

/// Starts a supervisor and waits until its runs have begun.
fn start(name: &str) -> Child {
    let mut command = apart::command(name);
    let mut supervisor = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("the process starts");
    let stdout = supervisor.stdout.take().expect("the stream is piped");
    let mut output_lines = BufReader::new(stdout).lines();
    for _ in 0..GUESTS {
        assert_eq!(
            output_lines.next().and_then(Result::ok).as_deref(),
            Some("on")
        );
    }
    supervisor
}

const GUESTS: usize = 3;

/// In seconds.
const LONGER_THAN_THE_TEST: u32 = 100;

/// Runs guests, each of which prints `on` once it has begun.
pub fn supervisor() {
    supervises(|| {});
}

/// The same, after a fork.
pub fn forking_supervisor() {
    supervises(|| {
        // SAFETY: the child only makes system calls.
        #[allow(unsafe_code, reason = "no program is executed")]
        if unsafe { fork() }.expect("fork succeeds").is_child() {
            sleep(LONGER_THAN_THE_TEST);
            exit_now(0);
        }
    });
}

fn supervises(first: impl FnOnce()) {
    struct PassOn;
    impl OutputSink for PassOn {
        fn stdout(&mut self, bytes: &[u8]) {
            let mut stdout = std::io::stdout().lock();
            stdout
                .write_all(bytes)
                .and_then(|()| stdout.flush())
                .expect("the test reads");
        }
        fn stderr(&mut self, _: &[u8]) {}
    }
    let world = World::probe().expect("the host can be probed");
    let sandbox = world.build(standard());
    first();
    let waits = "import time\nprint('on', flush=True)\ntime.sleep(600)";
    let busy = "print('on', flush=True)\nwhile True: pass".to_owned();
    let daemon = format!("{}\n{waits}", guests::code(11));
    thread::scope(|scope| {
        for code in [waits.to_owned(), busy, daemon] {
            let sandbox = &sandbox;
            scope.spawn(move || sandbox.run_streaming(Request::python(code), &mut PassOn));
        }
    });
}

/// Does what any supervisor does.
pub fn next_supervisor() {
    let world = World::probe().expect("the host can be probed");
    run(&world.build(standard()), "pass");
}

/// A process, distinguished by its start time from a later process with the same id.
#[derive(Debug)]
struct Process {
    pid: u32,
    started: String,
}

impl Process {
    fn find(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Field 22. Field 2, the name, ends with the last parenthesis.
        let started = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(19)?
            .to_owned();
        Some(Self { pid, started })
    }

    /// Returns the kernel's description of the process if it still exists.
    fn survivor(&self) -> Option<String> {
        let found = Self::find(self.pid)?;
        let status = || fs::read_to_string(format!("/proc/{}/status", self.pid)).ok();
        (found.started == self.started).then(status)?
    }
}

fn descendants(pid: u32) -> Vec<Process> {
    let mut found = Vec::new();
    let mut unseen = children(pid);
    while let Some(pid) = unseen.pop() {
        unseen.extend(children(pid));
        found.extend(Process::find(pid));
    }
    found
}
