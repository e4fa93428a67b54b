//! What the shell asks its session's guest: names, and where statements end. A guest may answer anything, and late.

use std::time::Duration;

use crate::outcome::Ending;
use crate::session::{Cell, CellReport, ResultMode, Session};
use crate::{Error, Value};

/// How long the guest may take to answer a completion.
const COMPLETION_WALL: Duration = Duration::from_millis(500);

/// How long it may take to tell whether a text is complete.
const STATEMENT_WALL: Duration = Duration::from_secs(2);

/// The most completions that are shown.
const MOST: usize = 500;

/// The longest name that is one, and the longest indentation.
const LONGEST: usize = 100;

/// What the guest says of a text that a person typed.
pub enum Text {
    /// It can run. So can one of which the guest says nothing: its parser then reports a mistake.
    Complete,
    /// More lines follow, the next one with this indentation.
    Incomplete(String),
    /// Ctrl-C came first.
    Interrupted,
}

/// Whether a text is complete.
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

/// How many lines of a script there are up to the end of each statement. Takes as long as a cell may.
pub fn statement_ends(session: &mut Session, script: &str) -> Result<CellReport, Error> {
    let question = format!("get_ipython().statement_ends({})", literal(script));
    ask(session, &question, None)
}

/// The statements of a script, each with the number of lines before it. What is blank is left out.
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

/// Whether a line has no code.
fn is_blank(line: &str) -> bool {
    let code = line.trim_start();
    code.is_empty() || code.starts_with('#')
}

/// The names that begin so, of an object or of all. Only short names are taken.
pub fn names(session: &mut Session, object: Option<&str>, begun: &str) -> Vec<String> {
    let of = match object {
        Some(object) if object.split('.').all(is_name) => format!("dir({object})"),
        Some(_) => return Vec::new(),
        None => {
            "[*globals(), *(__builtins__ if isinstance(__builtins__, dict) else dir(__builtins__))]"
                .to_owned()
        }
    };
    let question = format!("sorted({{n for n in {of} if n.startswith('{begun}')}})[:{MOST}]");
    let Ok(report) = ask(session, &question, Some(COMPLETION_WALL)) else {
        return Vec::new();
    };
    let found = report
        .outcome()
        .value()
        .and_then(Value::as_list)
        .unwrap_or_default();
    let names = found.iter().filter_map(Value::as_str).take(MOST);
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

/// Has the guest evaluate an expression. Within a statement, so that its value does not become `_`.
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

/// A text as a literal of Python, which a string of JSON is.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_cut_where_statements_end() {
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
    fn false_ends_lose_no_line() {
        for ends in [&[][..], &[-1, 2, 1, i64::MAX, 0], &[0, 0, 3, 9]] {
            let found = split("a\nb\nc\nd", ends);
            let texts: Vec<_> = found.iter().map(|(_, text)| text.as_str()).collect();
            assert_eq!(texts.join("\n"), "a\nb\nc\nd", "{ends:?}");
        }
    }
}
