//! Tests of the command under signals, with closed streams and at terminals.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use serde_json::{Value, json};

use super::trials;

trials! {
    ctrl_c_ends_the_run_and_reports_it,
    ignored_signal_does_not_end_the_run,
    ignored_sigchld_hides_no_exit_status,
    signal_to_the_process_group_is_reported_as_an_interrupt,
    ctrl_c_leaves_an_outcome_in_json,
    json_is_one_object_and_nothing_else,
    json_has_no_control_characters,
    output_is_truncated_at_the_limit,
    output_is_streamed_while_the_guest_runs,
    closed_stdout_ends_the_run,
    stalled_reader_delays_no_limit,
    stdin_is_passed_if_the_policy_allows,
    script_is_read_from_stdin,
    bytes_pass_unchanged_through_pipes,
    terminal_output_is_escaped,
    file_names_are_escaped_on_terminals,
    callers_umask_affects_only_the_guest,
    plan_requires_secrets_but_does_not_show_them,
}

/// A guest that runs until the command ends it.
const FOREVER: &str = "print('up', flush=True)\nwhile True: pass";

pub fn sandfork(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

/// Returns the guest's first line, and the reader for the rest.
fn first_line(child: &mut Child) -> (String, BufReader<ChildStdout>) {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    (line, stdout)
}

fn ctrl_c_ends_the_run_and_reports_it() -> Result<(), Failed> {
    for sent in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut child = sandfork(&["run", "-c", FOREVER]).spawn()?;
        let (line, _stdout) = first_line(&mut child);
        assert_eq!(line, "up\n");
        signal(&child, sent);
        let output = child.wait_with_output()?;
        assert_eq!(output.status.code(), Some(130), "{sent}");
        assert_eq!(output.stderr, b"sandfork: the run was interrupted\n");
    }
    Ok(())
}

/// Returns the command, to be started with these signals ignored.
fn ignoring(signals: &str, arguments: &[&str]) -> Command {
    let own = sandfork(arguments);
    let mut command = Command::new("env");
    command
        .arg(format!("--ignore-signal={signals}"))
        .arg(own.get_program())
        .args(own.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

// nohup(1) ignores SIGHUP, and the shell of a script ignores SIGINT for a background job.
fn ignored_signal_does_not_end_the_run() -> Result<(), Failed> {
    let code = "import time\nprint('up', flush=True)\ntime.sleep(1)\nprint('down')";
    let mut child = ignoring("HUP,INT", &["run", "-c", code]).spawn()?;
    let (line, mut stdout) = first_line(&mut child);
    assert_eq!(line, "up\n");
    signal(&child, Signal::SIGHUP);
    signal(&child, Signal::SIGINT);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest)?;
    assert_eq!((child.wait()?.code(), rest.as_str()), (Some(0), "down\n"));
    Ok(())
}

// The kernel keeps no exit status for a parent that ignores SIGCHLD.
fn ignored_sigchld_hides_no_exit_status() -> Result<(), Failed> {
    let output = ignoring("CHLD", &["plan"]).output()?;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
    Ok(())
}

fn members(group: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut members: Vec<Pid> = processes.map(Pid::from_raw).collect();
    members.retain(|process| getpgid(Some(*process)) == Ok(group));
    members
}

// timeout(1) and shells signal the whole process group.
fn signal_to_the_process_group_is_reported_as_an_interrupt() -> Result<(), Failed> {
    let mut child = sandfork(&["run", "-c", FOREVER]).process_group(0).spawn()?;
    let (line, _stdout) = first_line(&mut child);
    assert_eq!(line, "up\n");
    let group = Pid::from_raw(child.id().cast_signed());
    // A zygote in the group would die by the signal, with its guest, often before the command interrupts the guest.
    assert_eq!(members(group), [group]);
    killpg(group, Signal::SIGTERM)?;
    let output = child.wait_with_output()?;
    assert_eq!(output.stderr, b"sandfork: the run was interrupted\n");
    assert_eq!(output.status.code(), Some(130));
    Ok(())
}

fn ctrl_c_leaves_an_outcome_in_json() -> Result<(), Failed> {
    const HALF: usize = 1 << 20;
    let code = format!(
        "import sys\nread = sys.stdin.buffer.read\nread({HALF})\nprint('up')\nread({HALF})\n\
         while True: pass"
    );
    let arguments = ["run", "--json", "--set", "stdio.stdin=pass", "-c", &code];
    let mut child = sandfork(&arguments).stdin(Stdio::piped()).spawn()?;
    // No pipe holds half of the input: once all of it is written, the guest has printed.
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&vec![b'.'; 2 * HALF])?;
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output()?;
    let outcome: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(outcome["status"], "interrupted");
    assert_eq!(outcome["exit_code"], 130);
    assert_eq!(outcome["stdout"], "up\n");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(output.stderr, b"");
    Ok(())
}

