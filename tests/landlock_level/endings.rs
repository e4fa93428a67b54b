//! Tests of every way in which a run can end.

use std::path::PathBuf;

use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::runs::{Host, PATIENT, outcome};
use crate::situation::Who;

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
    assert_eq!(host.leftovers(), Vec::<PathBuf>::new());
    Ok(())
}

// Every level above the host's highest is refused, with the cause and the remaining layers.
pub fn higher_levels_are_refused(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    for level in ["standard", "full"] {
        let mut run = host.sandfork("run", &[&format!("assurance.require={level}")]);
        let output = run.args(["-c", "print(1)"]).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125));
        assert!(output.stdout.is_empty());
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        let required = format!("requires level `{level}`");
        for part in [
            &required,
            "cannot be enforced",
            "EPERM",
            "assurance.require=landlock",
        ] {
            assert!(stderr.contains(part), "{stderr}");
        }
    }
    assert!(host.leftovers().is_empty());
    Ok(())
}

pub fn ordinary_programs_work(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let run = host.run(
        &PATIENT,
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
print(os.sched_getaffinity(0), os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGESIZE') >> 20)
",
    );
    let wanted = "thread\nprocess\nprogram\n1\n9\nmodule\n[(1,)]\nEurope/Paris\n{0} 512\n";
    assert_eq!(run["stdout"], wanted, "{run}");
    Ok(())
}

// A program runs and its exit status is kept.
pub fn a_program_runs(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let mut run = host.sandfork("exec", &[]);
    let run = outcome(run.args(["--json", "--", "sh", "-c", "pwd; exit 7"]));
    assert_eq!(run["exit_code"], 7, "{run}");
    let cwd = run["stdout"].as_str().unwrap_or("");
    assert!(cwd.starts_with(&host.tmp().display().to_string()), "{cwd}");
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
    assert!(host.leftovers().is_empty());
    Ok(())
}

/// Runs a guest whose processes together exceed the memory limit, in 6 of 60 MiB each.
fn memory_ends(host: &Host, code: &str) {
    let patient = ["limits.memory=256MiB", "limits.cpu=5m", "limits.wall=5m"];
    let memory = host.run(&patient, code);
    // With a cgroup, the kernel kills the process that allocates too much.
    let killed_one = memory["stdout"] == "9\n";
    assert!(memory["status"] == "memory-limit" || killed_one, "{memory}");
    let peak = memory["usage"]["peak_memory_bytes"].as_u64();
    assert!(peak.is_some_and(|peak| peak < 400 << 20), "{memory}");
}

// None of the processes is a descendant of the guest's main process.
pub fn the_memory_of_orphans_counts(who: Who) -> Result<(), Failed> {
    memory_ends(
        &Host::new(who),
        "import os, time
for _ in range(6):
    if os.fork() == 0:
        if os.fork() == 0:
            x = bytearray(os.urandom(1 << 20) * 60)
            time.sleep(60)
        os._exit(0)
    os.wait()
time.sleep(20)",
    );
    Ok(())
}

// The guest only reads its pages, so the kernel's zero page backs them all: only their page tables take memory.
pub fn page_tables_count(who: Who) -> Result<(), Failed> {
    memory_ends(
        &Host::new(who),
        "import ctypes, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
begin = libc.mmap(None, 1 << 39, 1, 0x4022, -1, 0)
libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(1 << 39), 15)
for number in range(160_000):
    ctypes.string_at(begin + (number << 21), 1)
    if number % 1000 == 0: time.sleep(0.02)
time.sleep(20)",
    );
    Ok(())
}

// The guest keeps shared memory that no longer counts as part of its own size (`MADV_DONTNEED`).
pub fn shared_memory_counts(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    let limits = ["limits.memory=256MiB", "limits.cpu=5m", "limits.wall=5m"];
    let kept = host.run(
        &limits,
        "import mmap
kept = []
for number in range(8):
    try:
        kept.append(mmap.mmap(-1, 60 << 20))
    except OSError as error:
        print(number, error.errno)
        break
    for page in range(0, 60 << 20, 4096): kept[-1][page] = 1
    kept[-1].madvise(mmap.MADV_DONTNEED)",
    );
    // With a cgroup, the kernel kills the process that allocates too much.
    let refused = kept["stdout"] == "4 12\n";
    assert!(refused || kept["status"] == "memory-limit", "{kept}");
    let again = host.run(
        &limits,
        "import mmap, os
for _ in range(20): mmap.mmap(-1, 200 << 20).close()
if os.fork() == 0:
    mmap.mmap(-1, 40 << 20)[0] = 1
    os._exit(0)
print(os.wait()[1])
try:
    print(mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096)[0])
except OSError:
    print(0)",
    );
    assert_eq!(again["stdout"], "0\n0\n", "{again}");
    Ok(())
}

// A guest may add any number of rules, which no process's size includes.
pub fn landlock_rules_are_counted_or_refused(who: Who) -> Result<(), Failed> {
    let asked = Host::new(who).run(
        &[],
        "import ctypes
libc = ctypes.CDLL(None, use_errno=True)
# landlock_create_ruleset: the version of Landlock.
print(libc.syscall(444, None, 0, 1) > 0, ctypes.get_errno())",
    );
    let layers = asked["enforced"]["layers"].as_array();
    let is_counted = layers.is_some_and(|layers| layers.iter().any(|layer| layer == "cgroup"));
    let expected = if is_counted { "True 0\n" } else { "False 1\n" };
    assert_eq!(asked["stdout"], expected, "{asked}");
    Ok(())
}

// Many processes, each within its own limits.
pub fn limits_hold_for_all_processes_together(who: Who) -> Result<(), Failed> {
    let host = Host::new(who);
    memory_ends(
        &host,
        "import os, time
for _ in range(6):
    if os.fork() == 0:
        x = bytearray(os.urandom(1 << 20) * 60)
        time.sleep(60)
print(os.wait()[1])",
    );
    // Each process is an orphan and ends before the next one starts.
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
