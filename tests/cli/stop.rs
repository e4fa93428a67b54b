//! Tests of Ctrl-Z: the command stops together with its guest and the guest's clock.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde_json::json;

use super::behaviour::{sandfork, signal};
use super::trials;

trials! {
    a_stopped_command_stops_its_guest_and_the_clock,
    time_under_sigstop_is_not_counted,
    stop_that_cannot_freeze_the_guest_is_counted,
    guest_that_sends_sigcont_stays_stopped,
    forking_guest_stays_stopped,
    parent_in_vfork_continues_with_its_child,
    a_process_that_the_guest_stopped_stays_stopped,
    guest_signals_survive_a_stop,
    a_stopped_command_can_be_interrupted,
    batch_stops_and_continues,
}

const STOPPED: Duration = Duration::from_secs(1);

/// Prints the time repeatedly, for 1.5 seconds in total, in one or several processes.
const TICK: &str = "
import os, signal, sys, time
def tick(seconds):
    print('up', flush=True)
    while seconds > 0:
        before = time.time()
        os.write(1, f'{before}\\n'.encode())
        time.sleep(0.02)
        # A pause counts as one tick, which may be a long one.
        seconds -= min(time.time() - before, 0.4)
";

/// Returns the command in its own process group, which must not be orphaned: the kernel ignores SIGTSTP in an orphaned
/// process group (setpgid(2)), and that of the tests may be one.
fn stoppable(arguments: &[&str]) -> Command {
    let mut command = sandfork(arguments);
    command.process_group(0);
    command
}

struct Stop {
    from: Duration,
    to: Duration,
}

/// Returns the time of `CLOCK_REALTIME`, which guest and host share.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_REALTIME).unwrap().into()
}

/// Stops the command, waits, and continues it.
fn stop(child: &Child, stopped: Duration) -> Stop {
    let pid = Pid::from_raw(child.id().cast_signed());
    signal(child, Signal::SIGTSTP);
    let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(status, WaitStatus::Stopped(pid, Signal::SIGTSTP));
    let from = now();
    sleep(stopped);
    let to = now();
    signal(child, Signal::SIGCONT);
    Stop { from, to }
}

/// Runs a guest under a limit that it does not reach, and stops it.
fn run_with_a_stop(guest: &str) -> Result<(Option<i32>, Vec<String>), Failed> {
    run_under("60s", STOPPED, guest)
}

/// Runs a guest under a wall limit and stops it for some time. Returns its exit code and the lines that are not
/// times. Checks that no printed time lies within the stop, and that some lie before and after it.
fn run_under(
    wall: &str,
    stopped: Duration,
    guest: &str,
) -> Result<(Option<i32>, Vec<String>), Failed> {
    let code = format!("{TICK}{guest}");
    let (wall, cpu) = (format!("limits.wall={wall}"), format!("limits.cpu={wall}"));
    let limits = ["--set", &wall, "--set", &cpu];
    let mut child = stoppable(&[&["run"][..], &limits, &["-c", &code]].concat()).spawn()?;
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "up") {
        let line = stdout.by_ref().lines().next();
        lines.push(line.expect("the guest begins to tick")?);
    }
    sleep(Duration::from_millis(300));
    let stop = stop(&child, stopped);
    lines.extend(stdout.lines().collect::<Result<Vec<_>, _>>()?);
    lines.retain(|line| line != "up");
    let (times, others): (Vec<_>, Vec<_>) = lines
        .into_iter()
        .partition(|line| line.parse::<f64>().is_ok());
    let times = times
        .iter()
        .map(|time| Duration::from_secs_f64(time.parse().unwrap()));
    let (before, others_of_times): (Vec<_>, Vec<_>) = times.partition(|time| *time <= stop.from);
    let during = others_of_times
        .iter()
        .filter(|time| **time < stop.to)
        .count();
    assert_eq!(during, 0, "the guest went on");
    assert!(
        !before.is_empty() && others_of_times.len() > during,
        "the guest did not tick"
    );
    Ok((child.wait()?.code(), others))
}

fn a_stopped_command_stops_its_guest_and_the_clock() -> Result<(), Failed> {
    let long = 2 * STOPPED;
    let (code, _) = run_under("2500ms", long, "tick(1.2)")?;
    assert_eq!(code, Some(0), "the wall clock went on");
    let (code, _) = run_under("2500ms", long, "tick(60)")?;
    assert_eq!(code, Some(124), "the wall clock did not go on");
    Ok(())
}

