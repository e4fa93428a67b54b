//! Evaluates a guest's output.

use serde::{Deserialize, Serialize};

use super::job::Event;
use super::suite::Suite;
use crate::tally::Tally;

/// How a program in the guest ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// The name from the job.
    pub name: String,
    /// Its exit status; `None` while it runs.
    pub status: Option<i32>,
    /// Its output.
    pub lines: Vec<String>,
}

impl Ran {
    /// Counts its tests. A program that failed without a failed test counts as one failure.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let read = Suite::of(&self.name).unwrap_or(Suite::Kernel).reader();
        for line in &self.lines {
            read(&mut tally, line);
        }
        if self.status != Some(0) {
            tally.fail_if_successful();
        }
        tally
    }
}

/// The result of a job.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The kernel's release, as it reports it.
    pub release: String,
    /// The programs, in the order of the job.
    pub programs: Vec<Ran>,
    failure: Option<String>,
    is_finished: bool,
}

impl Report {
    /// Handles a line. Returns the part of it to print.
    pub fn read_line<'l>(&mut self, line: &'l str) -> Option<&'l str> {
        let (printed, event) = match Event::from_line(line) {
            Some((before, event)) => (before, Some(event)),
            None => (line, None),
        };
        let running = self.programs.last_mut().filter(|it| it.status.is_none());
        if let Some(program) = running
            && !printed.is_empty()
        {
            program.lines.push(printed.to_owned());
        }
        if let Some(event) = event {
            self.take(event);
        }
        (!printed.is_empty()).then_some(printed)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Booted(release) => self.release = release,
            Event::Began(name) => self.programs.push(Ran {
                name,
                status: None,
                lines: Vec::new(),
            }),
            Event::Ended(status) => {
                if let Some(program) = self.programs.last_mut() {
                    program.status = Some(status);
                }
            }
            Event::Finished => self.is_finished = true,
            Event::Failed(why) => self.fail(&why),
        }
    }

    /// Records a failure outside the programs.
    pub fn fail(&mut self, why: &str) {
        self.failure.get_or_insert_with(|| why.to_owned());
    }

    /// Whether the guest reported the end of its job.
    pub fn is_finished(&self) -> bool {
        self.is_finished || self.failure.is_some()
    }

    /// Returns why the job was not done.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns whether a program ran and succeeded. A run at a level may be refused.
    pub fn is_done(&self, name: &str) -> bool {
        self.program(name).is_some_and(|ran| {
            ran.status.is_some() && (Suite::of(name).is_none() || ran.tally().is_success())
        })
    }

    /// Merges the results of a later guest, which replace earlier results of the same programs.
    pub fn update(&mut self, later: Self) {
        let is_kept = |ran: &Ran| later.program(&ran.name).is_none();
        let kept = self.programs.iter().filter(|ran| is_kept(ran)).cloned();
        let programs = kept.chain(later.programs.iter().cloned()).collect();
        *self = Self { programs, ..later };
    }

    /// Returns a program's result by its name.
    pub fn program(&self, name: &str) -> Option<&Ran> {
        self.programs.iter().find(|program| program.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &[&str]) -> Report {
        let mut report = Report::default();
        for line in lines {
            report.read_line(line);
        }
        report
    }

    #[test]
    fn each_program_has_its_lines_and_its_end() {
        let report = report(&[
            "@sandfork-vm {\"Booted\":\"6.1.0-50-cloud-amd64\"}",
            "@sandfork-vm {\"Began\":\"one\"}",
            "test result: ok. 2 passed; 0 failed; 0 ignored",
            "",
            "@sandfork-vm {\"Ended\":0}",
            "@sandfork-vm {\"Began\":\"two\"}",
            "no tests@sandfork-vm {\"Ended\":3}",
            "@sandfork-vm \"Finished\"",
        ]);
        assert_eq!(report.release, "6.1.0-50-cloud-amd64");
        assert!(report.is_finished());
        let tally = |name| {
            report
                .program(name)
                .expect("the program ran")
                .tally()
                .to_string()
        };
        assert_eq!(tally("one"), "2 passed, 0 failed, 0 skipped");
        assert_eq!(tally("two"), "0 passed, 1 failed, 0 skipped");
        assert_eq!(report.programs[1].lines, ["no tests"]);
    }

    #[test]
    fn python_suite_is_counted_from_pytest_output() {
        let report = report(&[
            "@sandfork-vm {\"Began\":\"python\"}",
            "30 passed, 1 deselected in 65.29s (0:01:05)",
            "@sandfork-vm {\"Ended\":0}",
        ]);
        let tally = report.programs[0].tally();
        assert_eq!(tally.to_string(), "30 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn a_program_without_an_end_has_failed() {
        let report = report(&[
            "@sandfork-vm {\"Began\":\"one\"}",
            "test result: ok. 2 passed; 0 failed; 0 ignored",
            "@sandfork-vm {\"Failed\":\"one runs after 90 s\"}",
        ]);
        assert_eq!(report.failure(), Some("one runs after 90 s"));
        let tally = report.programs[0].tally();
        assert_eq!(tally.to_string(), "2 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn later_guest_adds_and_replaces_results() {
        let run = |name: &str, counts: &str, status: u32| {
            [
                format!("@sandfork-vm {{\"Began\":\"{name}\"}}"),
                format!("test result: {counts}"),
                format!("@sandfork-vm {{\"Ended\":{status}}}"),
            ]
        };
        let guest = |runs: &[[String; 3]]| {
            let mut lines: Vec<&str> = runs.iter().flatten().map(String::as_str).collect();
            lines.push("@sandfork-vm \"Finished\"");
            report(&lines)
        };
        let mut kept = guest(&[
            run("escape", "FAILED. 1 passed; 1 failed", 101),
            run("kernel", "ok. 2 passed; 0 failed", 0),
        ]);
        assert!(kept.is_done("kernel") && !kept.is_done("escape") && !kept.is_done("faults"));
        kept.update(guest(&[
            run("escape", "ok. 2 passed; 0 failed", 0),
            run("faults", "ok. 3 passed; 0 failed", 0),
        ]));
        let all = ["kernel", "escape", "faults"];
        assert!(all.iter().all(|name| kept.is_done(name)));
        assert_eq!(kept.programs.len(), all.len());
    }

    #[test]
    fn silent_guest_is_not_finished() {
        assert!(!report(&["@sandfork-vm {\"Began\":\"one\"}"]).is_finished());
    }
}