fn json_is_one_object_and_nothing_else() -> Result<(), Failed> {
    let code = "import sys\nprint('out')\nprint('error', file=sys.stderr)\n1 / 0";
    let output = sandfork(&["run", "--json", "-c", code]).output()?;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, b"");
    let outcome: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(outcome["status"], "exception");
    assert_eq!(outcome["exit_code"], 1);
    assert_eq!(outcome["limit"], Value::Null);
    assert_eq!(outcome["stdout"], "out\n");
    assert_eq!(outcome["stderr"], "error\n");
    assert_eq!(outcome["error"]["name"], "ZeroDivisionError");
    assert_eq!(outcome["error"]["message"], "division by zero");
    assert_eq!(outcome["usage"]["output_bytes"], 10);
    assert_eq!(outcome["policy"]["name"], "standard");
    assert!(
        outcome["enforced"]["layers"]
            .as_array()
            .is_some_and(|layers| layers.len() >= 6)
    );
    assert!(outcome["denied"].is_array());
    Ok(())
}

fn json_has_no_control_characters() -> Result<(), Failed> {
    let code = r"print('\x9b31m \x9d0;title\x9c \x7f \x1b')
raise ValueError('\x85')";
    let outcome = sandfork(&["run", "--json", "-c", code]).output()?;
    let mut map = sandfork(&["map", "-"]).stdin(Stdio::piped()).spawn()?;
    writeln!(
        map.stdin.take().unwrap(),
        "{}",
        json!({"id": "\u{9b}", "code": code})
    )?;
    for output in [outcome, map.wait_with_output()?] {
        let text = String::from_utf8(output.stdout)?;
        let moves = |shown: char| shown.is_control() && shown != '\n';
        assert!(!text.contains(moves), "{text:?}");
        let outcome: Value = serde_json::from_str(&text)?;
        let message = "\u{9b}31m \u{9d}0;title\u{9c} \u{7f} \u{1b}\n";
        assert_eq!(outcome["stdout"], message);
        assert_eq!(outcome["error"]["message"], "\u{85}");
    }
    Ok(())
}

fn output_is_truncated_at_the_limit() -> Result<(), Failed> {
    let flood = "import os\nwhile True: os.write(1, bytes(5000)); os.write(2, bytes(5000))";
    let output = sandfork(&["run", "--set", "limits.output=100KiB", "-c", flood]).output()?;
    assert_eq!(output.status.code(), Some(123));
    let sentence = "sandfork: the run reached its limit of 100KiB of output; \
                    `--set limits.output=200KiB` allows more\n";
    let guests = output.stderr.len() - sentence.len();
    assert_eq!(&output.stderr[guests..], sentence.as_bytes());
    assert_eq!(output.stdout.len() + guests, 100 << 10);
    Ok(())
}

