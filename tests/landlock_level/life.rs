//! Runs from their start to what is left of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::older;
use crate::runs::{Host, PYTHON, Running, named, outcome, within};
use crate::situation::Who;

/// Long for anything that is not slow.
const LONG: Duration = Duration::from_secs(10);

/// The start of code that makes processes: `call_me` gives one a name by which it is found.
const NAMING: &str = "import ctypes, os, sys, time
def call_me(name):
    ctypes.CDLL(None).prctl(15, name.encode())
";

/// A name that no other process has, within the 15 bytes that there are.
fn unique(what: &str, who: Who) -> String {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let initial = &who.name()[..1];
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("sf-{what}-{initial}{}-{number}", std::process::id() % 1000)
}

/// Forks twice, with a session between: what that leaves has no tie to who made it.
fn daemon(name: &str) -> String {
    format!(
        "{NAMING}
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        call_me({name:?})
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(0.3)
"
    )
}

pub fn hello(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let run = host.run(
        &[],
        "import os; print(6 * 7, os.getcwd() == os.environ['HOME'])",
    );
    assert_eq!(run["stdout"], "42 True\n", "{run}");
    assert_eq!(run["status"], "ok");
    assert_eq!(run["enforced"]["level"], "landlock");
    let layers = run["enforced"]["layers"].as_array().ok_or("no layers")?;
    let sure = ["landlock", "seccomp", "capabilities", "rlimits"];
    assert_eq!(layers[..4], sure.map(Value::from));
    assert!(
        layers[4..].iter().all(|layer| layer == "cgroup"),
        "{layers:?}"
    );
    assert_eq!(host.left(), Vec::<std::path::PathBuf>::new());
    Ok(())
}

pub fn the_default_is_refused(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let mut run = host.sandfork("run", &["assurance.require=standard"]);
    let output = run.args(["-c", "print(1)"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in [
        "requires level `standard`",
        "EPERM",
        "assurance.require=landlock",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(host.left().is_empty());
    Ok(())
}

pub fn ordinary_programs_work(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let run = host.run(
        &[],
        "import multiprocessing, os, sqlite3, subprocess, sys, tempfile, threading, zoneinfo
thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()
process = multiprocessing.Process(target=print, args=('process',)); process.start(); process.join()
print(subprocess.run(['/bin/echo', 'program'], capture_output=True, text=True).stdout, end='')
print(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True, text=True).stdout, end='')
with tempfile.TemporaryFile() as file: print(file.write(b'temporary'))
open('module.py', 'w').write('name = \"module\"')
import module; print(module.name)
print(sqlite3.connect('file.db').execute('select 1').fetchall())
print(zoneinfo.ZoneInfo('Europe/Paris').key)
",
    );
    let wanted = "thread\nprocess\nprogram\n1\n9\nmodule\n[(1,)]\nEurope/Paris\n";
    assert_eq!(run["stdout"], wanted, "{run}");
    Ok(())
}

pub fn endings(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let ending = |settings: &[&str], code: &str| {
        let run = host.run(settings, code);
        let limit = &run["limit"];
        json!([run["status"], run["exit_code"], limit["name"], limit["by"]])
    };
    let none = Value::Null;
    assert_eq!(
        ending(&[], "raise SystemExit(3)"),
        json!(["exit", 3, none, none])
    );
    assert_eq!(
        ending(&[], "import os; os._exit(4)"),
        json!(["exit", 4, none, none])
    );
    assert_eq!(ending(&[], "1 / 0"), json!(["exception", 1, none, none]));
    let crash = "import ctypes; ctypes.string_at(0)";
    assert_eq!(ending(&[], crash), json!(["signal", 139, none, none]));
    let wall = ending(&["limits.wall=300ms"], "import time; time.sleep(60)");
    assert_eq!(wall, json!(["timeout", 124, "limits.wall", "deadline"]));
    let cpu = ending(&["limits.cpu=200ms"], "while True: pass");
    assert_eq!(
        (&cpu[0], &cpu[2]),
        (&json!("cpu-limit"), &json!("limits.cpu")),
        "{cpu}"
    );
    let memory = ending(&["limits.memory=128MiB"], "x = bytearray(1 << 30)");
    assert_eq!(
        (&memory[0], &memory[2]),
        (&json!("memory-limit"), &json!("limits.memory"))
    );
    assert!(host.left().is_empty());
    Ok(())
}

/// Many processes, each within its own limits.
pub fn limits_hold_for_all_processes_together(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let memory = host.run(
        &["limits.memory=256MiB"],
        "import os, time
for _ in range(6):
    if os.fork() == 0:
        x = bytearray(os.urandom(1 << 20) * 60)
        time.sleep(60)
print(os.wait()[1])",
    );
    // Where a cgroup holds it, the kernel kills the one that asks for more.
    let killed_one = memory["stdout"] == "9\n";
    assert!(memory["status"] == "memory-limit" || killed_one, "{memory}");
    let peak = memory["usage"]["peak_memory_bytes"]
        .as_u64()
        .unwrap_or(u64::MAX);
    assert!(peak < 400 << 20, "{memory}");
    // Each is an orphan, and gone before the next.
    let cpu = host.run(
        &["limits.cpu=1s"],
        "import os, time
while True:
    if os.fork() == 0:
        if os.fork() == 0:
            until = time.process_time() + 0.1
            while time.process_time() < until: pass
        os._exit(0)
    os.wait()
    time.sleep(0.15)",
    );
    assert_eq!(cpu["status"], "cpu-limit", "{cpu}");
    Ok(())
}

pub fn a_daemon_is_gone_after_the_run(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let name = unique("dmn", who);
    let control = host.command(PYTHON).args(["-c", &daemon(&name)]).status()?;
    assert!(control.success());
    let outside = named(&name);
    assert_eq!(outside.len(), 1, "outside it goes on");
    kill(Pid::from_raw(outside[0]), Signal::SIGKILL)?;
    assert!(within(LONG, || named(&name).is_empty()));

    let code = format!("{}print('started')", daemon(&name));
    let run = host.run(&[], &code);
    assert_eq!(run["stdout"], "started\n", "{run}");
    assert_eq!(named(&name), Vec::<i32>::new());
    Ok(())
}

/// Also one that a limit ends, by the supervisor.
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
        if bomb == "os.fork()" {
            assert_eq!(run["status"], "pids-limit", "{run}");
        }
    }
    Ok(())
}

