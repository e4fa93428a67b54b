//! Tests of `sandfork map`: interruption, full disks, resumption, terminals.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::pty::openpty;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::behaviour::{sandfork, signal};
use super::trials;

trials! {
    ctrl_c_finishes_running_tasks_and_allows_a_resume,
    ctrl_c_cancels_long_tasks,
    a_second_ctrl_c_ends_the_command,
    ctrl_c_ends_a_wait_for_a_reader,
    ctrl_c_ends_a_wait_for_tasks,
    file_size_limit_leaves_whole_results,
    full_stdout_file_has_whole_results,
    closed_stdout_ends_the_batch,
    long_result_is_streamed,
    tasks_without_a_sandbox_run_again_on_resume,
    unsupported_policy_is_tried_once,
    tasks_from_a_pipe_run_as_they_arrive,
    killed_zygote_loses_no_task,
    results_keep_the_order_of_the_tasks,
    task_script_finds_its_own_file,
    progress_bar_is_shown_on_a_terminal,
    progress_bar_is_shown_if_results_go_to_a_file,
    no_progress_bar_if_results_go_to_the_terminal,
}

/// A directory with a task file.
pub struct Batch {
    pub directory: TempDir,
}

impl Batch {
    /// Creates a batch with the tasks 0, 1, 2, ... and their code.
    pub fn new(codes: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let batch = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let mut text = String::new();
        for (id, code) in codes.into_iter().enumerate() {
            let task = json!({"id": id, "code": code.as_ref()});
            writeln!(text, "{task}").unwrap();
        }
        fs::write(batch.tasks(), text).unwrap();
        batch
    }

    pub fn tasks(&self) -> PathBuf {
        self.directory.path().join("tasks.jsonl")
    }

    pub fn results(&self) -> PathBuf {
        self.directory.path().join("results.jsonl")
    }

    /// Returns the mount point for a small file system.
    pub fn disk(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// Returns `sandfork map` with its output to the results file.
    pub fn map(&self, arguments: &[&str]) -> Command {
        let mut command = sandfork(&["map"]);
        command
            .arg(self.tasks())
            .arg("--output")
            .arg(self.results())
            .args(arguments);
        command
    }

    /// Parses the results, by id. Panics at a line that is not a result and at a duplicate id.
    pub fn read(&self) -> HashMap<i64, Value> {
        let text = fs::read_to_string(self.results()).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        let mut results = HashMap::new();
        for line in text.lines() {
            let result: Value = serde_json::from_str(line).unwrap();
            let id = result["id"].as_i64().unwrap();
            assert!(results.insert(id, result).is_none(), "{id} stands twice");
        }
        results
    }

    /// Waits until the results file has `count` lines.
    pub fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(self.results()).map_or(0, |text| text.lines().count()) < count {
            assert!(Instant::now() < deadline, "there are not {count} results");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

pub fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const QUICK: &str = "1 + 1";
const FOREVER: &str = "while True: pass";

fn ctrl_c_finishes_running_tasks_and_allows_a_resume() -> Result<(), Failed> {
    let batch = Batch::new(vec!["import time; time.sleep(0.05)"; 60]);
    let child = batch.map(&["--jobs", "2"]).spawn()?;
    batch.wait_for(6);
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(130), "{}", stderr_of(&output));
    let last = "sandfork: interrupted: `--resume` continues where it stopped\n";
    assert!(stderr_of(&output).ends_with(last), "{}", stderr_of(&output));
    let first = batch.read();
    assert!((6..60).contains(&first.len()), "{}", first.len());
    assert!(first.values().all(|result| result["status"] == "ok"));
    let output = batch.map(&["--resume"]).output()?;
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let before = format!("; {} tasks had a result already\n", first.len());
    assert!(
        stderr_of(&output).ends_with(&before),
        "{}",
        stderr_of(&output)
    );
    let all = batch.read();
    assert_eq!(all.len(), 60);
    // Earlier results are unchanged.
    assert!(first.iter().all(|(id, result)| all[id] == *result));
    Ok(())
}

fn ctrl_c_cancels_long_tasks() -> Result<(), Failed> {
    let batch = Batch::new([QUICK, FOREVER, QUICK, QUICK, QUICK]);
    let child = batch.map(&["--jobs", "2"]).spawn()?;
    batch.wait_for(4);
    let asked = Instant::now();
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(130), "{}", stderr_of(&output));
    // Long before the task's own limit of 30 seconds.
    assert!(asked.elapsed() < Duration::from_secs(25));
    assert!(
        !batch.read().contains_key(&1),
        "it was called off, and has no result"
    );
    let output = batch
        .map(&["--resume", "--set", "limits.wall=100ms"])
        .output()?;
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let all = batch.read();
    assert_eq!((all.len(), &all[&1]["status"]), (5, &json!("timeout")));
    Ok(())
}

fn a_second_ctrl_c_ends_the_command() -> Result<(), Failed> {
    // The second signal may come too late on a busy machine: the task is cancelled two seconds after the first.
    for _ in 0..5 {
        let message = interrupted_twice()?;
        if message.is_empty() {
            return Ok(());
        }
        assert!(message.contains("interrupted: `--resume`"), "{message}");
    }
    Err("the second signal did not end it".into())
}

/// Returns the command's message, which is empty if the second signal ends the command.
fn interrupted_twice() -> Result<String, Failed> {
    let batch = Batch::new([QUICK, FOREVER]);
    let child = batch.map(&["--jobs", "1"]).spawn()?;
    batch.wait_for(1);
    signal(&child, Signal::SIGINT);
    // Two pending signals of the same number are merged (signal(7)).
    while is_pending(&child, Signal::SIGINT)? {
        thread::sleep(Duration::from_millis(5));
    }
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(batch.read().len(), 1);
    Ok(stderr_of(&output))
}

/// Returns whether a signal is pending for the process (proc_pid_status(5)).
fn is_pending(child: &Child, signal: Signal) -> Result<bool, Failed> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = u64::from_str_radix(
        pending.ok_or("the kernel names no pending signals")?.trim(),
        16,
    )?;
    Ok(pending & (1 << (signal as i32 - 1)) != 0)
}

