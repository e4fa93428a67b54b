//! Tests of `sandfork learn` and `sandfork policy diff`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::Signal;

use super::behaviour::{sandfork, signal};
use super::shell::Person;
use super::trials;

trials! {
    learned_policy_allows_the_script_and_gives_reasons,
    new_file_makes_its_directory_writable,
    user_is_prompted_and_may_decline,
    unneeded_settings_are_left_out,
    ctrl_c_writes_no_policy,
    unreported_system_call_is_learned,
    failing_script_writes_no_policy,
    invalid_input_is_rejected_before_a_run,
    option_after_the_script_is_noticed,
    two_policies_are_compared,
}

/// Creates a directory that a guest does not see, with a script that reads a file in it.
fn scene() -> Result<tempfile::TempDir, Failed> {
    let directory = tempfile::tempdir_in("/var/tmp")?;
    let data = directory.path().join("data.csv");
    fs::write(&data, "1,2\n")?;
    let script = format!("print(open({:?}).read())\n", data.display().to_string());
    fs::write(directory.path().join("reads.py"), script)?;
    Ok(directory)
}

fn in_scene(scene: &Path, arguments: &[&str]) -> Result<Output, Failed> {
    Ok(sandfork(arguments).current_dir(scene).output()?)
}

fn learned_policy_allows_the_script_and_gives_reasons() -> Result<(), Failed> {
    let scene = scene()?;
    let run = |arguments: &[&str]| in_scene(scene.path(), arguments);
    assert_eq!(run(&["run", "reads.py"])?.status.code(), Some(1));
    let accept = format!("read:{}", scene.path().display());
    let learnt = run(&[
        "learn",
        "--accept",
        &accept,
        "-o",
        "learnt.toml",
        "reads.py",
    ])?;
    assert!(learnt.status.success(), "{learnt:?}");
    let policy = fs::read_to_string(scene.path().join("learnt.toml"))?;
    let data = scene.path().join("data.csv");
    let (data, script) = (data.display(), scene.path().join("reads.py"));
    let line = format!("\"{data}\", # access {data} ({}:1)", script.display());
    assert!(policy.contains(&line), "{policy}");
    let passes = run(&["run", "--policy", "./learnt.toml", "reads.py"])?;
    assert_eq!(String::from_utf8_lossy(&passes.stdout), "1,2\n\n");
    Ok(())
}

// A path that an earlier answer or `--set` made readable becomes writable instead.
fn new_file_makes_its_directory_writable() -> Result<(), Failed> {
    let scene = scene()?;
    let place = scene.path().join("results");
    fs::create_dir(&place)?;
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777))?;
    let place = place.display();
    let code = format!("import os\nos.listdir('{place}')\nopen('{place}/new', 'w').close()");
    let set = format!("filesystem.read={place}");
    for arguments in [
        &["learn", "--accept", "read,write", "-c", &code][..],
        &["learn", "--set", &set, "--accept", "write", "-c", &code],
    ] {
        let learnt = sandfork(arguments).output()?;
        assert!(learnt.status.success(), "{learnt:?}");
        let policy = String::from_utf8(learnt.stdout)?;
        assert!(
            policy.contains(&format!("write = [\n  \"{place}\",")),
            "{policy}"
        );
        assert!(!policy.contains("read ="), "{policy}");
        fs::remove_file(scene.path().join("results/new"))?;
    }
    Ok(())
}

fn user_is_prompted_and_may_decline() -> Result<(), Failed> {
    let scene = scene()?;
    let script = scene.path().join("reads.py");
    let output = scene.path().join("learnt.toml");
    let arguments = [
        "learn",
        "-o",
        output.to_str().unwrap(),
        script.to_str().unwrap(),
    ];
    let mut person = Person::with(&arguments)?;
    person.see("[q] stop: ")?;
    person.types("n\r")?;
    person.see("no policy was written")?;
    assert_eq!(person.code()?, Some(1));
    assert!(!output.exists());
    let mut person = Person::with(&arguments)?;
    person.see("[q] stop: ")?;
    person.types("y\r")?;
    person.see("lets the script pass")?;
    assert_eq!(person.code()?, Some(0));
    assert!(fs::read_to_string(output)?.contains("data.csv"));
    Ok(())
}

