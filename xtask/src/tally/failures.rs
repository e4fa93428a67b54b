//! What test harnesses print of the tests that failed, kept so that it can stand at the end of a long log.

/// So many lines of one harness: the first failures say most, and the whole is further up.
const KEPT: usize = 200;

/// Collects it, line by line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Failures {
    lines: Vec<String>,
    place: Place,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Place {
    #[default]
    Elsewhere,
    /// Between the line that begins what is told of failures, and the one after it.
    Inside,
}

impl Failures {
    /// Takes in one line of libtest's or libtest-mimic's.
    pub fn read(&mut self, line: &str) {
        let next = match line {
            "failures:" => Some(Place::Inside),
            _ if line.starts_with("test result: ") => Some(Place::Elsewhere),
            _ => None,
        };
        self.take(line, next);
    }

    /// Takes in one line of pytest's, whose titles stand between equals signs.
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

    /// A failure that no harness tells of.
    pub fn push(&mut self, line: String) {
        self.lines.push(line);
    }

    /// Both together.
    pub fn extend(&mut self, other: Self) {
        self.lines.extend(other.lines);
    }

    /// All that was kept.
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