fn ctrl_c_ends_a_wait_for_tasks() -> Result<(), Failed> {
    let batch = Batch::new([] as [&str; 0]);
    let mut child = sandfork(&["map", "-", "--output"])
        .arg(batch.results())
        .stdin(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", json!({"id": 0, "code": QUICK}))?;
    batch.wait_for(1);
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(130), "{}", stderr_of(&output));
    drop(stdin);
    Ok(())
}

fn ctrl_c_ends_a_wait_for_a_reader() -> Result<(), Failed> {
    // More than a pipe holds.
    let batch = Batch::new(["print('x' * (1 << 20))"]);
    let mut child = sandfork(&["map"]).arg(batch.tasks()).spawn()?;
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0])?;
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(130), "{}", stderr_of(&output));
    let sentence = "sandfork: interrupted: stdout was not read to the end of the results\n";
    assert_eq!(stderr_of(&output), sentence);
    Ok(())
}

/// The file size limit in KiB: far above the size of the worker library, which is a memory file and subject to it.
const FULL: usize = 16 << 10;

/// Returns `sandfork map` under a file size limit of [`FULL`].
fn with_file_size_limit(map: &Command) -> Command {
    let mut command = Command::new("bash");
    let script = format!("ulimit -f {FULL}; exec \"$0\" \"$@\"");
    command
        .args(["-c", &script])
        .arg(map.get_program())
        .args(map.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Fills the results file up to `room` bytes below the limit.
fn fill(batch: &Batch, room: usize) {
    let mut result = json!({"id": -1, "status": "ok", "stdout": ""});
    let length = (FULL << 10) - room - result.to_string().len() - 1;
    result["stdout"] = "x".repeat(length).into();
    fs::write(batch.results(), format!("{result}\n")).unwrap();
}

fn file_size_limit_leaves_whole_results() -> Result<(), Failed> {
    let batch = Batch::new(vec!["print('x' * 1000)"; 40]);
    fill(&batch, 16 << 10);
    let arguments = ["--resume", "--set", "limits.file_size=1KiB"];
    let output = with_file_size_limit(&batch.map(&arguments)).output()?;
    assert_eq!(output.status.code(), Some(1), "{}", stderr_of(&output));
    let first = batch.read();
    assert!((3..20).contains(&first.len()), "{}", first.len());
    let sentence = format!(
        "File too large (os error 27); {} of them were written, and `--resume` continues after them when \
         there is room\n",
        first.len()
    );
    assert!(
        stderr_of(&output).ends_with(&sentence),
        "{}",
        stderr_of(&output)
    );
    let output = batch.map(&arguments).output()?;
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let all = batch.read();
    assert_eq!(all.len(), 41);
    assert!(first.iter().all(|(id, result)| all[id] == *result));
    Ok(())
}

fn full_stdout_file_has_whole_results() -> Result<(), Failed> {
    let batch = Batch::new(vec!["print('x' * 1000)"; 40]);
    fill(&batch, 16 << 10);
    let mut map = sandfork(&["map", "--set", "limits.file_size=1KiB"]);
    map.arg(batch.tasks());
    let results = File::options().append(true).open(batch.results())?;
    let output = with_file_size_limit(&map).stdout(results).output()?;
    assert_eq!(output.status.code(), Some(1), "{}", stderr_of(&output));
    assert!(
        stderr_of(&output).contains("cannot be written to stdout"),
        "{}",
        stderr_of(&output)
    );
    assert!((3..20).contains(&batch.read().len()));
    Ok(())
}

fn closed_stdout_ends_the_batch() -> Result<(), Failed> {
    let batch = Batch::new(vec![QUICK; 2000]);
    let mut child = sandfork(&["map"]).arg(batch.tasks()).spawn()?;
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first)?;
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(141));
    assert!(
        !stderr_of(&output).contains("cannot be written"),
        "{}",
        stderr_of(&output)
    );
    assert!(
        !stderr_of(&output).contains("2000 tasks"),
        "{}",
        stderr_of(&output)
    );
    Ok(())
}