// After SIGSTOP, the guest continues, and its clock does not.
fn time_under_sigstop_is_not_counted() -> Result<(), Failed> {
    for (seconds, code) in [(2.5, 0), (60.0, 124)] {
        let guest = format!("{TICK}tick({seconds})");
        let limits = ["--set", "limits.wall=2s", "--set", "limits.output=10MiB"];
        let mut child = stoppable(&[&["run"][..], &limits, &["-c", &guest]].concat()).spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        stdout.read_line(&mut first)?;
        let pid = Pid::from_raw(child.id().cast_signed());
        signal(&child, Signal::SIGSTOP);
        let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED))?;
        assert_eq!(status, WaitStatus::Stopped(pid, Signal::SIGSTOP));
        let from = now();
        sleep(2 * STOPPED);
        let to = now();
        signal(&child, Signal::SIGCONT);
        let times: Result<Vec<f64>, _> = stdout.lines().map(|line| line.unwrap().parse()).collect();
        let is_meanwhile = |time: &f64| (from.as_secs_f64()..to.as_secs_f64()).contains(time);
        assert!(times?.iter().any(is_meanwhile), "the guest did not go on");
        assert_eq!(child.wait()?.code(), Some(code));
    }
    Ok(())
}

// A process of the guest is traced, so the command cannot freeze it: the guest and its clock continue.
fn stop_that_cannot_freeze_the_guest_is_counted() -> Result<(), Failed> {
    let name = format!("held{}", std::process::id());
    let code = format!(
        "import ctypes, os, time\n\
         if os.fork() == 0: ctypes.CDLL(None).prctl(15, b'{name}')  # PR_SET_NAME\n\
         time.sleep(60)"
    );
    let mut child =
        stoppable(&["run", "--json", "--set", "limits.wall=3s", "-c", &code]).spawn()?;
    let held = loop {
        if let Some(pid) = process_of_name(&name) {
            break pid;
        }
        assert_eq!(child.try_wait()?, None, "the guest has no such process");
        sleep(Duration::from_millis(5));
    };
    ptrace::seize(held, Options::empty())?;
    signal(&child, Signal::SIGTSTP);
    let pid = Pid::from_raw(child.id().cast_signed());
    let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED))?;
    assert_eq!(status, WaitStatus::Stopped(pid, Signal::SIGTSTP));
    ptrace::interrupt(held)?;
    waitpid(held, Some(WaitPidFlag::__WALL))?;
    ptrace::detach(held, None)?;
    sleep(2 * STOPPED);
    signal(&child, Signal::SIGCONT);
    let output = child.wait_with_output()?;
    let message = String::from_utf8(output.stderr)?;
    assert!(
        message.contains("keeps running while the command is stopped"),
        "{message}"
    );
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(outcome["status"], "timeout", "{outcome}");
    let wall = outcome["usage"]["wall_ms"].as_f64().unwrap();
    assert!(wall >= 2000.0 * STOPPED.as_secs_f64(), "{outcome}");
    Ok(())
}

