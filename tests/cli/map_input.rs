//! Tests of `sandfork map` with invalid tasks in the middle of a file, task files that change, and full
//! disks. Finished results stay, the error names the line, and the batch can be resumed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use libtest_mimic::Failed;
use nix::unistd::geteuid;
use serde_json::json;
use tempfile::TempDir;

use super::behaviour::sandfork;
use super::map::{Batch, stderr_of};
use super::trials;

trials! {
    invalid_line_affects_only_later_tasks,
    duplicate_id_is_found_across_a_resume,
    growing_task_file_is_run_to_its_first_end,
    truncated_task_file_is_reported,
    full_disk_leaves_whole_results,
    impossible_files_are_reported_with_their_line,
    unusable_stdout_is_rejected_before_a_task_runs,
    a_file_size_limit_is_named,
    soft_descriptor_limit_does_not_bound_jobs,
}

const QUICK: &str = "1 + 1";

/// Returns the number of results that the command left, which must be those of the first tasks.
fn finished(batch: &Batch, output: &Output) -> usize {
    let results = batch.read();
    let count = results.len();
    let first = (0..count).all(|id| results.contains_key(&i64::try_from(id).unwrap()));
    assert!(first, "{:?}", results.keys());
    assert!(
        stderr_of(output).contains(&format!("{count} ok, 0 failed")),
        "{}",
        stderr_of(output)
    );
    count
}

fn ends_with(output: &Output, code: i32, sentence: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr_of(output));
    assert!(
        stderr_of(output).ends_with(sentence),
        "{}",
        stderr_of(output)
    );
}

fn invalid_line_affects_only_later_tasks() -> Result<(), Failed> {
    let batch = Batch::new(vec![QUICK; 40]);
    let good = fs::read_to_string(batch.tasks())?;
    let broken = good.replacen(
        "{\"code\":\"1 + 1\",\"id\":25}",
        "{\"code\": \"1 + 1\", \"id\"",
        1,
    );
    assert_ne!(broken, good);
    fs::write(batch.tasks(), broken)?;
    for arguments in [&["--jobs", "4"][..], &["--jobs", "4", "--resume"]] {
        let output = batch.map(arguments).output()?;
        let sentence = ":26: it is cut off: the line ends before its JSON object does\n";
        ends_with(&output, 2, sentence);
        assert_eq!(batch.read().len(), 25);
    }
    let before = batch.read();
    fs::write(batch.tasks(), good)?;
    let output = batch.map(&["--resume"]).output()?;
    ends_with(
        &output,
        0,
        "15 ok, 0 failed; 25 tasks had a result already\n",
    );
    let after = batch.read();
    assert_eq!(after.len(), 40);
    assert!(before.iter().all(|(id, result)| after[id] == *result));
    Ok(())
}

fn duplicate_id_is_found_across_a_resume() -> Result<(), Failed> {
    let batch = Batch::new(vec![QUICK; 6]);
    let mut tasks = OpenOptions::new().append(true).open(batch.tasks())?;
    writeln!(tasks, "{}", json!({"id": 2, "code": QUICK}))?;
    for arguments in [&[][..], &["--resume"]] {
        let output = batch.map(arguments).output()?;
        let sentence = ":7: an earlier task has the id 2 too; give each task a unique id\n";
        ends_with(&output, 2, sentence);
        assert_eq!(batch.read().len(), 6);
    }
    Ok(())
}

/// A batch that blocks after its first task until a gate file appears. Meanwhile its last lines cannot
/// have been read, because `map` reads only a few tasks ahead.
struct Gated {
    batch: Batch,
    gate: TempDir,
}

impl Gated {
    fn new(code: &str) -> Self {
        let gate = tempfile::tempdir().unwrap();
        fs::set_permissions(gate.path(), Permissions::from_mode(0o777)).unwrap();
        let open = gate.path().join("open");
        let open = open.display();
        let waits =
            format!("import os, time\nwhile not os.path.exists('{open}'): time.sleep(0.005)");
        let codes = std::iter::once(QUICK)
            .chain([waits.as_str()])
            .chain(std::iter::repeat_n(code, 58));
        let batch = Batch::new(codes);
        Self { batch, gate }
    }

    /// Runs the tasks one by one, and calls `act` with the task file while the batch blocks.
    fn run(&self, act: impl FnOnce(File)) -> Result<Output, Failed> {
        let shown = format!("filesystem.read={}", self.gate.path().display());
        let arguments = ["--jobs", "1", "--set", &shown];
        let child = self.batch.map(&arguments).spawn()?;
        self.batch.wait_for(1);
        act(OpenOptions::new().append(true).open(self.batch.tasks())?);
        File::create(self.gate.path().join("open"))?;
        Ok(child.wait_with_output()?)
    }
}

fn growing_task_file_is_run_to_its_first_end() -> Result<(), Failed> {
    let gated = Gated::new(QUICK);
    let output = gated.run(|mut tasks| {
        writeln!(tasks, "{}", json!({"id": 60, "code": QUICK})).unwrap();
    })?;
    let sentence = ":61: the file has grown since it was opened, and nothing from this line on was run; \
                    run it again with `--resume` when it is complete\n";
    ends_with(&output, 2, sentence);
    assert_eq!(finished(&gated.batch, &output), 60);
    let output = gated.batch.map(&["--resume"]).output()?;
    ends_with(
        &output,
        0,
        "1 ok, 0 failed; 60 tasks had a result already\n",
    );
    Ok(())
}

