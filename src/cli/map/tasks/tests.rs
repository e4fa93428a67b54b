#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use indicatif::ProgressDrawTarget;

use super::*;

/// A task file in its own directory.
struct File {
    directory: tempfile::TempDir,
}

impl File {
    fn new(text: impl AsRef<[u8]>) -> Self {
        let file = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        fs::write(file.path(), text).unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("tasks.jsonl")
    }

    fn tasks(&self, finished: &[TaskId]) -> Tasks {
        self.tasks_with(finished, Reach::Host)
    }

    fn tasks_with(&self, finished: &[TaskId], reach: Reach) -> Tasks {
        let choice = PolicyChoice {
            policy: "standard".to_owned(),
            overrides: vec!["limits.wall=3s".to_owned()],
        };
        let policies = Policies::new(chosen(&choice).unwrap(), &choice, reach);
        let mut ids = Ids::default();
        for id in finished {
            ids.finish(id);
        }
        let source = Source::open(&self.path()).unwrap();
        let progress = Progress::begin(None, ProgressDrawTarget::hidden());
        Tasks::new(source, policies, ids, Arc::new(progress))
    }

    /// Returns the ids of the tasks, and the error after them.
    fn found(&self) -> (Vec<String>, Option<String>) {
        self.collect(self.tasks(&[]))
    }

    fn collect(&self, tasks: Tasks) -> (Vec<String>, Option<String>) {
        let mut ids = Vec::new();
        for task in tasks {
            match task {
                Ok(task) => ids.push(task.id().to_string()),
                Err(error) => {
                    let directory = format!("{}/", self.directory.path().display());
                    return (ids, Some(error.to_string().replace(&directory, "")));
                }
            }
        }
        (ids, None)
    }
}

