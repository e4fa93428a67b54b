//! Tests that no process of a worker is left after it has ended, for each cause of its end.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::older;
use crate::processes::{depth, descendants, named, parent, start_time, within};
use crate::runs::{Host, PATIENT, PYTHON, Running, outcome};
use crate::situation::Who;

/// A generous timeout.
const LONG: Duration = Duration::from_secs(60);

/// The start of code that creates processes: `call_me` gives a process a name by which the test finds it.
const NAMING: &str = "import ctypes, os, sys, time
def call_me(name):
    ctypes.CDLL(None).prctl(15, name.encode())
";

/// Returns a unique process name of at most 15 bytes.
fn unique(what: &str, who: Who) -> String {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let initial = &who.name()[..1];
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("sf-{what}-{initial}{}-{number}", std::process::id() % 1000)
}

/// Forks twice, with `setsid` in between, so that the grandchild is detached from the guest.
///
/// Where Landlock does not scope signals (before Linux 6.12), the filter of level `landlock` refuses `setsid`, because
/// only their process group ties such a guest's processes together. There the grandchild stays in that group.
fn daemon(name: &str) -> String {
    format!(
        "{NAMING}
if os.fork() == 0:
    try:
        os.setsid()
    except PermissionError:
        pass
    if os.fork() == 0:
        call_me({name:?})
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(0.3)
"
    )
}

pub fn a_daemon_is_gone_after_the_run(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let name = unique("dmn", who);
    let control = host.command(PYTHON).args(["-c", &daemon(&name)]).status()?;
    assert!(control.success());
    assert!(
        within(LONG, || named(&name).len() == 1),
        "outside it goes on"
    );
    kill(Pid::from_raw(named(&name)[0]), Signal::SIGKILL)?;
    assert!(within(LONG, || named(&name).is_empty()));

    let code = format!("{}print('started')", daemon(&name));
    let run = host.run(&[], &code);
    assert_eq!(run["stdout"], "started\n", "{run}");
    assert_eq!(named(&name), Vec::<i32>::new());
    Ok(())
}

// Also after a run that the supervisor ends at a limit.
pub fn a_daemon_is_gone_after_a_timeout(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let name = unique("late", who);
    let code = format!("{}while True: pass", daemon(&name));
    let run = host.run(&["limits.wall=1s"], &code);
    assert_eq!(run["status"], "timeout", "{run}");
    assert_eq!(named(&name), Vec::<i32>::new());
    Ok(())
}

pub fn a_fork_bomb_is_ended(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let name = unique("bomb", who);
    for bomb in [
        "os.fork()",
        "os.fork() or os.setsid()",
        "os.fork() and os._exit(0)",
    ] {
        let code = format!("{NAMING}\ncall_me({name:?})\nwhile True: {bomb}");
        let started = Instant::now();
        let run = host.run(&["limits.wall=3s"], &code);
        assert!(
            started.elapsed() < LONG,
            "it took {:?}: {run}",
            started.elapsed()
        );
        assert_eq!(named(&name), Vec::<i32>::new(), "{bomb}");
    }
    // Where a cgroup refuses the fork, the first refused process needs time to end.
    let run = host.run(&PATIENT, "import os\nwhile True: os.fork()");
    assert_eq!(run["status"], "pids-limit", "{run}");
    Ok(())
}

/// A run of a guest that has left a daemon behind; both have unique names.
struct Busy {
    supervisor: Running,
    guest: String,
    daemon: String,
}

impl Busy {
    fn start(host: &Host) -> Self {
        let (guest, daemon_name) = (unique("gst", host.who), unique("dmn", host.who));
        let code = format!(
            "{}call_me({guest:?})\nwhile True: pass",
            daemon(&daemon_name)
        );
        let mut run = host.sandfork("run", &[]);
        let run = run.args(["-c", &code]).stderr(Stdio::null());
        let busy = Self {
            supervisor: Running::start(run),
            guest,
            daemon: daemon_name,
        };
        assert!(
            within(LONG, || busy.alive().len() == 2),
            "guest and daemon run"
        );
        busy
    }

    fn alive(&self) -> Vec<i32> {
        [named(&self.guest), named(&self.daemon)].concat()
    }
}

// After SIGKILL no process can clean up.
pub fn a_killed_supervisor_leaves_nothing(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let mut busy = Busy::start(&host);
    let tree = descendants(busy.supervisor.pid());
    assert!(
        tree.len() >= 5,
        "watcher, zygote, reaper, guest, daemon: {tree:?}"
    );
    busy.supervisor.0.kill()?;
    busy.supervisor.0.wait()?;
    let alive = || -> Vec<&(i32, u64)> {
        tree.iter()
            .filter(|(pid, started)| start_time(*pid) == Some(*started))
            .collect()
    };
    assert!(within(LONG, || alive().is_empty()), "left: {:?}", alive());
    assert_eq!(host.leftovers().len(), 1, "its directory is left");
    host.run(&[], "pass");
    assert!(
        host.leftovers().is_empty(),
        "and swept by the next: {:?}",
        host.leftovers()
    );
    Ok(())
}