fn truncated_task_file_is_reported() -> Result<(), Failed> {
    // Long lines, so that the file exceeds one read buffer.
    let gated = Gated::new(&format!("# {}\n{QUICK}", "x".repeat(1000)));
    let output = gated.run(|tasks| tasks.set_len(0).unwrap())?;
    let sentence = "the file has become shorter while it was read, and ends here now\n";
    ends_with(&output, 2, sentence);
    let count = finished(&gated.batch, &output);
    assert!((2..60).contains(&count), "{count}");
    Ok(())
}

/// Returns the command with a file system of this size as its results directory, in a mount namespace
/// that ends with the command: the results are copied out.
fn on_a_small_disk(map: &Command, batch: &Batch, size: &str) -> Command {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let script = "disk=$1 size=$2 kept=$3; shift 3; \
                  mount -t tmpfs -o size=$size none \"$disk\" || exit 99; \
                  \"$@\"; code=$?; cat \"$disk/results.jsonl\" > \"$kept\"; exit $code";
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(batch.disk())
        .args([size])
        .arg(batch.results())
        .arg(map.get_program())
        .args(map.get_args());
    command
}

fn full_disk_leaves_whole_results() -> Result<(), Failed> {
    let batch = Batch::new(vec!["print('x' * 1000)"; 60]);
    fs::create_dir(batch.disk())?;
    let mut map = sandfork(&["map", "--jobs", "2", "--ordered"]);
    map.arg(batch.tasks())
        .arg("--output")
        .arg(batch.disk().join("results.jsonl"));
    let output = on_a_small_disk(&map, &batch, "32k").output()?;
    let count = finished(&batch, &output);
    assert!((5..30).contains(&count), "{count}");
    let sentence = format!(
        "No space left on device (os error 28); {count} of them were written, and `--resume` continues after \
         them when there is room\n"
    );
    ends_with(&output, 1, &sentence);
    let before = batch.read();
    let output = batch.map(&["--resume"]).output()?;
    let rest = format!(
        "{} ok, 0 failed; {count} tasks had a result already\n",
        60 - count
    );
    ends_with(&output, 0, &rest);
    let after = batch.read();
    assert_eq!(after.len(), 60);
    assert!(before.iter().all(|(id, result)| after[id] == *result));
    Ok(())
}

fn impossible_files_are_reported_with_their_line() -> Result<(), Failed> {
    let many: serde_json::Map<_, _> = (0..5000).map(|n| (n.to_string(), json!(""))).collect();
    for (files, says) in [
        (
            json!({"a": "", "a/b": ""}),
            "`files`: `a` is a file, and `a/b` needs a directory there: rename one of both\n",
        ),
        (json!(many), "(`--set filesystem.work_inodes=...`)\n"),
    ] {
        let batch = Batch::new(vec![QUICK; 2]);
        let mut tasks = OpenOptions::new().append(true).open(batch.tasks())?;
        for id in 2..20 {
            writeln!(
                tasks,
                "{}",
                json!({"id": id, "code": QUICK, "files": files})
            )?;
        }
        let output = batch.map(&["--code-only"]).output()?;
        ends_with(&output, 2, says);
        assert!(
            stderr_of(&output).contains("tasks.jsonl:3: "),
            "{}",
            stderr_of(&output)
        );
        assert_eq!(finished(&batch, &output), 2);
    }
    Ok(())
}

fn unusable_stdout_is_rejected_before_a_task_runs() -> Result<(), Failed> {
    let batch = Batch::new(vec![QUICK; 2]);
    let map = |redirection: &str| {
        let mut shell = Command::new("sh");
        let script = format!("exec \"$1\" map \"$2\" {redirection}");
        let program = sandfork(&[]);
        shell.args(["-c", &script, "sh"]).arg(program.get_program());
        shell.arg(batch.tasks()).output()
    };
    let sentence = "sandfork: stdout is closed, and the results would be lost: open it, or name a file with \
                    `--output`\n";
    let output = map(">&-")?;
    assert_eq!(
        (output.status.code(), stderr_of(&output).as_str()),
        (Some(2), sentence)
    );
    assert_eq!(map("<>/dev/null >&0")?.status.code(), Some(0));
    Ok(())
}

fn a_file_size_limit_is_named() -> Result<(), Failed> {
    let batch = Batch::new(vec![QUICK; 2]);
    let tasks = batch.tasks().display().to_string();
    for arguments in [&["run", "-c", "1"][..], &["map", &tasks]] {
        let mut shell = Command::new("sh");
        let program = sandfork(arguments);
        shell.args(["-c", "ulimit -f 32; exec \"$@\"", "sh"]);
        shell.arg(program.get_program()).args(program.get_args());
        let output = shell.output()?;
        assert_eq!(output.status.code(), Some(125), "{}", stderr_of(&output));
        assert!(
            stderr_of(&output).contains("(`ulimit -f`)"),
            "{}",
            stderr_of(&output)
        );
    }
    Ok(())
}

fn soft_descriptor_limit_does_not_bound_jobs() -> Result<(), Failed> {
    let batch = Batch::new(vec![QUICK; 8]);
    let small = ["--set", "limits.memory=32MiB", "--set", "limits.pids=8"];
    let program = batch.map(&[&["--jobs", "4"], &small[..]].concat());
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -S -n 64; exec \"$@\"", "sh"]);
    shell.arg(program.get_program()).args(program.get_args());
    let output = shell.output()?;
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    assert!(
        !stderr_of(&output).contains("running"),
        "{}",
        stderr_of(&output)
    );
    assert_eq!(batch.read().len(), 8);
    Ok(())
}