fn long_result_is_streamed() -> Result<(), Failed> {
    const OUTPUT: usize = 16 << 20;
    // JSON escapes each byte as six.
    let batch = Batch::new([format!("print('\\x01' * {OUTPUT}, end='')")]);
    let mut map = sandfork(&["map", "--set", "limits.output=16MiB"]);
    let mut child = map.arg(batch.tasks()).spawn()?;
    let mut stdout = child.stdout.take().unwrap();
    let mut beginning = vec![0; OUTPUT];
    stdout.read_exact(&mut beginning)?;
    // The rest waits for its reader.
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: usize = peak
        .ok_or("no peak memory")?
        .trim_end_matches("kB")
        .trim()
        .parse()?;
    assert!(peak << 10 < 6 * OUTPUT, "{peak} KiB");
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest)?;
    assert!(beginning.len() + rest.len() > 6 * OUTPUT);
    assert_eq!(child.wait()?.code(), Some(0));
    Ok(())
}

fn tasks_without_a_sandbox_run_again_on_resume() -> Result<(), Failed> {
    let batch = Batch::new(vec![QUICK; 4]);
    let missing = batch.directory.path().join("none/bin/python");
    let policy = batch.directory.path().join("other.toml");
    let write = |python: &str| fs::write(&policy, format!("[python]\ninterpreter = {python:?}\n"));
    let mut tasks = fs::read_to_string(batch.tasks())?;
    let other = json!({"id": 4, "code": QUICK, "policy": policy.to_str()});
    writeln!(tasks, "{other}").unwrap();
    fs::write(batch.tasks(), tasks)?;
    write(&missing.display().to_string())?;
    let output = batch.map(&[]).output()?;
    assert_eq!(output.status.code(), Some(125), "{}", stderr_of(&output));
    assert!(
        stderr_of(&output).contains("4 ok, 0 failed, 1 without a sandbox"),
        "{}",
        stderr_of(&output)
    );
    let lost = &batch.read()[&4];
    assert_eq!(lost["status"], "infrastructure");
    assert_eq!(lost["error"]["name"], "Interpreter");
    assert_eq!(lost["attempts"], 4);
    write("python3")?;
    let output = batch.map(&["--resume"]).output()?;
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    assert_eq!(batch.read()[&4]["status"], "ok");
    Ok(())
}

fn unsupported_policy_is_tried_once() -> Result<(), Failed> {
    let batch = Batch::new([QUICK]);
    let policy = batch.directory.path().join("other.toml");
    let missing = batch.directory.path().join("none").display().to_string();
    fs::write(&policy, format!("[filesystem]\nread = [{missing:?}]\n"))?;
    let task = json!({"id": 0, "code": QUICK, "policy": policy.to_str()});
    fs::write(batch.tasks(), format!("{task}\n"))?;
    let output = batch.map(&[]).output()?;
    assert_eq!(output.status.code(), Some(125), "{}", stderr_of(&output));
    let lost = &batch.read()[&0];
    assert_eq!(lost["status"], "infrastructure");
    assert_eq!(lost["error"]["name"], "Host");
    assert_eq!(lost.get("attempts"), None, "{lost}");
    Ok(())
}

