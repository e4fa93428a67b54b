//! Takes something away from the host while a supervisor runs: new runs are refused with the cause, live
//! sessions continue or end with a message, and runs succeed again once it is back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;
use nix::errno::Errno;

use crate::bench::Bench;
use crate::family::Role;
use crate::fault::{Act, Fault};
use crate::subject::Reply;

type Loss = fn(&mut Bench) -> Result<(), Failed>;

/// The tests.
pub const LOSSES: [(&str, Loss); 4] = [
    ("no_process_is_left", no_process_is_left),
    (
        "user_namespaces_are_turned_off",
        user_namespaces_are_turned_off,
    ),
    ("the_cgroups_are_removed", the_cgroups_are_removed),
    (
        "a_session_is_taken_out_of_its_cgroups",
        a_session_is_taken_out_of_its_cgroups,
    ),
];

// Every fork fails, as when a process limit is reached (fork(2)).
fn no_process_is_left(bench: &mut Bench) -> Result<(), Failed> {
    open_session(bench);
    let calls = bench.record("plain", Role::Zygote);
    bench.settled_besides_session();
    for clone in calls.iter().filter(|call| call.is(&["clone"])) {
        let fault = Fault::at(clone, Act::Fail(Errno::EAGAIN));
        let reply = bench.ask_with("plain", fault).reply;
        is_refused(reply.as_ref(), &["could not", Errno::EAGAIN.desc()])?;
        session_and_runs_work(bench)?;
    }
    Ok(())
}

// Only in the zygote's user namespace, in which those of its workers are created.
fn user_namespaces_are_turned_off(bench: &mut Bench) -> Result<(), Failed> {
    open_session(bench);
    let zygote = bench
        .tracer
        .find(Role::Zygote)
        .ok_or("there is no zygote")?;
    let set = |value: &str| -> Result<(), Failed> {
        let status = Command::new("python3")
            .args(["-c", SET_NAMESPACES, &zygote.to_string(), value])
            .status()?;
        let set = status.success().then_some(());
        set.ok_or_else(|| format!("the setting could not be changed: {status}").into())
    };
    set("0")?;
    let reply = bench.ask("plain").reply;
    is_refused(reply.as_ref(), &["user namespace", Errno::ENOSPC.desc()])?;
    session_answers(bench)?;
    set("1000")?;
    session_and_runs_work(bench)
}

/// Changes the setting as the user namespace's owner. It must not execute another program, which would lose that
/// right.
const SET_NAMESPACES: &str = "\
import ctypes, os, sys
CLONE_NEWUSER = 0x10000000
namespace = os.open(f'/proc/{sys.argv[1]}/ns/user', os.O_RDONLY)
assert ctypes.CDLL(None).setns(namespace, CLONE_NEWUSER) == 0
open('/proc/sys/user/max_user_namespaces', 'w').write(sys.argv[2])
";

// Another process removes the supervisor's directories.
fn the_cgroups_are_removed(bench: &mut Bench) -> Result<(), Failed> {
    let cgroups = bench.cgroups();
    for directory in &cgroups {
        remove(directory)?;
    }
    let reply = bench.ask("plain").reply;
    if cgroups.is_empty() {
        // This host has no cgroups.
        return plain(reply.as_ref());
    }
    is_refused(reply.as_ref(), &["cgroup"])?;
    bench.build();
    plain(bench.ask("plain").reply.as_ref())
}

// Another process moves a live session's processes elsewhere and removes its cgroups. The session's memory is no
// longer counted, so the session ends.
fn a_session_is_taken_out_of_its_cgroups(bench: &mut Bench) -> Result<(), Failed> {
    open_session(bench);
    let workers: Vec<PathBuf> = bench
        .worker_cgroups()
        .into_iter()
        .filter(|directory| is_in_use(directory))
        .collect();
    if workers.is_empty() {
        return Ok(());
    }
    for directory in &workers {
        empty(directory)?;
        remove(directory)?;
    }
    match bench.ask("ask other").reply {
        Some(Reply::Refused { kind, says })
            if kind == "SessionEnded" && says.contains("cgroup") => {}
        other => return Err(format!("the session got {other:?}").into()),
    }
    bench.ask("close other");
    plain(bench.ask("plain").reply.as_ref())
}

fn open_session(bench: &mut Bench) {
    assert_eq!(bench.ask("open other").reply, Some(Reply::Done));
}

/// Checks that the open session returns its result.
fn session_answers(bench: &mut Bench) -> Result<(), Failed> {
    plain(bench.ask("ask other").reply.as_ref())
}

fn session_and_runs_work(bench: &mut Bench) -> Result<(), Failed> {
    session_answers(bench)?;
    plain(bench.ask("plain").reply.as_ref())
}

fn plain(reply: Option<&Reply>) -> Result<(), Failed> {
    if Reply::is_plain(reply) {
        Ok(())
    } else {
        Err(format!("not as it should be: {reply:?}").into())
    }
}

fn is_refused(reply: Option<&Reply>, words: &[&str]) -> Result<(), Failed> {
    match reply {
        Some(Reply::Refused { says, .. }) if words.iter().all(|word| says.contains(word)) => Ok(()),
        other => Err(format!("not refused with {words:?}: {other:?}").into()),
    }
}

/// Moves the processes of a cgroup to the one above the supervisor's.
fn empty(directory: &Path) -> Result<(), Failed> {
    let target = target_cgroup(directory)?;
    for pid in fs::read_to_string(directory.join("cgroup.procs"))?.lines() {
        fs::write(target.join("cgroup.procs"), pid)
            .map_err(|error| format!("{}: {error}", target.display()))?;
    }
    Ok(())
}

/// On version 2 the cgroups above a worker's contain no processes, so they go to this test's own.
fn target_cgroup(directory: &Path) -> Result<PathBuf, Failed> {
    if directory.join("cgroup.controllers").exists() {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let path = path.ok_or("this process is in no cgroup of version 2")?;
        return Ok(Path::new("/sys/fs/cgroup").join(path));
    }
    Ok(directory
        .ancestors()
        .nth(2)
        .ok_or("it has no parent")?
        .into())
}

fn remove(directory: &Path) -> Result<(), Failed> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove(&path)?;
        }
    }
    fs::remove_dir(directory).map_err(|error| format!("{}: {error}", directory.display()).into())
}

/// Returns whether a cgroup contains a process. The others are kept for later workers.
fn is_in_use(directory: &Path) -> bool {
    fs::read_to_string(directory.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty())
}
