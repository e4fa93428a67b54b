//! Reads statements from a person: history, completion, several lines.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustyline::completion::Completer;
use rustyline::config::{CompletionType, Config};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use super::commands;
use super::statements::{indentation, needs_more};
use crate::Value;
use crate::session::{Cell, Session};

/// How long the guest may take to answer a completion.
const WALL: Duration = Duration::from_millis(500);

/// The most completions that are shown.
const MOST: usize = 500;

/// The longest name that is one.
const LONGEST: usize = 100;

/// What a person typed.
pub enum Typed {
    /// A statement, or a command of the shell.
    Statement(String),
    /// Ctrl-D.
    End,
}

/// A line editor on the terminal.
pub struct LineEditor {
    editor: Editor<Names, FileHistory>,
    history: Option<PathBuf>,
}

impl LineEditor {
    /// An editor whose completions come from the session.
    pub fn new(session: Rc<RefCell<Session>>, history: Option<PathBuf>) -> io::Result<Self> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(10_000)
            .and_then(|config| config.history_ignore_dups(true))
            .map(|config| config.history_ignore_space(true).build());
        let mut editor = Editor::with_config(config.map_err(failed)?).map_err(failed)?;
        editor.set_helper(Some(Names(session)));
        let history = history.filter(|path| prepare(path).is_ok());
        if let Some(path) = &history {
            // A file of another program, or an older one: the history then begins anew.
            _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }

    /// Reads the next statement. Ctrl-C begins it anew.
    pub fn read(&mut self) -> io::Result<Typed> {
        let mut text = String::new();
        loop {
            let line = if text.is_empty() {
                self.editor.readline(">>> ")
            } else {
                let start = indentation(&text);
                self.editor.readline_with_initial("... ", (&start, ""))
            };
            match line {
                Ok(line) => text.push_str(&line),
                Err(ReadlineError::Interrupted) => text.clear(),
                Err(ReadlineError::Eof) => return Ok(Typed::End),
                Err(error) => return Err(failed(error)),
            }
            if text.trim().is_empty() {
                text.clear();
            } else if needs_more(&text) {
                text.push('\n');
            } else {
                self.remember(text.trim_end());
                return Ok(Typed::Statement(text));
            }
        }
    }

    fn remember(&mut self, statement: &str) {
        _ = self.editor.add_history_entry(statement);
        if let Some(path) = &self.history {
            // The shell goes on without it, such as on a full disk.
            _ = self.editor.append_history(path);
        }
    }
}

fn failed(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// Makes the file, readable by this user alone: people type secrets.
fn prepare(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    made.map(drop)
}

/// Completes the shell's commands, and names that the session knows.
struct Names(Rc<RefCell<Session>>);

impl Completer for Names {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..position];
        if before.trim().is_empty() {
            return Ok((position, vec!["    ".to_owned()]));
        }
        if before.starts_with('%') {
            let names = commands::NAMES.iter().map(|name| format!("%{name} "));
            return Ok((0, names.filter(|name| name.starts_with(before)).collect()));
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let start = before.rfind(|c| !is_part(c)).map_or(0, |at| {
            at + before[at..].chars().next().map_or(1, char::len_utf8)
        });
        let (object, begun) = match before[start..].rsplit_once('.') {
            Some((object, begun)) => (Some(object), begun),
            None => (None, &before[start..]),
        };
        let Ok(mut session) = self.0.try_borrow_mut() else {
            return Ok((position, Vec::new()));
        };
        Ok((position - begun.len(), names(&mut session, object, begun)))
    }
}

/// The names that begin so, of an object or of all. What the guest answers may be anything: only short names
/// are taken.
fn names(session: &mut Session, object: Option<&str>, begun: &str) -> Vec<String> {
    let of = match object {
        Some(object) if object.split('.').all(is_name) => format!("dir({object})"),
        Some(_) => return Vec::new(),
        None => {
            "[*globals(), *(__builtins__ if isinstance(__builtins__, dict) else dir(__builtins__))]"
                .to_owned()
        }
    };
    let source = format!("sorted({{n for n in {of} if n.startswith('{begun}')}})[:{MOST}]");
    let Ok(report) = session.run(Cell::new(source).wall(WALL)) else {
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

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}
