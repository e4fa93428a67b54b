//! Tests of `--in` and `--out`, and of the paths in a plan.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;

use libtest_mimic::Failed;

use super::behaviour::sandfork;
use super::trials;

trials! {
    files_are_copied_in_and_out,
    sparse_file_is_copied_out,
    non_regular_files_are_not_copied_out,
    killed_guest_replaces_no_output_file,
    invalid_transfers_are_rejected_before_the_run,
    written_files_belong_to_the_directorys_owner,
    plan_shows_paths_below_tmp_as_written,
}

fn run_in(directory: &Path, arguments: &[&str]) -> Result<Output, Failed> {
    let mut command = sandfork(arguments);
    Ok(command.current_dir(directory).output()?)
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn files_are_copied_in_and_out() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let inside = |name: &str| directory.path().join(name);
    fs::create_dir(inside("sub"))?;
    fs::write(inside("sub/data.csv"), "a,b\n")?;
    fs::write(inside("result.csv"), "old")?;
    fs::set_permissions(inside("result.csv"), fs::Permissions::from_mode(0o640))?;
    // A file from elsewhere keeps its last path component in the sandbox.
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
    assert_eq!(stderr_of(&output), "");
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
    assert_eq!(stderr_of(&output), "");
    assert_eq!(fs::read_to_string(inside("copy"))?, "a,b\n");
    Ok(())
}

// A sparse file may be larger than the work directory.
fn sparse_file_is_copied_out() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let code = "with open('result', 'wb') as file: file.truncate(3 << 20); file.seek(-1, 2); file.write(b'x')";
    let small = "filesystem.work_size=1MiB";
    let run = ["run", "--set", small, "--out", "result", "-c", code];
    let output = run_in(directory.path(), &run)?;
    assert_eq!(
        (output.status.code(), stderr_of(&output)),
        (Some(0), String::new())
    );
    let result = fs::read(directory.path().join("result"))?;
    assert_eq!((result.len(), result.last()), (3 << 20, Some(&b'x')));
    Ok(())
}

fn non_regular_files_are_not_copied_out() -> Result<(), Failed> {
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
            stderr_of(&output).contains("the guest left no file to copy: `result` cannot be read"),
            "{}",
            stderr_of(&output)
        );
        assert!(stderr_of(&output).contains(what), "{}", stderr_of(&output));
        assert!(!directory.path().join("result").exists(), "{act}");
    }
    Ok(())
}

fn killed_guest_replaces_no_output_file() -> Result<(), Failed> {
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
    assert_eq!(output.status.code(), Some(124), "{}", stderr_of(&output));
    assert_eq!(fs::read_to_string(&result)?, "whole");
    // If the guest itself fails, the missing file needs no further message; it may also have written one.
    let fails = "raise SystemExit(3)";
    let output = run_in(directory.path(), &["run", "--out", "none", "-c", fails])?;
    assert_eq!(
        (output.status.code(), stderr_of(&output)),
        (Some(3), String::new())
    );
    // A file that the guest leaves open is copied too.
    let report = "f = open('result', 'w')\nf.write('report')\nraise SystemExit(3)";
    let output = run_in(directory.path(), &["run", "--out", "result", "-c", report])?;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(fs::read_to_string(&result)?, "report");
    Ok(())
}

fn invalid_transfers_are_rejected_before_the_run() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let inside = |name: &str| directory.path().join(name);
    fs::write(inside("large"), vec![b'x'; 100_000])?;
    symlink("/etc/passwd", inside("link"))?;
    nix::unistd::mkfifo(&inside("fifo"), nix::sys::stat::Mode::S_IRWXU)?;
    for (arguments, why) in [
        (&["--in", "missing"][..], "does not exist"),
        (&["--in", "."], "does not name a file"),
        (&["--in", "/etc"], "is a directory"),
        (
            &["--in", "/etc/hosts", "--in", "/etc/./hosts"],
            "would both be `hosts` in the work directory",
        ),
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
            stderr_of(&output)
        );
        assert!(
            stderr_of(&output).contains(why),
            "{arguments:?}: {}",
            stderr_of(&output)
        );
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
    Ok(())
}

fn plan_shows_paths_below_tmp_as_written() -> Result<(), Failed> {
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

/// A set-user-ID program would give every user of the host the rights of its owner.
const WRITES: &str = "\
import os, sys
from errno import errorcode
for directory in sys.argv[1:]:
    path = directory + '/result'
    with open(path, 'w') as file:
        file.write('x')
    assert os.stat(path).st_uid == os.stat(directory).st_uid == os.getuid()
    assert open(directory + '/private').read() == 'p'
    os.chmod(path, 0o750)
    for mode in 0o4755, 0o2755, 0o6750:
        for name in path, os.open(path, os.O_RDONLY):
            try:
                os.chmod(name, mode)
                print('made', oct(mode))
            except OSError as error:
                assert errorcode[error.errno] == 'EPERM', error
    made = os.open(directory + '/made', os.O_CREAT | os.O_RDWR, 0o6755)
    os.write(made, b'#!/bin/sh')
    assert os.fstat(made).st_mode & 0o6000 == 0
    try:
        os.chown(path, 0, 0)
        assert os.getuid() == 0
    except OSError:
        pass
print('written')
";

fn written_files_belong_to_the_directorys_owner() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let names = ["of-the-caller", "of-another"].map(|name| directory.path().join(name));
    let is_root = nix::unistd::geteuid().is_root();
    let count = if is_root { 2 } else { 1 };
    for name in &names[..count] {
        fs::create_dir(name)?;
        fs::write(name.join("private"), "p")?;
        fs::set_permissions(name.join("private"), fs::Permissions::from_mode(0o600))?;
        fs::set_permissions(name, fs::Permissions::from_mode(0o700))?;
    }
    if is_root {
        for path in [names[1].clone(), names[1].join("private")] {
            std::os::unix::fs::chown(path, Some(4321), Some(4322))?;
        }
    }
    let shown: Vec<&str> = names[..count]
        .iter()
        .map(|name| name.to_str().unwrap())
        .collect();
    let sets: Vec<String> = shown
        .iter()
        .map(|name| format!("filesystem.write={name}"))
        .collect();
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["run"]
        .into_iter()
        .chain(sets)
        .chain(["-c", WRITES])
        .chain(shown.iter().copied())
        .collect();
    let output = run_in(directory.path(), &arguments)?;
    if is_root && !has_mapped_mounts(directory.path()) {
        assert!(
            stderr_of(&output).contains("`--out`"),
            "{}",
            stderr_of(&output)
        );
        return Ok(());
    }
    assert_eq!(
        (
            String::from_utf8_lossy(&output.stdout).as_ref(),
            stderr_of(&output)
        ),
        ("written\n", String::new())
    );
    for name in &names[..count] {
        let (own, result) = (fs::metadata(name)?, fs::metadata(name.join("result"))?);
        assert_eq!((result.uid(), result.gid()), (own.uid(), own.gid()));
        assert_eq!(result.mode() & 0o7777, 0o750);
    }
    Ok(())
}

/// Returns whether the file system supports id-mapped mounts on every kernel that Sandfork supports.
fn has_mapped_mounts(path: &Path) -> bool {
    use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};
    let kind = statfs(path).unwrap().filesystem_type();
    ![OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC].contains(&kind)
}
