//! What a guest's lines say about its programs.

use super::job::Event;
use crate::tally::Tally;

/// How a program in the guest ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ran {
    /// As the job named it.
    pub name: String,
    /// Its exit status; `None` while it runs.
    pub status: Option<i32>,
    /// All that it printed.
    pub lines: Vec<String>,
}

impl Ran {
    /// Its tests, counted. A program that failed without a failed test is a failure.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.lines.iter().for_each(|line| tally.read(line));
        if self.status != Some(0) {
            tally.fail_if_successful();
        }
        tally
    }
}

/// What came of a job.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// The kernel's own word for itself.
    pub release: String,
    /// In the order of the job.
    pub programs: Vec<Ran>,
    failure: Option<String>,
    is_finished: bool,
}

impl Report {
    /// Takes in a line, and gives back what of it is for the reader.
    pub fn hear<'l>(&mut self, line: &'l str) -> Option<&'l str> {
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

    /// Something went wrong outside the programs.
    pub fn fail(&mut self, why: &str) {
        self.failure.get_or_insert_with(|| why.to_owned());
    }

    /// Whether the guest said how its job went.
    pub fn is_finished(&self) -> bool {
        self.is_finished || self.failure.is_some()
    }

    /// Why the job was not done.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// What a program printed and how it ended, by its name.
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
            report.hear(line);
        }
        report
    }

    #[test]
    fn each_program_has_its_lines_and_its_end() {
        let report = report(&[
            "@sandfork-vm booted 6.1.0-50-cloud-amd64",
            "@sandfork-vm began one",
            "test result: ok. 2 passed; 0 failed; 0 ignored",
            "",
            "@sandfork-vm ended 0",
            "@sandfork-vm began two",
            "no tests@sandfork-vm ended 3",
            "@sandfork-vm finished",
        ]);
        assert_eq!(report.release, "6.1.0-50-cloud-amd64");
        assert!(report.is_finished());
        let tally = |name| report.program(name).expect("it ran").tally().to_string();
        assert_eq!(tally("one"), "2 passed, 0 failed, 0 skipped");
        assert_eq!(tally("two"), "0 passed, 1 failed, 0 skipped");
        assert_eq!(report.programs[1].lines, ["no tests"]);
    }

    #[test]
    fn a_program_without_an_end_has_failed() {
        let report = report(&[
            "@sandfork-vm began one",
            "test result: ok. 2 passed; 0 failed; 0 ignored",
            "@sandfork-vm failed one runs after 90 s",
        ]);
        assert_eq!(report.failure(), Some("one runs after 90 s"));
        let tally = report.programs[0].tally();
        assert_eq!(tally.to_string(), "2 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_guest_that_falls_silent_is_not_finished() {
        assert!(!report(&["@sandfork-vm began one"]).is_finished());
    }
}