pub fn files_are_limited_and_removed(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let full = "n = 0
while True:
    open(str(n), 'wb').write(bytes(1 << 20)); n += 1";
    let run = host.run(&["filesystem.work_size=16MiB"], full);
    assert_eq!(
        run["limit"],
        json!({"name": "filesystem.work_size", "by": "watchdog"}),
        "{run}"
    );
    assert_eq!(run["status"], "file-limit");
    let many = "n = 0
while True:
    open(str(n), 'w').close(); n += 1";
    let run = host.run(&["filesystem.work_inodes=500"], many);
    assert_eq!(
        run["limit"],
        json!({"name": "filesystem.work_inodes", "by": "watchdog"}),
        "{run}"
    );
    let nameless = "import os
kept = []
while True:
    file = open('x', 'wb'); os.unlink('x')
    file.write(bytes(1 << 20)); file.flush(); kept.append(file)";
    let run = host.run(&["filesystem.work_size=16MiB"], nameless);
    assert_eq!(run["limit"]["name"], "filesystem.work_size", "{run}");
    assert!(host.left().is_empty(), "{:?}", host.left());
    Ok(())
}

pub fn nothing_that_a_guest_made_is_left(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let canary = host.home().join("canary");
    fs::write(&canary, "canary")?;
    symlink(&canary, host.home().join("link"))?;
    let code = format!(
        "import os
os.symlink({home:?}, 'home'); os.symlink({canary:?}, 'canary')
os.makedirs('closed/within'); open('closed/within/file', 'w').close()
for path in ('closed/within', 'closed'):
    handle = os.open(path, os.O_RDONLY); os.fchmod(handle, 0); os.close(handle)
os.umask(0o777); os.mkdir('masked'); os.umask(0)
for _ in range(1200): os.mkdir('d'); os.chdir('d')
print('made')",
        home = host.home().display().to_string(),
        canary = canary.display().to_string(),
    );
    let run = host.run(&[], &code);
    assert_eq!(run["stdout"], "made\n", "{run}");
    assert!(host.left().is_empty(), "{:?}", host.left());
    assert_eq!(fs::read_to_string(&canary)?, "canary");
    Ok(())
}

/// A run of a guest that has left a daemon behind, both by name.
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

/// SIGKILL gives nobody a chance to tidy up.
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
    assert_eq!(host.left().len(), 1, "its directory is left");
    host.run(&[], "pass");
    assert!(
        host.left().is_empty(),
        "and swept by the next: {:?}",
        host.left()
    );
    Ok(())
}

/// Neither are Sandfork's own processes safe from an administrator, or from the kernel when memory
/// is short.
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

fn depth(pid: i32, above: i32) -> Option<usize> {
    let mut pid = pid;
    for depth in 0..10 {
        if pid == above {
            return Some(depth);
        }
        pid = parent(pid)?;
    }
    None
}

fn descendants(pid: i32) -> Vec<(i32, u64)> {
    let all = fs::read_dir("/proc").expect("/proc can be read");
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|other| *other != pid && depth(*other, pid).is_some())
        .filter_map(|other| Some((other, start_time(other)?)))
        .collect()
}

fn stat_field(pid: i32, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(field - 3)?
        .parse()
        .ok()
}

fn parent(pid: i32) -> Option<i32> {
    i32::try_from(stat_field(pid, 4)?)
        .ok()
        .filter(|parent| *parent > 1)
}

fn start_time(pid: i32) -> Option<u64> {
    stat_field(pid, 22)
}

/// A program, and its own exit status.
pub fn a_program_runs(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let mut run = host.sandfork("exec", &[]);
    let run = outcome(run.args(["--json", "--", "sh", "-c", "pwd; exit 7"]));
    assert_eq!(run["exit_code"], 7, "{run}");
    let cwd = run["stdout"].as_str().unwrap_or("");
    assert!(cwd.starts_with(&host.tmp().display().to_string()), "{cwd}");
    Ok(())
}

/// Where Landlock scopes no signals the reaper walks down the tree, and the guest may signal nobody.
pub fn an_older_kernel_holds_too(who: Who) -> Result<(), Failed> {
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
    assert!(host.left().is_empty());
    Ok(())
}

fn older(host: &Host, settings: &[&str], code: &str) -> Command {
    let mut command = host.this_test(older::FLAG);
    command
        .arg(older::ABI.to_string())
        .arg(code)
        .arg("assurance.require=landlock")
        .args(settings);
    command
}
