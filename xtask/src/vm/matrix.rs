//! Formats the results of each situation on each kernel as the tables of docs/hosts.md. Kernels with equal results
//! share a row.

use std::fmt::Write;

use clap::ValueEnum as _;

use super::judge::Report;
use super::levels::{self, Answer, LEVELS};
use super::name;
use super::situation::Situation;
use super::suite::Suite;
use crate::document::{head, row};

/// The results of all situations on the kernels.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// Each situation with its guest's report, in the order of the document.
    pub entries: Vec<(Situation, Report)>,
}

impl Matrix {
    /// Returns the results that contradict the promises: a run below the required level or at a level that
    /// was refused, an invalid refusal, a failed test.
    pub fn defects(&self) -> Vec<String> {
        let mut defects = Vec::new();
        for (situation, report) in &self.entries {
            let place = format!(
                "{}, {} {}",
                report.release, situation.who, situation.without
            );
            defects.extend(report.failure().map(|why| format!("{place}: {why}")));
            for level in LEVELS {
                match answer(report, level) {
                    Answer::Given(given) if rank(&given) < rank(level) => {
                        defects.push(format!("{place}: `{given}` instead of `{level}`"));
                    }
                    Answer::Given(given) if is_refused(report, &given) => {
                        defects.push(format!("{place}: `{given}`, which was refused"));
                    }
                    Answer::Broken(how) => defects.push(format!("{place}: {level}: {how}")),
                    Answer::Given(_) | Answer::Refused(_) => {}
                }
            }
            for program in &report.programs {
                if Suite::of(&program.name).is_some() && !program.tally().is_success() {
                    let counts = program.tally().counts();
                    defects.push(format!("{place}: {}: {counts}", program.name));
                }
            }
        }
        defects
    }

    /// Formats the tables. `made` says how and when they were made.
    pub fn render(&self, made: &str) -> String {
        let mut causes = Causes::default();
        let levels = self.levels(&mut causes);
        let tests = self.tests();
        let mut text = format!("Made {made}.\n\n{levels}\n");
        for (number, cause) in causes.0.iter().enumerate() {
            _ = writeln!(text, "{}. {cause}", number + 1);
        }
        _ = write!(text, "\n{tests}");
        text
    }

    fn levels(&self, causes: &mut Causes) -> String {
        let columns = ["Linux", "who", "cgroup (version 2)", "without"].map(str::to_owned);
        let levels = LEVELS.map(|level| format!("`{level}`"));
        let mut rows = Rows::default();
        for (situation, report) in &self.entries {
            let Situation {
                who,
                cgroup,
                without,
                ..
            } = situation;
            let host = [*who, cgroup, without].map(str::to_owned);
            let levels = LEVELS.map(|level| cell(report, level, causes));
            rows.add(&report.release, [&host[..], &levels].concat());
        }
        head([&columns[..], &levels].concat()) + &rows.text()
    }

    /// Formats the table of tests, with a column for each program that ran anywhere, and a row for each
    /// situation that ran one.
    fn tests(&self) -> String {
        let mut columns: Vec<String> = Suite::value_variants().iter().map(name).collect();
        let was_run = |name: &str| {
            self.entries
                .iter()
                .any(|(_, it)| it.program(name).is_some())
        };
        columns.retain(|name| was_run(name));
        if columns.is_empty() {
            return String::new();
        }
        let titles: Vec<String> = columns.iter().map(|name| format!("`{name}`")).collect();
        let host = ["Linux", "who", "cgroup (version 2)"].map(str::to_owned);
        let mut rows = Rows::default();
        for (situation, report) in &self.entries {
            let programs: Vec<_> = columns.iter().map(|name| report.program(name)).collect();
            if programs.iter().any(Option::is_some) {
                let host = [situation.who, situation.cgroup].map(str::to_owned);
                let counts = programs.into_iter().map(|program| {
                    program.map_or_else(String::new, |program| program.tally().counts())
                });
                rows.add(&report.release, host.into_iter().chain(counts).collect());
            }
        }
        head(host.into_iter().chain(titles)) + &rows.text()
    }
}

/// Rows of a table: the kernels with equal results, and the results.
#[derive(Default)]
struct Rows(Vec<(Vec<String>, Vec<String>)>);

impl Rows {
    fn add(&mut self, kernel: &str, cells: Vec<String>) {
        match self.0.iter_mut().find(|(_, known)| *known == cells) {
            Some((kernels, _)) => kernels.push(kernel.to_owned()),
            None => self.0.push((vec![kernel.to_owned()], cells)),
        }
    }

    fn text(&self) -> String {
        let lines = self
            .0
            .iter()
            .map(|(kernels, cells)| row([kernels.join(", ")].iter().chain(cells)));
        lines.collect()
    }
}

fn answer(report: &Report, level: &str) -> Answer {
    let ran = report.program(&levels::name(level));
    ran.map_or_else(
        || Answer::Broken("it was not run".to_owned()),
        levels::answer,
    )
}