#[test]
fn code_only_rejects_other_keys() {
    let task = |members: &str| {
        let file = File::new(line(1) + &format!("{{\"id\": 2, {members}}}\n"));
        file.collect(file.tasks_with(&[], Reach::CodeOnly))
    };
    for (members, key) in [
        (r#""file": "/etc/shadow""#, "file"),
        (r#""program": ["id"]"#, "program"),
        (r#""code": "pass", "policy": "data-science""#, "policy"),
        (r#""file": "x.py", "policy": "/etc/shadow""#, "file"),
    ] {
        let (ids, error) = task(members);
        assert_eq!(ids, ["1"]);
        let prefix = format!("tasks.jsonl:2: it has `{key}`, which `--code-only` refuses");
        assert!(error.unwrap().starts_with(&prefix), "{members}");
    }
    let all = r#""code": "pass", "args": ["a"], "files": {"a": "b"}, "limits": {"wall": "1s"}"#;
    assert_eq!(task(all).0.len(), 2);
}

fn line(id: u32) -> String {
    format!("{{\"id\": {id}, \"code\": \"pass\"}}\n")
}

#[track_caller]
fn assert_error(text: impl AsRef<[u8]>, ids: &[&str], prefix: &str) {
    let (found, error) = File::new(text).found();
    assert_eq!(found, ids);
    let error = error.unwrap();
    assert!(error.starts_with(prefix), "{error}");
}

#[test]
fn lines_are_tasks_and_blank_lines_are_skipped() {
    let text = "\u{feff}".to_owned() + &line(1) + "\n \r\n" + &line(2) + line(3).trim_end();
    let (ids, error) = File::new(text).found();
    assert_eq!(
        (ids, error),
        (["1", "2", "3"].map(str::to_owned).to_vec(), None)
    );
    assert_eq!(File::new("").found(), (vec![], None));
}

#[test]
fn task_without_id_gets_its_line_number() {
    let text = "\n{\"code\": \"pass\"}\n".to_owned() + &line(7) + "{\"code\": \"pass\"}";
    let (ids, error) = File::new(text).found();
    assert_eq!(
        (ids, error),
        (["2", "7", "4"].map(str::to_owned).to_vec(), None)
    );
    let twice = "an earlier task has the id 2 too";
    let text = line(2) + "{\"code\": \"pass\"}\n";
    assert_error(text, &["2"], &format!("tasks.jsonl:2: {twice}"));
    let file = File::new("{\"code\": \"1\"}\n{\"code\": \"2\"}\n");
    let (left, error) = file.collect(file.tasks(&[TaskId::from(1)]));
    assert_eq!((left, error), (vec!["2".to_owned()], None));
}

#[test]
fn invalid_line_is_reported_and_ends_reading() {
    let between = |invalid: &str| line(1) + invalid + &line(2);
    assert_error(
        between("{\"id\": 5, \"cod\": \"\"}\n"),
        &["1"],
        "tasks.jsonl:2: unknown key `cod`: did you mean",
    );
    assert_error(
        between("\n{\"id\": 1, \"code\": \"x\"}\n"),
        &["1"],
        "tasks.jsonl:3: an earlier task has the id 1",
    );
    assert_error(
        between("{\"id\": 5\n"),
        &["1"],
        "tasks.jsonl:2: it is cut off",
    );
    assert_error(
        line(1) + "{\"id\": 2, \"co",
        &["1"],
        "tasks.jsonl:2: it is cut off",
    );
    assert_error("\0\0\0\n", &[], "tasks.jsonl:1: it is not JSON");
    assert_error(
        between("{\"id\": 5, \"file\": \"none.py\"}\n"),
        &["1"],
        "tasks.jsonl:2: `none.py` does not exist; check",
    );
    assert_error(
        between("{\"id\": 5, \"file\": \"/\"}\n"),
        &["1"],
        "tasks.jsonl:2: `/` is a directory",
    );
    assert_error(
        between("{\"id\": 5, \"code\": \"x\", \"policy\": \"strit\"}\n"),
        &["1"],
        "tasks.jsonl:2: policy: no built-in policy and no file is called \"strit\"",
    );
    assert_error(
        between("{\"id\": 5, \"code\": \"x\", \"limits\": {\"wall\": \"4s\"}}\n"),
        &["1"],
        "tasks.jsonl:2: `limits.wall` is above the policy's 3s",
    );
}

#[test]
fn nothing_follows_an_error() {
    let file = File::new("{}\n".to_owned() + &line(1));
    let mut tasks = file.tasks(&[]);
    assert!(tasks.next().unwrap().is_err());
    assert!(tasks.next().is_none());
}

#[test]
fn overlong_line_is_rejected() {
    let long = vec![b' '; MAX_BYTES + 1];
    assert_error(
        [line(1).as_bytes(), &long].concat(),
        &["1"],
        "tasks.jsonl:2: it is over the 64 MiB",
    );
}

#[test]
fn overrides_apply_to_every_policy() {
    let text =
        "{\"id\": 1, \"code\": \"x\", \"policy\": \"strict\", \"limits\": {\"wall\": \"4s\"}}\n";
    assert_error(
        text,
        &[],
        "tasks.jsonl:1: `limits.wall` is above the policy's 3s",
    );
}

#[test]
fn number_of_policies_is_bounded() {
    let file = File::new("");
    let mut text = String::new();
    for number in 0..=MAX_POLICIES {
        let path = file.directory.path().join(format!("{number}.toml"));
        fs::write(&path, "").unwrap();
        for turn in 0..2 {
            let policy = path.display();
            let id = format!("{number}.{turn}");
            writeln!(
                text,
                "{{\"id\": \"{id}\", \"code\": \"x\", \"policy\": \"{policy}\"}}"
            )
            .unwrap();
        }
    }
    fs::write(file.path(), text).unwrap();
    let (ids, error) = file.found();
    assert_eq!(ids.len(), 2 * MAX_POLICIES);
    assert!(
        error
            .unwrap()
            .starts_with("tasks.jsonl:33: earlier tasks name 16 policies")
    );
}

#[test]
fn finished_tasks_are_skipped_but_count_as_duplicates() {
    let file = File::new(line(1) + &line(2) + &line(3) + &line(2));
    let tasks = file.tasks(&[TaskId::from(2), TaskId::from("3")]);
    let progress = Arc::clone(&tasks.progress);
    let (ids, error) = file.collect(tasks);
    assert_eq!(ids, ["1", "3"]);
    assert!(
        error
            .unwrap()
            .starts_with("tasks.jsonl:4: an earlier task has the id 2")
    );
    assert_eq!(progress.finished(), 1);
}

#[test]
fn growing_file_is_run_up_to_its_first_size() {
    let grow = |path: &Path, more: &str| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(more.as_bytes()).unwrap();
    };
    // After a whole line, and within one.
    for end in ["\n", "", "{\"id\": 4, \"co"] {
        let file = File::new(line(1) + &line(2) + line(3).trim_end() + end);
        let mut tasks = file.tasks(&[]);
        tasks.next().unwrap().unwrap();
        grow(&file.path(), "de\": \"pass\"}\n");
        let (ids, error) = file.collect(tasks);
        let error = error.unwrap();
        if end == "\n" {
            assert_eq!(ids, ["2", "3"]);
            assert!(
                error.starts_with("tasks.jsonl:4: the file has grown"),
                "{error}"
            );
        } else {
            assert_eq!(ids, ["2"]);
            assert!(
                error.starts_with("tasks.jsonl:3: the file has grown"),
                "{error}"
            );
        }
    }
}

#[test]
fn truncated_file_is_reported() {
    let many: String = (0..10_000).map(line).collect();
    let file = File::new(&many);
    let mut tasks = file.tasks(&[]);
    tasks.next().unwrap().unwrap();
    fs::write(file.path(), line(0)).unwrap();
    let (_, error) = file.collect(tasks);
    assert!(error.unwrap().contains("the file has become shorter"));
}
