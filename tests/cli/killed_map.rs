//! Kills `sandfork map` and resumes it: no task is lost, no finished task runs again, and the killed
//! process leaves nothing behind.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use serde_json::Value;
use tempfile::TempDir;

use super::map::{Batch, descendants, stderr_of};
use super::trials;

trials! {
    killed_batch_can_be_resumed,
}

const TASKS: usize = 300;
const KILLS: usize = 4;
/// The first task that waits for the final resume. No later task ends before that.
const LAST: usize = 200;
/// The file for which those tasks wait.
const OPEN: &str = "open";

/// A batch whose tasks append to a file in a host directory each time that they run.
struct Marked {
    batch: Batch,
    marks: TempDir,
}

impl Marked {
    fn new() -> Self {
        // Not in /tmp, because a sandbox has its own.
        let marks = tempfile::tempdir_in("/var/tmp").unwrap();
        // Writable for the user as whom guests run.
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(marks.path(), open).unwrap();
        // Long enough to be observed while running, and of different lengths.
        let code = |id: usize| {
            let seconds = (id % 5) * 5;
            let has_turn = if id < LAST { "True" } else { "False" };
            format!(
                "import os, time\nwith open('{marks}/{id}', 'a') as mark: mark.write('x')\n\
                 time.sleep({seconds} / 1000)\n\
                 while not {has_turn} and not os.path.exists('{marks}/{OPEN}'): time.sleep(0.01)",
                marks = marks.path().display()
            )
        };
        Self {
            batch: Batch::new((0..TASKS).map(code)),
            marks,
        }
    }

    fn map(&self) -> Command {
        let shown = format!("filesystem.write={}", self.marks.path().display());
        let arguments = ["--jobs", "4", "--resume", "--set", &shown];
        self.batch.map(&arguments)
    }

    /// Returns the number of runs of each task.
    fn runs(&self) -> HashMap<i64, u64> {
        let marks = fs::read_dir(self.marks.path()).unwrap().flatten();
        marks
            .filter_map(|mark| {
                let id = mark.file_name().to_string_lossy().parse().ok()?;
                Some((id, mark.metadata().unwrap().len()))
            })
            .collect()
    }

    /// Returns the complete results by id. A partial line may follow them.
    fn whole_results(&self) -> HashMap<i64, Value> {
        let text = fs::read_to_string(self.batch.results()).unwrap();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let results = whole.lines().map(|line| {
            let result: Value = serde_json::from_str(line).unwrap();
            (result["id"].as_i64().unwrap(), result)
        });
        results.collect()
    }
}

fn killed_batch_can_be_resumed() -> Result<(), Failed> {
    let marked = Marked::new();
    let mut finished: HashMap<i64, Value> = HashMap::new();
    for round in 1..=KILLS {
        let mut child = marked.map().spawn()?;
        marked.batch.wait_for(round * 40);
        let family = descendants(child.id());
        assert!(!family.is_empty());
        child.kill()?;
        child.wait()?;
        wait_until_ended(&family);
        let results = marked.whole_results();
        assert!(results.len() < TASKS, "it was too quick to be killed");
        // Earlier results are unchanged.
        assert!(finished.iter().all(|(id, result)| results[id] == *result));
        finished = results;
    }
    fs::write(marked.marks.path().join(OPEN), "")?;
    let output = marked.map().output()?;
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let results = marked.batch.read();
    assert_eq!(results.len(), TASKS);
    for (id, result) in &results {
        assert_eq!(result["status"], "ok", "{result}");
        assert!(finished.get(id).is_none_or(|before| before == result));
    }
    // Only tasks that ran at the time of a kill ran again: at most four for each kill, whose results were not
    // written yet.
    let again: Vec<(i64, u64)> = marked
        .runs()
        .into_iter()
        .filter(|(_, runs)| *runs > 1)
        .collect();
    let most = KILLS * 4;
    assert!(again.len() <= most, "{again:?}");
    assert_eq!(marked.runs().len(), TASKS);
    Ok(())
}

/// Waits until these processes have ended, zombies aside.
fn wait_until_ended(family: &[u32]) {
    let lives = |pid: &&u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| state != 'Z')
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while family.iter().any(|pid| lives(&pid)) {
        let left: Vec<&u32> = family.iter().filter(lives).collect();
        assert!(Instant::now() < deadline, "{left:?} live");
        thread::sleep(Duration::from_millis(10));
    }
}