fn is_refused(report: &Report, level: &str) -> bool {
    matches!(answer(report, level), Answer::Refused(_))
}

/// Returns the rank of a level: stronger levels have higher ranks, and an unknown level has the lowest.
fn rank(level: &str) -> usize {
    let weaker = LEVELS.iter().rev().position(|known| *known == level);
    weaker.map_or(0, |weaker| weaker + 1)
}

fn cell(report: &Report, level: &str, causes: &mut Causes) -> String {
    match answer(report, level) {
        Answer::Given(given) if given == level => "contained".to_owned(),
        Answer::Given(given) => format!("not applicable: `{given}` is given"),
        Answer::Refused(cause) => format!("refused ({})", causes.number(&cause)),
        Answer::Broken(how) => format!("**broken**: {how}"),
    }
}

/// The refusals' messages, without duplicates.
#[derive(Default)]
struct Causes(Vec<String>);

impl Causes {
    fn number(&mut self, cause: &str) -> usize {
        let known = self.0.iter().position(|known| known == cause);
        known.unwrap_or_else(|| {
            self.0.push(cause.to_owned());
            self.0.len() - 1
        }) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Event;
    use super::super::situation::SITUATIONS;
    use super::*;

    const FULL: &str = r#"{"value": 42, "enforced": {"level": "full"}}"#;
    const STANDARD: &str = r#"{"value": 42, "enforced": {"level": "standard"}}"#;

    fn matrix(answers: [(i32, &str); 3], tests: &str) -> Matrix {
        let mut report = Report::default();
        report.read_line(&Event::Booted("6.1.0-50".to_owned()).to_line());
        for (level, (status, said)) in LEVELS.iter().zip(answers) {
            report.read_line(&Event::Began(levels::name(level)).to_line());
            report.read_line(said);
            report.read_line(&Event::Ended(status).to_line());
        }
        report.read_line(&Event::Began("escape".to_owned()).to_line());
        report.read_line(tests);
        report.read_line(&Event::Ended(0).to_line());
        report.read_line(&Event::Finished.to_line());
        let entries = vec![(SITUATIONS[2], report)];
        Matrix { entries }
    }

    #[test]
    fn a_refusal_has_its_cause_below() {
        let refusal = "sandfork: no cgroup";
        let answers = [(125, refusal), (0, STANDARD), (0, STANDARD)];
        let matrix = matrix(answers, "test result: ok. 80 passed; 0 failed; 0 ignored");
        assert_eq!(matrix.defects(), [""; 0]);
        let expected = "\
Made on a Friday.

| Linux | who | cgroup (version 2) | without | `full` | `standard` | `landlock` |
|---|---|---|---|---|---|---|
| 6.1.0-50 | ordinary user, logged in | none |  | refused (1) | contained | not applicable: `standard` is given |

1. no cgroup

| Linux | who | cgroup (version 2) | `escape` |
|---|---|---|---|
| 6.1.0-50 | ordinary user, logged in | none | 80 passed, 0 failed, 0 skipped |
";
        assert_eq!(matrix.render("on a Friday"), expected);
    }

    #[test]
    fn kernels_that_agree_share_a_row_and_causes() {
        let refusal = "sandfork: no cgroup";
        let answers = [(125, refusal), (0, STANDARD), (0, STANDARD)];
        let passed = "test result: ok. 80 passed; 0 failed; 0 ignored";
        let mut both = matrix(answers, passed);
        let mut newer = matrix(answers, "test result: ok. 81 passed; 0 failed; 0 ignored");
        newer.entries[0].1.release = "6.12.1".to_owned();
        both.entries.append(&mut newer.entries);
        let text = both.render("on a Friday");
        assert_eq!(text.matches("| 6.1.0-50, 6.12.1 |").count(), 1, "{text}");
        assert_eq!(text.matches("| 6.12.1 |").count(), 1, "{text}");
        assert_eq!(text.matches("no cgroup").count(), 1, "{text}");
    }

    #[test]
    fn less_than_was_required_is_a_defect() {
        let answers = [(0, STANDARD), (1, "Traceback"), (0, FULL)];
        let matrix = matrix(
            answers,
            "test result: FAILED. 1 passed; 1 failed; 0 ignored",
        );
        let place = "6.1.0-50, ordinary user, logged in ";
        let expected = [
            format!("{place}: `standard` instead of `full`"),
            format!("{place}: standard: status Some(1): Traceback"),
            format!("{place}: escape: 1 passed, 1 failed, 0 skipped"),
        ];
        assert_eq!(matrix.defects(), expected);
    }

    #[test]
    fn a_level_that_is_refused_and_given_is_a_defect() {
        let answers = [
            (125, "sandfork: no memory controller"),
            (0, FULL),
            (0, FULL),
        ];
        let matrix = matrix(answers, "");
        let expected = "6.1.0-50, ordinary user, logged in : `full`, which was refused".to_owned();
        assert_eq!(matrix.defects(), [expected.clone(), expected]);
    }
}
