//! Reads statements from the user, with history, completion and multi-line input.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustyline::completion::Completer;
use rustyline::config::{CompletionType, Config};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use super::super::failure::say;
use super::ask::{Text, check_complete, names};
use super::commands;
use crate::session::Session;

/// The user's input.
pub enum Typed {
    /// A statement, or a shell command.
    Statement(String),
    /// Ctrl-D.
    End,
}

/// A line editor on the terminal.
pub struct LineEditor {
    editor: Editor<Names, FileHistory>,
    session: Rc<RefCell<Session>>,
    history: Option<PathBuf>,
}

impl LineEditor {
    /// Creates an editor that asks the session for completions and statement boundaries.
    pub fn new(session: Rc<RefCell<Session>>, history: Option<PathBuf>) -> io::Result<Self> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(10_000)
            .and_then(|config| config.history_ignore_dups(true))
            .map(|config| config.history_ignore_space(true).build());
        let mut editor = Editor::with_config(config.map_err(failed)?).map_err(failed)?;
        editor.set_helper(Some(Names(Rc::clone(&session))));
        let history = history.filter(|path| prepare(path).is_ok());
        if let Some(path) = &history {
            // Fails on a foreign or outdated file: the history then starts empty.
            _ = editor.load_history(path);
        }
        Ok(Self {
            editor,
            session,
            history,
        })
    }

    /// Reads the next statement. Ctrl-C discards the lines typed so far.
    pub fn read(&mut self) -> io::Result<Typed> {
        let mut text = String::new();
        let mut indentation = String::new();
        loop {
            let line = if text.is_empty() {
                self.editor.readline(">>> ")
            } else {
                self.editor
                    .readline_with_initial("... ", (&indentation, ""))
            };
            match line {
                Ok(line) => text.push_str(&line),
                Err(ReadlineError::Interrupted) => text.clear(),
                Err(ReadlineError::Eof) => return Ok(Typed::End),
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    say("the input is not UTF-8, and was discarded");
                    text.clear();
                }
                Err(error) => return Err(failed(error)),
            }
            if text.trim().is_empty() {
                text.clear();
                continue;
            }
            // Shell commands work even if the guest does not answer.
            let state = match commands::named(&text) {
                Some(_) => Text::Complete,
                None => check_complete(&mut self.session.borrow_mut(), &text),
            };
            match state {
                Text::Incomplete(next) => {
                    text.push('\n');
                    indentation = next;
                }
                Text::Interrupted => text.clear(),
                Text::Complete => {
                    self.remember(text.trim_end());
                    return Ok(Typed::Statement(text));
                }
            }
        }
    }

    fn remember(&mut self, statement: &str) {
        _ = self.editor.add_history_entry(statement);
        if let Some(path) = &self.history {
            // The shell works without a history, for example if the disk is full.
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

/// Creates the history file, readable by this user only, because people type secrets.
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

/// Completes shell commands, and names of the session.
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

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}
