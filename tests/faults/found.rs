//! What came of each part, for a document: a line of JSON for each, where a file is named.

use std::collections::BTreeMap;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Names the file.
const VARIABLE: &str = "SANDFORK_FAULTS_FOUND";

/// The time after which everything is gone and a new zygote is ready. A busy machine takes longer, which is
/// counted but is no failure.
const PROMISED: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Serialize)]
pub struct Found {
    /// The test.
    pub test: String,
    /// Calls of the set-up, or of the process that determines the moment.
    pub calls: usize,
    /// Injected faults, or points at which a process was killed.
    pub points: usize,
    pub sound: usize,
    pub refused: usize,
    pub wrong: Vec<String>,
    /// How often one of these took longer than promised.
    pub late: usize,
    /// The longest that anything took to be gone, and that the next run took to be over.
    #[serde(serialize_with = "in_seconds")]
    pub gone: Duration,
    #[serde(serialize_with = "in_seconds")]
    pub next: Duration,
    /// How each error and each answer says it, with how often.
    pub says: BTreeMap<String, usize>,
}

impl Found {
    pub fn is_wrong(&mut self, how: String) {
        eprintln!("{how}");
        self.wrong.push(how);
    }

    /// Everything was gone after this time.
    pub fn is_gone(&mut self, after: Duration) {
        self.gone = self.gone.max(after);
        self.late += usize::from(after > PROMISED);
    }

    /// The next run, or the next sandbox, took this long.
    pub fn goes_on(&mut self, after: Duration) {
        self.next = self.next.max(after);
        self.late += usize::from(after > PROMISED);
    }

    /// Something was answered.
    pub fn said(&mut self, says: &str) {
        // A number differs from time to time.
        let says = says.replace(|digit: char| digit.is_ascii_digit(), "");
        *self.says.entry(says).or_default() += 1;
    }

    /// Prints it, and writes it down.
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
        let mut line = serde_json::to_vec(self).expect("it is JSON");
        line.push(b'\n');
        // Several processes write to it, a line at a time.
        let file = OpenOptions::new().append(true).create(true).open(path);
        let written = file.and_then(|mut file| file.write_all(&line));
        written.expect("what was found can be written down");
    }
}

fn in_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
