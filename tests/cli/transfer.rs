//! `--in` and `--out`, and the paths of a plan.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;

use libtest_mimic::Failed;

use super::behaviour::sandfork;
use super::trials;

trials! {
    files_are_copied_in_and_out,
    what_is_no_file_is_not_copied_out,
    a_guest_that_is_ended_replaces_no_result,
    what_cannot_be_copied_is_refused_before_the_run,
    a_plan_lists_a_path_beneath_tmp_as_written,
}

fn run_in(directory: &Path, arguments: &[&str]) -> Result<Output, Failed> {
    let mut command = sandfork(arguments);
    Ok(command.current_dir(directory).output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn files_are_copied_in_and_out() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let inside = |name: &str| directory.path().join(name);
    fs::create_dir(inside("sub"))?;
    fs::write(inside("sub/data.csv"), "a,b\n")?;
    fs::write(inside("result.csv"), "old")?;
    fs::set_permissions(inside("result.csv"), fs::Permissions::from_mode(0o640))?;
    // A file elsewhere has its last name in the sandbox.
    let elsewhere = tempfile::NamedTempFile::new()?;
    fs::write(elsewhere.path(), "c,d\n")?;
    let code = "import sys\n\
        text = open('sub/data.csv').read() + open(sys.argv[1]).read()\n\
        open('result.csv', 'w').write(text)\n\
        open('sub/data.csv', 'w').write('changed')";
    let path = elsewhere.path().to_str().unwrap();
    let name = elsewhere.path().file_name().unwrap().to_str().unwrap();
    let files = ["--in", "sub/data.csv", "--in", path, "--out", "result.csv"];
    let output = run_in(
        directory.path(),
        &[&["run"], &files[..], &["-c", code, name]].concat(),
    )?;
    assert_eq!(said(&output), "");
    assert_eq!(fs::read_to_string(inside("result.csv"))?, "a,b\nc,d\n");
    assert_eq!(fs::read_to_string(inside("sub/data.csv"))?, "a,b\n");
    let result = fs::metadata(inside("result.csv"))?;
    let own = fs::metadata(directory.path())?;
    assert_eq!((result.uid(), result.gid()), (own.uid(), own.gid()));
    assert_eq!(result.mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(directory.path())?.count(), 2);
    let exec = [
        "exec",
        "--in",
        "sub/data.csv",
        "--out",
        "copy",
        "--",
        "cp",
        "sub/data.csv",
        "copy",
    ];
    let output = run_in(directory.path(), &exec)?;
    assert_eq!(said(&output), "");
    assert_eq!(fs::read_to_string(inside("copy"))?, "a,b\n");
    Ok(())
}

fn what_is_no_file_is_not_copied_out() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    for (act, what) in [
        (
            "import os; os.symlink('/etc/passwd', 'result')",
            "symbolic link",
        ),
        ("import os; os.mkfifo('result')", "fifo"),
        ("import os; os.mkdir('result')", "directory"),
        ("pass", "does not exist"),
    ] {
        let output = run_in(directory.path(), &["run", "--out", "result", "-c", act])?;
        assert_eq!(output.status.code(), Some(1), "{act}");
        assert!(
            said(&output).contains("the guest left no file `result`"),
            "{}",
            said(&output)
        );
        assert!(said(&output).contains(what), "{}", said(&output));
        assert!(!directory.path().join("result").exists(), "{act}");
    }
    Ok(())
}

fn a_guest_that_is_ended_replaces_no_result() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let result = directory.path().join("result");
    fs::write(&result, "whole")?;
    let half = "open('result', 'w').write('half')\nwhile True: pass";
    let limited = [
        "run",
        "--set",
        "limits.wall=300ms",
        "--out",
        "result",
        "-c",
        half,
    ];
    let output = run_in(directory.path(), &limited)?;
    assert_eq!(output.status.code(), Some(124), "{}", said(&output));
    assert_eq!(fs::read_to_string(&result)?, "whole");
    // A guest that fails says itself why there is no file, and may have written one.
    let fails = "raise SystemExit(3)";
    let output = run_in(directory.path(), &["run", "--out", "none", "-c", fails])?;
    assert_eq!(
        (output.status.code(), said(&output)),
        (Some(3), String::new())
    );
    let report = "open('result', 'w').write('report')\nraise SystemExit(3)";
    let output = run_in(directory.path(), &["run", "--out", "result", "-c", report])?;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(fs::read_to_string(&result)?, "report");
    Ok(())
}

fn what_cannot_be_copied_is_refused_before_the_run() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let inside = |name: &str| directory.path().join(name);
    fs::write(inside("large"), vec![b'x'; 100_000])?;
    symlink("/etc/passwd", inside("link"))?;
    nix::unistd::mkfifo(&inside("fifo"), nix::sys::stat::Mode::S_IRWXU)?;
    for (arguments, why) in [
        (&["--in", "missing"][..], "does not exist"),
        (&["--in", "."], "does not name a file"),
        (&["--in", "/etc"], "is a directory"),
        (&["--in", "fifo"], "not a regular file"),
        (
            &["--set", "filesystem.work_size=64KiB", "--in", "large"],
            "does not fit",
        ),
        (&["--out", "link"], "something else has the name"),
        (&["--out", "/dev/stdout"], "something else has the name"),
        (&["--out", "none/result"], "its directory does not exist"),
        (&["--out", ".."], "does not name a file"),
    ] {
        let run = [&["run"], arguments, &["-c", "print('ran')"]].concat();
        let output = run_in(directory.path(), &run)?;
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(why),
            "{arguments:?}: {}",
            said(&output)
        );
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
    Ok(())
}

fn a_plan_lists_a_path_beneath_tmp_as_written() -> Result<(), Failed> {
    let directory = tempfile::tempdir_in("/tmp")?;
    fs::create_dir(directory.path().join("results"))?;
    fs::write(directory.path().join("data.csv"), "")?;
    let set = [
        "--set",
        "filesystem.write=results",
        "--set",
        "filesystem.read=./data.csv",
    ];
    let output = run_in(directory.path(), &[&["plan"], &set[..]].concat())?;
    let plan = String::from_utf8(output.stdout)?;
    let shown = |heading: &str, name: &str| {
        let path = directory.path().join(name).display().to_string();
        let mut lines = plan.lines();
        lines.any(|line| line.trim_start().starts_with(heading) && line.contains(&path))
    };
    assert!(shown("writes ", "results"), "{plan}");
    assert!(shown("reads and runs ", "data.csv"), "{plan}");
    Ok(())
}