/// Causes two refusals in one run; the script survives the first.
const SURVIVES: &str = "
try:
    import wave
except ImportError:
    pass
import socket
socket.create_server(('127.0.0.1', 0))
";

fn unneeded_settings_are_left_out() -> Result<(), Failed> {
    let arguments = [
        "learn",
        "--set",
        "imports.allow=[\"socket\"]",
        "--accept",
        "import,net",
        "-c",
        SURVIVES,
    ];
    let learnt = sandfork(&arguments).output()?;
    assert!(learnt.status.success(), "{learnt:?}");
    let policy = String::from_utf8(learnt.stdout)?;
    let message = String::from_utf8(learnt.stderr)?;
    assert!(policy.contains("mode = \"loopback\""), "{policy}");
    assert!(!policy.contains("wave"), "{policy}");
    assert!(
        message.contains("not needed: imports.allow=wave"),
        "{message}"
    );
    Ok(())
}

// The interrupt comes while `learn` tries to leave out a setting, without which the script waits.
fn ctrl_c_writes_no_policy() -> Result<(), Failed> {
    let marks = tempfile::tempdir_in("/var/tmp")?;
    // Writable for the user as whom guests run.
    fs::set_permissions(marks.path(), fs::Permissions::from_mode(0o777))?;
    let mark = marks.path().join("waits");
    let waits = format!(
        "import time; open('{}', 'w').close(); time.sleep(3600)",
        mark.display()
    );
    let code = format!("{SURVIVES}import sys\nif 'wave' not in sys.modules:\n    {waits}\n");
    let write = format!("filesystem.write={}", marks.path().display());
    let mut arguments = vec!["learn", "--accept", "import,net"];
    for set in [
        "imports.allow=[\"socket\", \"sys\", \"time\"]",
        "limits.wall=1h",
        &write,
    ] {
        arguments.extend(["--set", set]);
    }
    let child = sandfork(&[&arguments[..], &["-c", &code]].concat()).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !mark.exists() {
        assert!(Instant::now() < deadline, "it does not wait");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&child, Signal::SIGINT);
    let ended = child.wait_with_output()?;
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
    let message = String::from_utf8(ended.stderr)?;
    assert!(
        message.contains("interrupted: no policy was written"),
        "{message}"
    );
    Ok(())
}

// No exception contains the call's error. The script reports only that it failed.
fn unreported_system_call_is_learned() -> Result<(), Failed> {
    let code = "import ctypes, os
(r, w), (_, out) = os.pipe(), os.pipe()
os.write(w, b'x')
raise SystemExit(ctypes.CDLL(None).splice(r, None, out, None, ctypes.c_size_t(1), 0) != 1)";
    let learnt = sandfork(&["learn", "--accept", "syscall:splice", "-c", code]).output()?;
    assert!(learnt.status.success(), "{learnt:?}");
    let policy = String::from_utf8(learnt.stdout)?;
    assert!(policy.contains("[syscalls]"), "{policy}");
    assert!(
        policy.contains("# system call splice by seccomp"),
        "{policy}"
    );
    Ok(())
}

