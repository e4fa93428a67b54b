//! Collects the output of failed tests, to repeat it at the end of a long log.

/// The most lines kept for one harness: the first failures matter most, and the log has the rest.
const KEPT: usize = 200;

/// Collects the output line by line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Failures {
    lines: Vec<String>,
    place: Place,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Place {
    #[default]
    Elsewhere,
    /// Between the first line of the failures' output and the line after it.
    Inside,
}

impl Failures {
    /// Parses one line of libtest or libtest-mimic.
    pub fn read(&mut self, line: &str) {
        let next = match line {
            "failures:" => Some(Place::Inside),
            _ if line.starts_with("test result: ") => Some(Place::Elsewhere),
            _ => None,
        };
        self.take(line, next);
    }

    /// Parses one line of pytest, whose titles stand between equals signs.
    pub fn read_pytest(&mut self, line: &str) {
        let title = line
            .strip_prefix("==")
            .map(|rest| rest.trim_matches(['=', ' ']));
        let next = title.map(|title| match title {
            "FAILURES" | "ERRORS" => Place::Inside,
            _ => Place::Elsewhere,
        });
        self.take(line, next);
    }

    /// Adds a failure that no harness reported.
    pub fn push(&mut self, line: String) {
        self.lines.push(line);
    }

    /// Adds the output of another collector.
    pub fn extend(&mut self, other: Self) {
        self.lines.extend(other.lines);
    }

    /// The collected lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    fn take(&mut self, line: &str, next: Option<Place>) {
        if let Some(next) = next {
            self.place = next;
        } else if self.place == Place::Inside && !line.is_empty() && self.lines.len() < KEPT {
            self.lines.push(line.to_owned());
        }
    }
}