fn output_is_streamed_while_the_guest_runs() -> Result<(), Failed> {
    let started = Instant::now();
    let mut child = sandfork(&["run", "--set", "limits.wall=60s", "-c", FOREVER]).spawn()?;
    let (line, _stdout) = first_line(&mut child);
    assert_eq!(line, "up\n");
    assert!(started.elapsed() < Duration::from_secs(60));
    signal(&child, Signal::SIGINT);
    child.wait()?;
    Ok(())
}

fn closed_stdout_ends_the_run() -> Result<(), Failed> {
    let endless = "while True: print('y')";
    let mut child = sandfork(&["run", "--set", "limits.output=1GiB", "-c", endless]).spawn()?;
    let (line, stdout) = first_line(&mut child);
    assert_eq!(line, "y\n");
    drop(stdout);
    let output = child.wait_with_output()?;
    // The exit code that a shell shows for a writer that SIGPIPE ended.
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(output.stderr, b"");
    Ok(())
}

fn stalled_reader_delays_no_limit() -> Result<(), Failed> {
    let busy = "print('y' * 500_000, flush=True)\nwhile True: pass";
    let child = sandfork(&["run", "--set", "limits.wall=1s", "-c", busy]).spawn()?;
    std::thread::sleep(Duration::from_millis(1500));
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(124));
    // If the supervisor waited for the reader, the limit would end the guest in the middle of its output.
    assert_eq!(output.stdout.len(), 500_001);
    Ok(())
}

fn stdin_is_passed_if_the_policy_allows() -> Result<(), Failed> {
    let read_all = ["-c", "import sys; print(sys.stdin.read(), end='')"];
    for (choice, expected) in [
        (&["-i"][..], "a\nb\n"),
        (&["--set", "stdio.stdin=pass"], "a\nb\n"),
        (&["--set", "stdio.stdin=closed"], ""),
    ] {
        let mut command = sandfork(&[&["run"], choice].concat());
        let mut child = command.args(read_all).stdin(Stdio::piped()).spawn()?;
        // The command may end without reading stdin if the policy closes it.
        let _ = child.stdin.take().unwrap().write_all(b"a\nb\n");
        let output = child.wait_with_output()?;
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            expected,
            "{choice:?}"
        );
    }
    Ok(())
}

fn script_is_read_from_stdin() -> Result<(), Failed> {
    let mut command = sandfork(&["run", "-", "--", "argument"]);
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"import sys\nprint(sys.argv[1])\n1 / 0\n")?;
    let output = child.wait_with_output()?;
    assert_eq!(output.stdout, b"argument\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("File \"<stdin>\", line 3"));
    Ok(())
}

const ESCAPES: &str = r"import os
os.write(1, b'\x1b]0;title\x07\x1b[31mred\xff\n')
os.write(2, b'\x9b2J\xc2\x9b2J\n')
raise ValueError('\x1b[2J')";

fn bytes_pass_unchanged_through_pipes() -> Result<(), Failed> {
    let output = sandfork(&["run", "-c", ESCAPES]).output()?;
    assert_eq!(output.stdout, b"\x1b]0;title\x07\x1b[31mred\xff\n");
    assert!(output.stderr.starts_with(b"\x9b2J\xc2\x9b2J\n"));
    Ok(())
}

/// Returns what the command shows on a terminal.
fn on_a_terminal(arguments: &[&str]) -> Result<String, Failed> {
    let terminal = openpty(None, None)?;
    let end = || -> Result<Stdio, Failed> { Ok(terminal.slave.try_clone()?.into()) };
    let mut child = sandfork(arguments)
        .stdin(end()?)
        .stdout(end()?)
        .stderr(end()?)
        .spawn()?;
    drop(terminal.slave);
    let mut shown = Vec::new();
    // A terminal whose other end is closed returns EIO (pty(7)).
    let _ = File::from(terminal.master).read_to_end(&mut shown);
    child.wait()?;
    Ok(String::from_utf8(shown)?)
}