fn process_of_name(name: &str) -> Option<Pid> {
    let processes = std::fs::read_dir("/proc").ok()?;
    let mut processes = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let number = processes.find(|process| {
        let comm = std::fs::read_to_string(format!("/proc/{process}/comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    })?;
    number.parse().ok().map(Pid::from_raw)
}

// By a kernel timer, by a thread, and by other processes.
fn guest_that_sends_sigcont_stays_stopped() -> Result<(), Failed> {
    let (code, others) = run_with_a_stop(
        "
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
event = (ctypes.c_int * 16)()
event[2] = signal.SIGCONT  # sigev_signo; SIGEV_SIGNAL is 0
timer = ctypes.c_void_p()
made = libc.timer_create(1, event, ctypes.byref(timer))
every = (ctypes.c_long * 4)(0, 1_000_000, 0, 1_000_000)
print('timer', made, libc.timer_settime(timer, 0, every, None))
def wake():
    while True:
        os.kill(0, signal.SIGCONT)
        time.sleep(0.001)
threading.Thread(target=wake, daemon=True).start()
for _ in range(3):
    if os.fork() == 0:
        threading.Thread(target=wake, daemon=True).start()
        tick(1.5)
        os._exit(0)
tick(1.5)
",
    )?;
    assert!(others.contains(&"timer 0 0".to_owned()), "{others:?}");
    assert_eq!(code, Some(0));
    Ok(())
}

// Each process starts the next one and ends, so that no process id stays for long.
fn forking_guest_stays_stopped() -> Result<(), Failed> {
    let (code, _) = run_with_a_stop(
        "
if os.fork() == 0:
    end = 40
    while end > 0:
        before = time.time()
        os.write(1, f'{before}\\n'.encode())
        if os.fork():
            os._exit(0)
        end -= 0.01
    os._exit(0)
tick(1.5)
",
    )?;
    assert!(matches!(code, Some(0 | 124)), "{code:?}");
    Ok(())
}

fn parent_in_vfork_continues_with_its_child() -> Result<(), Failed> {
    let (code, others) = run_with_a_stop(
        "
import ctypes, threading
libc = ctypes.CDLL(None)
def start():
    # The child waits between vfork(2) and execve(2) for a writer of the pipe. ctypes lets go of the GIL.
    os.mkfifo('/work/pipe')
    actions, child = ctypes.create_string_buffer(1024), ctypes.c_int()
    libc.posix_spawn_file_actions_init(actions)
    libc.posix_spawn_file_actions_addopen(actions, 0, b'/work/pipe', os.O_RDONLY, 0)
    argv = (ctypes.c_char_p * 2)(b'true', None)
    libc.posix_spawn(ctypes.byref(child), b'/bin/true', actions, None, argv, None)
    print('spawned', os.waitpid(child.value, 0)[1])
def free():
    time.sleep(0.8)
    os.close(os.open('/work/pipe', os.O_WRONLY))
thread = threading.Thread(target=start)
thread.start()
threading.Thread(target=free).start()
tick(1.5)
thread.join()
",
    )?;
    assert_eq!(code, Some(0));
    assert!(others.contains(&"spawned 0".to_owned()), "{others:?}");
    Ok(())
}

fn a_process_that_the_guest_stopped_stays_stopped() -> Result<(), Failed> {
    let (code, others) = run_with_a_stop(
        "
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os.write(1, b'continued\\n')
    os._exit(7)
os.waitpid(child, os.WUNTRACED)
tick(1.2)
os.write(1, b'now\\n')
os.kill(child, signal.SIGCONT)
print('exit', os.waitpid(child, 0)[1] >> 8)
",
    )?;
    assert_eq!(code, Some(0));
    assert_eq!(others, ["now", "continued", "exit 7"]);
    Ok(())
}

fn guest_signals_survive_a_stop() -> Result<(), Failed> {
    let (code, others) = run_with_a_stop(
        "
# The interpreter calls a handler once for signals that arrive together. Its wakeup descriptor gets a byte for each.
signals, wakeup = os.pipe()
os.set_blocking(wakeup, False)
signal.set_wakeup_fd(wakeup)
signal.signal(signal.SIGRTMIN + 1, lambda *_: None)
child = os.fork()
if child == 0:
    # One signal of real time after another: all of them arrive.
    for _ in range(1000):
        os.kill(os.getppid(), signal.SIGRTMIN + 1)
        time.sleep(0.001)
    os._exit(0)
tick(1.5)
os.waitpid(child, 0)
print('count', len(os.read(signals, 2000)))
",
    )?;
    assert_eq!((code, others), (Some(0), vec!["count 1000".to_owned()]));
    Ok(())
}

fn a_stopped_command_can_be_interrupted() -> Result<(), Failed> {
    let code = format!("{TICK}tick(60)");
    let mut child = stoppable(&["run", "-c", &code]).spawn()?;
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new())?;
    let pid = Pid::from_raw(child.id().cast_signed());
    signal(&child, Signal::SIGTSTP);
    waitpid(pid, Some(WaitPidFlag::WUNTRACED))?;
    // As a shell ends a stopped job.
    signal(&child, Signal::SIGTERM);
    signal(&child, Signal::SIGCONT);
    stdout.read_to_end(&mut Vec::new())?;
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(output.stderr, b"sandfork: the run was interrupted\n");
    Ok(())
}

fn batch_stops_and_continues() -> Result<(), Failed> {
    let tasks = tempfile::NamedTempFile::new()?;
    let line = |id| {
        let task = json!({
            "id": id,
            "code": "import time; time.sleep(1)",
            "limits": {"wall": "3s"},
        });
        format!("{task}\n")
    };
    std::fs::write(&tasks, [0, 1, 2, 3].map(line).concat())?;
    let path = tasks.path().to_str().unwrap();
    let child = stoppable(&["map", "--jobs", "4", "--no-progress", path]).spawn()?;
    sleep(Duration::from_millis(700));
    stop(&child, 3 * STOPPED);
    let output = child.wait_with_output()?;
    let results = String::from_utf8(output.stdout)?;
    assert_eq!(results.matches("\"status\":\"ok\"").count(), 4, "{results}");
    Ok(())
}