fn tasks_from_a_pipe_run_as_they_arrive() -> Result<(), Failed> {
    let batch = Batch::new([] as [&str; 0]);
    let mut child = sandfork(&["map", "-", "--output"])
        .arg(batch.results())
        .stdin(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().unwrap();
    for id in 0..20 {
        writeln!(stdin, "{}", json!({"id": id, "code": QUICK}))?;
        // Before the next task is written.
        batch.wait_for(id + 1);
    }
    drop(stdin);
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    assert_eq!(batch.read().len(), 20);
    Ok(())
}

/// Returns all descendants of a process.
pub fn descendants(pid: u32) -> Vec<u32> {
    let children = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            let pids = text.split_whitespace().map(|pid| pid.parse().unwrap());
            pids.collect::<Vec<u32>>()
        });
    children
        .flat_map(|child| [vec![child], descendants(child)].concat())
        .collect()
}

fn killed_zygote_loses_no_task() -> Result<(), Failed> {
    let batch = Batch::new(vec!["import time; time.sleep(0.02)"; 200]);
    let child = batch.map(&["--jobs", "2"]).spawn()?;
    for results in [5, 60] {
        batch.wait_for(results);
        for pid in descendants(child.id()) {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
            // The process may have ended meanwhile.
            _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
        }
    }
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let results = batch.read();
    assert_eq!(results.len(), 200);
    let ended = |status: &str| results.values().filter(|it| it["status"] == status).count();
    // A guest that died before its zygote's end was noticed is reported as ended by a signal.
    assert_eq!(ended("ok") + ended("signal"), 200, "{results:?}");
    assert!(ended("ok") > 190, "{results:?}");
    Ok(())
}

fn results_keep_the_order_of_the_tasks() -> Result<(), Failed> {
    let codes =
        (0..60).map(|number| format!("import time; time.sleep({})", (number % 7) * 5 / 1000));
    let batch = Batch::new(codes);
    let output = sandfork(&["map", "--ordered", "--jobs", "4"])
        .arg(batch.tasks())
        .output()?;
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let ids: Vec<i64> = String::from_utf8(output.stdout)?
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["id"]
                .as_i64()
                .unwrap()
        })
        .collect();
    assert!(ids.into_iter().eq(0..60));
    Ok(())
}

/// A task that runs from its own file: spawned processes import that file, and `inspect` reads it.
const OWN_FILE: &str = "
import inspect, multiprocessing, os
def double(number):
    return 2 * number
if __name__ == '__main__':
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        print(pool.map(double, [3])[0], os.path.abspath(__file__), len(inspect.getsource(double).splitlines()))
";

fn task_script_finds_its_own_file() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::create_dir(directory.path().join("beneath"))?;
    fs::write(directory.path().join("beneath/script.py"), OWN_FILE)?;
    let absolute = directory.path().join("beneath/script.py");
    let tasks = [
        json!({"id": 1, "file": "beneath/script.py"}),
        json!({"id": 2, "file": absolute}),
    ];
    let mut lines = String::new();
    for task in &tasks {
        writeln!(lines, "{task}")?;
    }
    fs::write(directory.path().join("tasks.jsonl"), lines)?;
    let mut map = sandfork(&["map", "--ordered", "tasks.jsonl"]);
    let output = map.current_dir(directory.path()).output()?;
    let results = String::from_utf8(output.stdout)?;
    let results: Result<Vec<Value>, _> = results.lines().map(serde_json::from_str).collect();
    let results = results?;
    let outputs: Vec<&str> = results
        .iter()
        .map(|result| result["stdout"].as_str().unwrap())
        .collect();
    assert_eq!(
        outputs,
        ["6 /work/beneath/script.py 2\n", "6 /work/script.py 2\n"],
        "{results:#?}"
    );
    Ok(())
}

/// Creates a batch that is half done for a while, long enough for a progress bar.
fn slow() -> Batch {
    let sleeps = "import time; time.sleep(1.5)";
    Batch::new([QUICK, QUICK, sleeps, sleeps])
}