// Sandfork's own helper processes can be killed too, by an administrator or by the kernel when memory
// runs out.
pub fn a_killed_helper_leaves_nothing(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    for (generation, helper) in [(1, "reaper"), (2, "zygote"), (3, "watcher")] {
        let busy = Busy::start(&host);
        let guest = named(&busy.guest)[0];
        assert_eq!(depth(guest, busy.supervisor.pid()), Some(4));
        let pid = (0..generation)
            .try_fold(guest, |pid, _| parent(pid))
            .ok_or("no helper")?;
        kill(Pid::from_raw(pid), Signal::SIGKILL)?;
        assert!(
            within(LONG, || busy.alive().is_empty()),
            "{:?} outlived the {helper}",
            busy.alive()
        );
    }
    Ok(())
}

// Without Landlock's signal scope, the reaper walks the process tree, and the guest may not send signals.
pub fn older_kernel_confines_too(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let name = unique("old", who);
    let run = |settings: &[&str], code: &str| outcome(&mut older(&host, settings, code));
    let hello = run(&[], "print(6 * 7)");
    assert_eq!(hello["stdout"], "42\n", "{hello}");
    assert_eq!(hello["enforced"]["level"], "landlock");

    let refused = "import os, signal
for send in (os.kill, lambda pid, sig: signal.pidfd_send_signal(os.pidfd_open(pid), sig)):
    try: send(os.getppid(), 0)
    except PermissionError: print('refused')";
    assert_eq!(run(&[], refused)["stdout"], "refused\nrefused\n");
    assert_only_own_processes_are_signalled(&host, who);

    let left = run(&[], &daemon(&name).replace("os.setsid()", "pass"));
    assert_eq!(left["status"], "ok", "{left}");
    assert_eq!(named(&name), Vec::<i32>::new());
    let session = run(
        &[],
        "import os\nif os.fork() == 0: os.setsid()\nelse: print(os.wait()[1])",
    );
    assert_eq!(session["stdout"], "256\n", "{session}");
    for bomb in ["os.fork()", "os.fork() and os._exit(0)"] {
        let code = format!("{NAMING}\ncall_me({name:?})\nwhile True: {bomb}");
        let started = Instant::now();
        let bombed = run(&["limits.wall=3s"], &code);
        assert!(
            started.elapsed() < LONG,
            "it took {:?}: {bombed}",
            started.elapsed()
        );
        assert_eq!(named(&name), Vec::<i32>::new(), "{bomb}");
    }
    assert!(host.leftovers().is_empty());
    Ok(())
}

/// Checks that a guest on an older kernel can signal its own processes and no others of its user.
fn assert_only_own_processes_are_signalled(host: &Host, who: Who) {
    let other = Running::start(host.command("/bin/sleep").arg("1000"));
    let signal = |pid: i32| {
        let code = format!("import os; os.kill({pid}, 0)");
        let status = host.command(PYTHON).args(["-c", &code]).status();
        status.expect("the command runs").success()
    };
    assert!(signal(other.pid()), "the control run did not signal it");
    let code = format!(
        "import os, signal, subprocess, threading
child = subprocess.Popen(['sleep', '1000'])
child.terminate()
print(child.wait())
signal.signal(signal.SIGCHLD, lambda *_: None)
for _ in range(50):
    child = subprocess.Popen(['sleep', '1000'])
    child.kill()
    child.wait()
signal.signal(signal.SIGUSR1, lambda number, frame: print('heard'))
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
thread = threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGUSR1))
thread.start()
thread.join()
os.kill(0, 0)
for pid in {other}, 1, -1, -os.getpgrp():
    try: os.kill(pid, 0)
    except PermissionError: print('refused')
try: os.kill(2 ** 22 - 1, 0)
except ProcessLookupError: print('none')",
        other = other.pid()
    );
    let expected = "-15\nheard\nheard\nheard\nrefused\nrefused\nrefused\nrefused\nnone\n";
    let run = outcome(&mut older(host, &[], &code));
    assert_eq!(run["stdout"], expected, "{run}");
    let aborted = outcome(&mut older(host, &[], "import os; os.abort()"));
    assert_eq!(aborted["exit_code"], 128 + 6, "{aborted}");
    assert!(signal(other.pid()), "as {}", who.name());
    // A policy that denies the call must win: on an older kernel the supervisor is notified of it and would send the
    // signal itself. It is notified of other denied calls too.
    let code = "import os
try: os.kill(os.getpid(), 9)
except PermissionError: print('refused')";
    let denied = ["syscalls.deny=kill"];
    for run in [
        outcome(&mut older(host, &denied, code)),
        host.run(&denied, code),
    ] {
        assert_eq!(run["stdout"], "refused\n", "{run}");
    }
}

fn older(host: &Host, settings: &[&str], code: &str) -> Command {
    let mut command = host.this_test(older::FLAG);
    command
        .arg(older::abi().to_string())
        .arg(code)
        .arg("assurance.require=landlock")
        .args(settings);
    command
}
