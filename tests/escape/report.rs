//! Prints the final table: the results of the sandboxed attempts by class.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Contained,
    Escaped,
    /// Stopped for a reason that the probe does not allow, or no sandbox was created.
    Unexplained,
    ControlFailed,
    /// Succeeded, as SECURITY.md states that it can.
    NotPromised,
    Ignored,
}

const ENDS: [(End, &str); 6] = [
    (End::Contained, "contained"),
    (End::Escaped, "escaped"),
    (End::Unexplained, "unexplained"),
    (End::ControlFailed, "control failed"),
    (End::NotPromised, "not promised"),
    (End::Ignored, "ignored"),
];

type Tally = BTreeMap<End, usize>;

#[derive(Default)]
pub struct Report {
    classes: Mutex<BTreeMap<String, Tally>>,
}

impl Report {
    pub fn count(&self, class: &str, end: End) {
        let mut classes = self.classes.lock().expect("counting does not panic");
        *classes
            .entry(class.to_owned())
            .or_default()
            .entry(end)
            .or_default() += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.classes
            .lock()
            .expect("counting does not panic")
            .is_empty()
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:<16}", "class")?;
        for (_, name) in ENDS {
            write!(f, "{name:>16}")?;
        }
        writeln!(f)?;
        let classes = self.classes.lock().map_err(|_| fmt::Error)?;
        let mut total = Tally::new();
        for (class, tally) in &*classes {
            row(f, class, tally)?;
            for (end, count) in tally {
                *total.entry(*end).or_default() += count;
            }
        }
        row(f, "all", &total)
    }
}

fn row(f: &mut fmt::Formatter, name: &str, tally: &Tally) -> fmt::Result {
    write!(f, "{name:<16}")?;
    for (end, _) in ENDS {
        write!(f, "{:>16}", tally.get(&end).copied().unwrap_or_default())?;
    }
    writeln!(f)
}
