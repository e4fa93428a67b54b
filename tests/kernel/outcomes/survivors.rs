//! Tests that the end of a run ends everything that it started.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use sandfork::Status;

use crate::check::{ended, fine};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        child_processes,
        a_daemon_that_forked_twice,
        children_of_a_guest_that_was_killed,
        children_of_a_guest_that_timed_out,
    ]
}

/// Returns a unique number of seconds for `sleep`, by which the process can be found.
fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{}.{:06}",
        90_000 + NEXT.fetch_add(1, Ordering::Relaxed),
        std::process::id() % 1_000_000
    )
}

/// Returns whether any process of this machine has the mark in its command line or its name.
fn survives(mark: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    processes
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .any(|entry| {
            let has = |file: &str| {
                let text = fs::read(entry.path().join(file)).unwrap_or_default();
                String::from_utf8_lossy(&text).contains(mark)
            };
            has("cmdline") || has("comm")
        })
}

fn child_processes(world: &World) {
    let mark = mark();
    let code =
        format!("import subprocess\nsubprocess.Popen(['sleep', '{mark}'])\nprint('started')");
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    fine(&outcome);
    assert_eq!(outcome.stdout(), "started\n");
    assert!(!survives(&mark));
}

// One daemon executed another program, and the other is a fork of the guest.
fn a_daemon_that_forked_twice(world: &World) {
    let (program, fork) = (mark(), mark());
    let code = format!(
        "import ctypes, os, time\n\
         reader, writer = os.pipe()\n\
         for act in (lambda: os.execvp('sleep', ['sleep', '{program}']), lambda: time.sleep(600)):\n    \
             if os.fork() == 0:\n        \
                 os.setsid()\n        \
                 if os.fork() != 0: os._exit(0)\n        \
                 ctypes.CDLL(None).prctl(15, b'{fork}')\n        \
                 os.write(writer, b'.')\n        \
                 act()\n    \
             os.wait()\n    \
             os.read(reader, 1)\n\
         print(os.getppid())\n"
    );
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    fine(&outcome);
    assert!(!survives(&program) && !survives(&fork));
}

fn children_of_a_guest_that_was_killed(world: &World) {
    let mark = mark();
    let code = format!(
        "import os, subprocess\nsubprocess.Popen(['sleep', '{mark}'])\nos.kill(os.getpid(), 9)"
    );
    let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
    ended(&outcome, Status::Signal);
    assert!(!survives(&mark));
}

fn children_of_a_guest_that_timed_out(world: &World) {
    let mark = mark();
    let code = format!(
        "import os, subprocess, time\n\
         subprocess.Popen(['sleep', '{mark}'], start_new_session=True)\ntime.sleep(60)"
    );
    let outcome = world.run(standard().set("limits.wall=500ms"), &code);
    ended(&outcome, Status::Timeout);
    assert!(!survives(&mark));
}