fn failing_script_writes_no_policy() -> Result<(), Failed> {
    let scene = scene()?;
    let run = |arguments: &[&str]| in_scene(scene.path(), arguments);
    let declined = [
        "learn",
        "--accept",
        "read:/srv",
        "-o",
        "learnt.toml",
        "reads.py",
    ];
    let declined = run(&declined)?;
    assert_eq!(declined.status.code(), Some(1));
    let message = String::from_utf8(declined.stderr)?;
    assert!(message.contains("No such file"), "{message}");
    assert!(message.contains("no policy was written"), "{message}");
    let fails = run(&["learn", "--accept", "read", "-c", "raise SystemExit(7)"])?;
    assert_eq!(fails.status.code(), Some(7));
    assert!(fails.stdout.is_empty());
    assert!(!scene.path().join("learnt.toml").exists());
    Ok(())
}

fn invalid_input_is_rejected_before_a_run() -> Result<(), Failed> {
    let scene = scene()?;
    fs::write(scene.path().join("there.toml"), "mine")?;
    for (arguments, message) in [
        (
            &["learn", "reads.py"][..],
            "so no one can answer: use `--accept`",
        ),
        (
            &["learn", "--accept", "all", "reads.py"],
            "`all` is none of read, write",
        ),
        (&["learn", "--accept", "read", "missing.py"], "missing.py"),
        (
            &["learn", "--accept", "read", "-o", "there.toml", "reads.py"],
            "`there.toml` exists",
        ),
    ] {
        let refused = sandfork(arguments)
            .current_dir(scene.path())
            .stdin(std::process::Stdio::null())
            .output()?;
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let stderr = String::from_utf8(refused.stderr)?;
        assert!(stderr.contains(message), "{stderr}");
    }
    assert_eq!(fs::read_to_string(scene.path().join("there.toml"))?, "mine");
    Ok(())
}

fn option_after_the_script_is_noticed() -> Result<(), Failed> {
    let scene = scene()?;
    fs::write(scene.path().join("passes.py"), "pass\n")?;
    let note = "comes after the script, so the script gets it as an argument";
    for (arguments, option) in [
        (
            &["learn", "--accept", "read", "passes.py", "-o", "x"][..],
            Some("-o x"),
        ),
        (
            &["learn", "--accept", "read", "passes.py", "--output=x"],
            Some("--output x"),
        ),
        (
            &["learn", "passes.py", "--accept", "read:/srv,import"],
            Some("--accept read:/srv,import"),
        ),
        // `learn` has an option of the same name.
        (
            &[
                "learn",
                "--accept",
                "read",
                "-o",
                "own",
                "passes.py",
                "-o",
                "x",
            ],
            None,
        ),
        (
            &["learn", "--accept", "read", "passes.py", "--", "-o", "x"],
            None,
        ),
        (&["run", "passes.py", "-o", "x"], None),
    ] {
        let message = String::from_utf8(in_scene(scene.path(), arguments)?.stderr)?;
        match option {
            Some(option) => assert!(message.contains(&format!("`{option}` {note}")), "{message}"),
            None => assert!(!message.contains(note), "{arguments:?}: {message}"),
        }
    }
    Ok(())
}

fn two_policies_are_compared() -> Result<(), Failed> {
    let scene = scene()?;
    fs::write(
        scene.path().join("mine.toml"),
        "extends = \"standard\"\n[limits]\nwall = \"2s\"\n[filesystem]\nread = [\"/srv\"]\n",
    )?;
    let run = |arguments: &[&str]| in_scene(scene.path(), arguments);
    let differ = run(&["policy", "diff", "standard", "./mine.toml"])?;
    assert_eq!(differ.status.code(), Some(1));
    let lines = String::from_utf8(differ.stdout)?;
    let lines: Vec<Vec<&str>> = lines
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines,
        [
            vec!["wider", "filesystem.read", "+", "/srv"],
            vec!["narrower", "limits.wall", "30s", "->", "2s"],
        ]
    );
    let same = run(&["policy", "diff", "standard", "standard"])?;
    assert_eq!((same.status.code(), same.stdout.len()), (Some(0), 0));
    let missing = run(&["policy", "diff", "standard", "./missing.toml"])?;
    assert_eq!(missing.status.code(), Some(2));
    Ok(())
}
