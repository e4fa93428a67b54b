//! A `sandfork map` that is killed and gone on with: no task is lost, none that was finished is run
//! twice, and nothing of the killed one stays.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use serde_json::Value;
use tempfile::TempDir;

use super::map::{Batch, beneath, said};
use super::trials;

trials! {
    a_killed_batch_is_gone_on_with,
}

const TASKS: usize = 300;
const KILLS: usize = 4;
/// The first task that waits until the last batch is run: no other ends before it is killed.
const LAST: usize = 200;
/// The file for which it waits.
const OPEN: &str = "open";

/// Each task leaves a mark in a directory of the host, each time that it is run.
struct Marked {
    batch: Batch,
    marks: TempDir,
}

impl Marked {
    fn new() -> Self {
        // Not in /tmp, because a sandbox has its own.
        let marks = tempfile::tempdir_in("/var/tmp").unwrap();
        // Open to the user that guests are.
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(marks.path(), open).unwrap();
        // Longer than it takes to look, and not all alike.
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

    /// How often each task was run.
    fn runs(&self) -> HashMap<i64, u64> {
        let marks = fs::read_dir(self.marks.path()).unwrap().flatten();
        marks
            .filter_map(|mark| {
                let id = mark.file_name().to_string_lossy().parse().ok()?;
                Some((id, mark.metadata().unwrap().len()))
            })
            .collect()
    }

    /// The results that are whole, by their ids. There may be half of one behind them.
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

fn a_killed_batch_is_gone_on_with() -> Result<(), Failed> {
    let marked = Marked::new();
    let mut finished: HashMap<i64, Value> = HashMap::new();
    for round in 1..=KILLS {
        let mut child = marked.map().spawn()?;
        marked.batch.wait_for(round * 40);
        let family = beneath(child.id());
        assert!(!family.is_empty());
        child.kill()?;
        child.wait()?;
        gone(&family);
        let results = marked.whole_results();
        assert!(results.len() < TASKS, "it was too quick to be killed");
        // Earlier results are unchanged.
        assert!(finished.iter().all(|(id, result)| results[id] == *result));
        finished = results;
    }
    fs::write(marked.marks.path().join(OPEN), "")?;
    let output = marked.map().output()?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let results = marked.batch.read();
    assert_eq!(results.len(), TASKS);
    for (id, result) in &results {
        assert_eq!(result["status"], "ok", "{result}");
        assert!(finished.get(id).is_none_or(|before| before == result));
    }
    // Only what ran in a moment of a kill was run again: four tasks each time, whose results were not
    // written.
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

/// Waits until these processes are no more, but for what waits to be reaped.
fn gone(family: &[u32]) {
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
