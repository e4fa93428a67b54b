//! Asks the session's guest for names and statement boundaries. A guest may answer anything, or late.

use std::time::Duration;

use crate::outcome::Ending;
use crate::session::{Cell, CellReport, ResultMode, Session};
use crate::{Error, Value};

/// The time limit for a completion.
const COMPLETION_WALL: Duration = Duration::from_millis(500);

/// The time limit for checking whether a text is complete.
const STATEMENT_WALL: Duration = Duration::from_secs(2);

/// The maximum number of completions that are shown.
const MAX: usize = 500;

/// The maximum length of a name and of an indentation, in characters.
const LONGEST: usize = 100;

/// The guest's answer about a text that the user typed.
pub enum Text {
    /// The text can run. A text on which the guest gives no answer can run too, because the parser then reports any
    /// mistake.
    Complete,
    /// The text needs more lines; the next line has this indentation.
    Incomplete(String),
    /// Ctrl-C interrupted the check.
    Interrupted,
}

/// Asks whether a text is complete.
pub fn check_complete(session: &mut Session, text: &str) -> Text {
    let question = format!("get_ipython().check_complete({})", literal(text));
    let Ok(report) = ask(session, &question, Some(STATEMENT_WALL)) else {
        return Text::Complete;
    };
    if report.outcome().ending() == &Ending::Interrupted {
        return Text::Interrupted;
    }
    let answer = report.outcome().value().and_then(Value::as_list);
    let is_space =
        |text: &&str| text.len() <= LONGEST && text.chars().all(|c| c == ' ' || c == '\t');
    match answer.unwrap_or_default() {
        [status, indent] if status.as_str() == Some("incomplete") => {
            let indent = indent.as_str().filter(is_space).unwrap_or_default();
            Text::Incomplete(indent.to_owned())
        }
        _ => Text::Complete,
    }
}

/// Asks for the number of lines up to the end of each statement of a script, within the limits of a cell.
pub fn statement_ends(session: &mut Session, script: &str) -> Result<CellReport, Error> {
    let question = format!("get_ipython().statement_ends({})", literal(script));
    ask(session, &question, None)
}

/// Splits a script into statements, each with the number of lines before it. Blank parts are left out.
pub fn split(script: &str, ends: &[i64]) -> Vec<(usize, String)> {
    let lines: Vec<&str> = script.split('\n').collect();
    let mut statements = Vec::new();
    let mut first = 0;
    let ends = ends.iter().filter_map(|end| usize::try_from(*end).ok());
    for end in ends.chain([lines.len()]) {
        let end = end.clamp(first, lines.len());
        if let Some(begin) = (first..end).find(|number| !is_blank(lines[*number])) {
            statements.push((begin, lines[begin..end].join("\n")));
        }
        first = end;
    }
    statements
}

/// Returns whether a line has no code.
fn is_blank(line: &str) -> bool {
    let code = line.trim_start();
    code.is_empty() || code.starts_with('#')
}

/// Returns the names with a prefix: attributes of an object, or globals and builtins. Long names are ignored.
pub fn names(session: &mut Session, object: Option<&str>, begun: &str) -> Vec<String> {
    let of = match object {
        Some(object) if object.split('.').all(is_name) => format!("dir({object})"),
        Some(_) => return Vec::new(),
        None => {
            "[*globals(), *(__builtins__ if isinstance(__builtins__, dict) else dir(__builtins__))]"
                .to_owned()
        }
    };
    let question = format!("sorted({{n for n in {of} if n.startswith('{begun}')}})[:{MAX}]");
    let Ok(report) = ask(session, &question, Some(COMPLETION_WALL)) else {
        return Vec::new();
    };
    let found = report
        .outcome()
        .value()
        .and_then(Value::as_list)
        .unwrap_or_default();
    let names = found.iter().filter_map(Value::as_str).take(MAX);
    let is_meant = |name: &&str| {
        let is_private = name.starts_with('_') && !begun.starts_with('_');
        is_name(name) && name.len() <= LONGEST && name.starts_with(begun) && !is_private
    };
    names.filter(is_meant).map(str::to_owned).collect()
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_alphabetic() || c == '_') && text.chars().all(is_part)
}

/// Makes the guest evaluate an expression, within a statement so that its value does not become `_`.
fn ask(
    session: &mut Session,
    expression: &str,
    wall: Option<Duration>,
) -> Result<CellReport, Error> {
    let cell = Cell::new(format!("if 1: {expression}")).last(ResultMode::Statement);
    session.run(match wall {
        Some(wall) => cell.wall(wall),
        None => cell,
    })
}

/// Returns a text as a Python literal. Every JSON string is one.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_split_at_statement_ends() {
        let script = "import math\n\n# why\n@cache\ndef f(x):\n    return y\nf(\n)\n%ls\n\n";
        let found = split(script, &[1, 6, 8]);
        let found: Vec<_> = found
            .iter()
            .map(|(line, text)| (*line, text.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (0, "import math"),
                (3, "@cache\ndef f(x):\n    return y"),
                (6, "f(\n)"),
                (8, "%ls\n\n"),
            ]
        );
    }

    #[test]
    fn false_ends_lose_no_lines() {
        for ends in [&[][..], &[-1, 2, 1, i64::MAX, 0], &[0, 0, 3, 9]] {
            let found = split("a\nb\nc\nd", ends);
            let texts: Vec<_> = found.iter().map(|(_, text)| text.as_str()).collect();
            assert_eq!(texts.join("\n"), "a\nb\nc\nd", "{ends:?}");
        }
    }
}
