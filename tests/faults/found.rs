//! The results of each test, written as JSON lines to a file if one is named.

use std::collections::BTreeMap;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// The environment variable that names the file.
const VARIABLE: &str = "SANDFORK_FAULTS_FOUND";

/// The promised time until everything is gone and a new zygote is ready. Exceeding it on a busy machine is counted
/// but is not a failure.
const PROMISED: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Serialize)]
pub struct Found {
    /// The name of the test.
    pub test: String,
    /// The number of calls of the set-up, or of the process whose calls are the clock.
    pub calls: usize,
    /// The number of injected faults or kills.
    pub points: usize,
    pub sound: usize,
    pub refused: usize,
    pub wrong: Vec<String>,
    /// How often one of the times below exceeded the promise.
    pub late: usize,
    /// The longest time until everything was gone, and until the next run was over.
    #[serde(serialize_with = "in_seconds")]
    pub gone: Duration,
    #[serde(serialize_with = "in_seconds")]
    pub next: Duration,
    /// The text of each error and status, with its count.
    pub says: BTreeMap<String, usize>,
}

impl Found {
    pub fn record_wrong(&mut self, how: String) {
        eprintln!("{how}");
        self.wrong.push(how);
    }

    /// Records that everything was gone after this time.
    pub fn record_gone(&mut self, after: Duration) {
        self.gone = self.gone.max(after);
        self.late += usize::from(after > PROMISED);
    }

    /// Records that the next run or the next sandbox took this time.
    pub fn record_next(&mut self, after: Duration) {
        self.next = self.next.max(after);
        self.late += usize::from(after > PROMISED);
    }

    /// Records an error or a status.
    pub fn record_message(&mut self, says: &str) {
        // Numbers vary from run to run.
        let says = says.replace(|digit: char| digit.is_ascii_digit(), "");
        *self.says.entry(says).or_default() += 1;
    }

    /// Prints the results and appends them to the file.
    pub fn report(&self) {
        println!("{} calls, {} faults", self.calls, self.points);
        println!("{} sound, {} refused", self.sound, self.refused);
        println!(
            "gone in {:?}, next run in {:?}, {} late",
            self.gone, self.next, self.late
        );
        for (says, times) in &self.says {
            println!("  {times:4} {says}");
        }
        let Some(path) = env::var_os(VARIABLE) else {
            return;
        };
        let mut line = serde_json::to_vec(self).expect("valid JSON");
        line.push(b'\n');
        // Several processes append to the file, one line at a time.
        let file = OpenOptions::new().append(true).create(true).open(path);
        let written = file.and_then(|mut file| file.write_all(&line));
        written.expect("the results can be written");
    }
}

fn in_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
