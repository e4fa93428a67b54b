//! Implements `sandfork shell`: runs the cells of one session, typed by the user or read from a script.

mod ask;
mod commands;
mod editor;

use std::cell::RefCell;
use std::env;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use nix::sys::signal::Signal;

use super::args::ShellArguments;
use super::env::provide;
use super::failure::{Failure, say};
use super::interrupt::{Interrupts, Modes};
use super::policy::chosen;
use super::print;
use super::report::sentence;
use super::script::{Origin, Script};
use super::streams::{Guest, Streams};
use crate::outcome::{Ending, exit_code};
use crate::policy::Policy;
use crate::session::{Cell, Interrupter, ResultMode, Session, SessionState};
use crate::{Cancel, ErrorKind, Sandbox, Value};
use ask::{split, statement_ends};
use commands::Done;
use editor::{LineEditor, Typed};

/// Runs the shell.
pub fn shell(arguments: &ShellArguments) -> Result<u8, Failure> {
    let policy = chosen(&arguments.policy)?;
    provide(&policy)?;
    let modes = Modes::of_stdin();
    let interrupter: Arc<OnceLock<Interrupter>> = Arc::default();
    let for_signals = Arc::clone(&interrupter);
    Interrupts::take_each(move |signal| match for_signals.get() {
        Some(running) if signal == Signal::SIGINT => running.interrupt(),
        _ => {
            modes.restore();
            std::process::exit(exit_code::INTERRUPTED.into());
        }
    })
    .map_err(Failure::Setup)?;
    let sandbox = Arc::new(Sandbox::builder().policy(policy.clone()).build()?);
    let session = sandbox.session()?;
    // Set once, here.
    _ = interrupter.set(session.interrupter());
    let mut shell = Shell {
        session: Rc::new(RefCell::new(session)),
        policy,
        cells: 0,
        has_ended: false,
    };
    if io::stdin().is_terminal() {
        shell.run_interactive(history(arguments))
    } else {
        shell.run_script()
    }
}

/// Returns the path of the history file, in the user's state directory by convention.
fn history(arguments: &ShellArguments) -> Option<PathBuf> {
    if arguments.no_history {
        return None;
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(absolute);
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/state"));
    let state = state.or_else(home).filter(absolute)?;
    Some(state.join("sandfork/history"))
}

/// How a cell ended.
enum Ended {
    /// Its code ran to the end.
    Completed,
    /// It failed, with this exit code.
    Failed(u8),
    /// It called `sys.exit`, with this exit code.
    Exited(u8),
}

struct Shell {
    session: Rc<RefCell<Session>>,
    policy: Policy,
    cells: u64,
    /// Whether the session has ended.
    has_ended: bool,
}

impl Shell {
    /// Reads statements from the user until the user quits or a cell calls `sys.exit`.
    fn run_interactive(&mut self, history: Option<PathBuf>) -> Result<u8, Failure> {
        let enforced = self.session.borrow().enforced().to_string();
        print(format!(
            "sandfork {}, {enforced}; type %help for help\n",
            env!("CARGO_PKG_VERSION")
        ))?;
        let editor = LineEditor::new(Rc::clone(&self.session), history);
        let mut editor = editor.map_err(Failure::Setup)?;
        loop {
            let Typed::Statement(statement) = editor.read().map_err(Failure::Input)? else {
                print("\n")?;
                return Ok(exit_code::OK);
            };
            match commands::execute(&statement, &mut self.session.borrow_mut()) {
                Done::Quit => return Ok(exit_code::OK),
                Done::Yes | Done::No => continue,
                Done::Unknown => {}
            }
            self.cells += 1;
            let name = format!("<input {}>", self.cells);
            let ended = self.run(Cell::new(statement).filename(name))?;
            if let Ended::Exited(code) = ended {
                return Ok(code);
            }
            self.restart_if_ended()?;
        }
    }

    /// Runs the statements of stdin one after another, until one fails.
    fn run_script(&mut self) -> Result<u8, Failure> {
        let script = Script::load(Origin::Stdin)?;
        // Normalize line ends as Python does.
        let text = script.text()?.replace("\r\n", "\n").replace('\r', "\n");
        let ends_report = statement_ends(&mut self.session.borrow_mut(), &text)?;
        let outcome = ends_report.outcome();
        // A script that cannot be parsed runs as one cell, which reports the syntax error.
        if !matches!(outcome.ending(), Ending::Ok | Ending::Exception) {
            if let Some(sentence) = sentence(outcome, &self.policy, "") {
                say(&sentence);
            }
            return Ok(outcome.exit_code());
        }
        let ends = outcome
            .value()
            .and_then(|ends| ends.integers(&ends_report.buffers()));
        for (lines_before, statement) in split(&text, &ends.unwrap_or_default()) {
            match commands::execute(&statement, &mut self.session.borrow_mut()) {
                Done::Quit => break,
                Done::Yes => continue,
                Done::No => return Ok(exit_code::USAGE),
                Done::Unknown => {}
            }
            // Padding makes tracebacks show the script's line numbers.
            let source = "\n".repeat(lines_before) + &statement;
            match self.run(Cell::new(source).filename(&script.name))? {
                Ended::Completed => {}
                Ended::Exited(code) | Ended::Failed(code) => return Ok(code),
            }
        }
        Ok(exit_code::OK)
    }

    /// Runs a cell, and prints its output, its value, and how it ended.
    fn run(&mut self, cell: Cell) -> Result<Ended, Failure> {
        let cancel = Cancel::new().map_err(Failure::Setup)?;
        let mut streams = Streams::new(cancel, Guest::Prints);
        let ran = self
            .session
            .borrow_mut()
            .run_streaming(cell.last(ResultMode::Text), &mut streams);
        let report = match ran {
            Ok(report) => report,
            Err(error) if error.kind() == ErrorKind::SessionEnded => {
                streams.finish()?;
                self.has_ended = true;
                return Ok(Ended::Failed(Failure::from(error).say()));
            }
            Err(error) => return Err(error.into()),
        };
        let outcome = report.outcome();
        if let Some(error) = outcome.error() {
            streams.show_traceback(&error.traceback);
        }
        streams.finish()?;
        for display in report.shown() {
            let buffers = display.buffers();
            let plain = display.data().get("text/plain");
            if let Some(text) = plain.and_then(|plain| plain.text(&buffers)) {
                print(format!("{text}\n"))?;
            }
        }
        if let Some(text) = outcome.value().and_then(Value::as_str) {
            print(format!("{text}\n"))?;
        }
        let is_shown = outcome.ending() == &Ending::Interrupted && outcome.error().is_some();
        if let Some(sentence) = sentence(outcome, &self.policy, "").filter(|_| !is_shown) {
            say(&sentence);
        }
        self.has_ended = report.session() == SessionState::Ended;
        Ok(match outcome.ending() {
            Ending::Ok => Ended::Completed,
            Ending::Exit(code) => Ended::Exited(*code),
            _ => Ended::Failed(outcome.exit_code()),
        })
    }

    fn restart_if_ended(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.has_ended) {
            self.session.borrow_mut().restart()?;
            say(
                "the session has ended, and its variables and files are lost; a new session was started",
            );
        }
        Ok(())
    }
}