fn terminal_output_is_escaped() -> Result<(), Failed> {
    let shown = on_a_terminal(&["run", "-c", ESCAPES])?;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.contains(&r"\x1b]0;title\x07\x1b[31mred�"), "{shown}");
    assert!(lines.contains(&r"�2J\x9b2J"), "{shown}");
    assert!(lines.contains(&r"ValueError: \x1b[2J"), "{shown}");
    assert!(
        !shown
            .chars()
            .any(|shown| shown.is_control() && shown != '\r' && shown != '\n')
    );
    Ok(())
}

// File names: a shell expands them, and other people choose them.
fn file_names_are_escaped_on_terminals() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let name = "-\u{9b}2J\x1b[31m\nsandfork: forged";
    let file = directory.path().join(name);
    fs::write(&file, "description = 'x'")?;
    let tasks = directory.path().join("tasks.jsonl");
    fs::write(&tasks, json!({"id": 1, (name): 1}).to_string())?;
    let [path, tasks] = [&file, &tasks].map(|path| path.to_str().unwrap());
    for arguments in [
        &["policy", "check", path][..],
        &["plan", "--policy", path],
        &["run", name],
        &["map", path],
        &["map", tasks],
        &["map", tasks, "--output", path],
        &["run", "--policy", name, "-c", "1"],
        &["run", "--set", name, "-c", "1"],
    ] {
        let shown = on_a_terminal(arguments)?;
        let moves = |shown: char| shown.is_control() && !['\r', '\n'].contains(&shown);
        assert!(!shown.contains(moves), "{arguments:?}: {shown:?}");
        assert!(
            !shown.contains("\nsandfork: forged"),
            "{arguments:?}: {shown:?}"
        );
        let is_escaped = [r"\x9b", r"\u{9b}"].iter().any(|form| shown.contains(form));
        assert!(is_escaped, "{arguments:?}: {shown:?}");
    }
    Ok(())
}

// Under root, a worker has a different uid than the owner of the directories of its root.
fn callers_umask_affects_only_the_guest() -> Result<(), Failed> {
    let code = "import os; print(open('/etc/hostname').read(), oct(os.umask(0)), oct(os.stat('/etc').st_mode))";
    let run = sandfork(&["run", "-c", code]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077 && exec \"$0\" \"$@\""]);
    let output = shell.arg(run.get_program()).args(run.get_args()).output()?;
    let streams =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(
        streams,
        ["sandfork\n 0o77 0o40755\n".to_owned(), String::new()]
    );
    Ok(())
}

fn plan_requires_secrets_but_does_not_show_them() -> Result<(), Failed> {
    let policy = "network.allow = [{ host = \"api.example.org\", credential = \
                  { header = \"Authorization\", value = \"Bearer ${SANDFORK_TEST_TOKEN}\" } }]\n\
                  env.pass = [\"SANDFORK_TEST_PASSED\"]\n";
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("tenant.toml");
    fs::write(&path, policy)?;
    let path = path.display().to_string();
    for arguments in [
        &["plan", "--policy", &path] as &[&str],
        &["plan", "--json", "--policy", &path],
        &["policy", "check", &path],
    ] {
        let with = |token: Option<&str>| {
            let mut command = sandfork(arguments);
            command.env("SANDFORK_TEST_PASSED", "hunter2");
            command.env_remove("SANDFORK_TEST_TOKEN");
            command.envs(token.map(|token| ("SANDFORK_TEST_TOKEN", token)));
            command.output()
        };
        let set = with(Some("s3cret"))?;
        assert!(set.status.success(), "{set:?}");
        let printed = String::from_utf8([set.stdout, set.stderr].concat())?;
        for secret in ["s3cret", "hunter2"] {
            assert!(!printed.contains(secret), "{printed}");
        }
        let unset = with(None)?;
        assert_eq!(unset.status.code(), Some(125), "{unset:?}");
        let message = String::from_utf8(unset.stderr)?;
        assert!(message.contains("export SANDFORK_TEST_TOKEN"), "{message}");
    }
    Ok(())
}