/// Runs the command with a terminal as stderr, and as stdout too if that is `None`. Returns what the terminal shows.
fn on_a_terminal(mut command: Command, stdout: Option<Stdio>) -> Result<(String, Child), Failed> {
    let terminal = openpty(None, None)?;
    let end = || -> Result<Stdio, Failed> { Ok(terminal.slave.try_clone()?.into()) };
    let stdout = stdout.map_or_else(end, Ok)?;
    command.env("TERM", "xterm").stdout(stdout).stderr(end()?);
    let child = command.spawn()?;
    // They hold descriptors of the terminal.
    drop((command, terminal.slave));
    let mut shown = Vec::new();
    // A terminal whose other end is closed returns EIO (pty(7)).
    _ = File::from(terminal.master).read_to_end(&mut shown);
    Ok((String::from_utf8(shown)?, child))
}

const BAR: &str = "% 2 done, 0 failed, ";

fn progress_bar_is_shown_if_results_go_to_a_file() -> Result<(), Failed> {
    let batch = slow();
    let (shown, mut child) = on_a_terminal(batch.map(&["--jobs", "2"]), None)?;
    assert_eq!(child.wait()?.code(), Some(0));
    assert!(shown.contains(BAR), "{shown:?}");
    let mut to_stdout = sandfork(&["map", "--jobs", "2"]);
    to_stdout.arg(batch.tasks());
    let file = File::create(batch.directory.path().join("stdout"))?;
    let (shown, mut child) = on_a_terminal(to_stdout, Some(file.into()))?;
    assert_eq!(child.wait()?.code(), Some(0));
    assert!(shown.contains(BAR), "{shown:?}");
    Ok(())
}

// Result lines and the progress bar would mix.
fn no_progress_bar_if_results_go_to_the_terminal() -> Result<(), Failed> {
    let batch = slow();
    let map = || {
        let mut command = sandfork(&["map", "--jobs", "2"]);
        command.arg(batch.tasks());
        command
    };
    let (shown, mut child) = on_a_terminal(map(), None)?;
    assert_eq!(child.wait()?.code(), Some(0));
    assert_eq!(shown.lines().count(), 5, "{shown:?}");
    assert!(!shown.contains("\u{1b}[2K"), "{shown:?}");
    let (mut reader, writer) = std::io::pipe()?;
    let (shown, mut child) = on_a_terminal(map(), Some(writer.into()))?;
    let mut results = String::new();
    reader.read_to_string(&mut results)?;
    assert_eq!(child.wait()?.code(), Some(0));
    assert_eq!(results.lines().count(), 4);
    assert!(shown.starts_with("sandfork: 4 tasks in "), "{shown:?}");
    let mut to_the_terminal = map();
    to_the_terminal.args(["--output", "/dev/stdout"]);
    let (shown, mut child) = on_a_terminal(to_the_terminal, None)?;
    assert_eq!(child.wait()?.code(), Some(0));
    assert!(!shown.contains("\u{1b}[2K"), "{shown:?}");
    Ok(())
}

fn progress_bar_is_shown_on_a_terminal() -> Result<(), Failed> {
    let batch = slow();
    for (arguments, bar) in [(&["--jobs", "2"][..], true), (&["--no-progress"], false)] {
        _ = fs::remove_file(batch.results());
        let terminal = openpty(None, None)?;
        let mut child = batch
            .map(arguments)
            .env("TERM", "xterm")
            .stderr(Stdio::from(terminal.slave.try_clone()?))
            .spawn()?;
        drop(terminal.slave);
        let mut shown = Vec::new();
        // A terminal whose other end is closed returns EIO (pty(7)).
        _ = File::from(terminal.master).read_to_end(&mut shown);
        assert_eq!(child.wait()?.code(), Some(0));
        let shown = String::from_utf8(shown)?;
        let drawn: Vec<&str> = shown.split("\r\u{1b}[2K").collect();
        let last = drawn.last().copied().unwrap_or_default();
        assert!(last.starts_with("sandfork: 4 tasks in "), "{shown:?}");
        assert_eq!(drawn.len() > 3, bar, "{shown:?}");
        if bar {
            assert!(
                drawn
                    .iter()
                    .any(|line| line.contains("% 2 done, 0 failed, ")),
                "{shown:?}"
            );
        }
    }
    Ok(())
}
