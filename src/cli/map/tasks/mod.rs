//! Reads tasks line by line, on demand.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::error::Error;
use std::io::{BufReader, Read};
use std::sync::Arc;

use crate::Policy;
use crate::batch::{Task, TaskId, TaskLine, TaskProgram};

use super::ids::{IdState, Ids};
use super::lines::{Closed, Line, Lines};
use super::progress::Progress;
use super::source::{Source, Watched};
use crate::cli::args::PolicyChoice;
use crate::cli::failure::Failure;
use crate::cli::policy::chosen;
use crate::cli::script::{Origin, Script};

/// The maximum length of a line, in bytes: a script and its files, in base64.
const MAX_BYTES: usize = 64 << 20;

/// The maximum number of policies that the tasks of one file may name. Each needs a warm interpreter.
const MAX_POLICIES: usize = 16;

/// The tasks of a file that are still to run.
pub struct Tasks {
    lines: Lines<BufReader<Box<dyn Read + Send>>>,
    watched: Watched,
    policies: Policies,
    /// The ids seen in tasks and in results.
    ids: Ids,
    progress: Arc<Progress>,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Reading,
    /// The file has ended, or an error ended reading.
    Ended,
}

/// An error in a task file, with its location.
#[derive(Debug, thiserror::Error)]
#[error("{name}:{line}: {what}")]
pub struct InputError {
    name: String,
    line: u64,
    what: LineError,
}

/// The error of a line: a sentence, or the error of another module.
type LineError = Box<dyn Error + Send + Sync>;

impl Tasks {
    /// Creates a reader of `source` that skips the tasks that have a result.
    pub fn new(source: Source, policies: Policies, ids: Ids, progress: Arc<Progress>) -> Self {
        let Source { reader, watched } = source;
        Self {
            lines: Lines::new(reader, MAX_BYTES),
            watched,
            policies,
            ids,
            progress,
            state: State::Reading,
        }
    }

    /// Returns the next task to run, or an error with its line number.
    fn find(&mut self) -> Result<Option<Task>, (u64, LineError)> {
        loop {
            let next = self.lines.number() + 1;
            let line = match self.lines.next() {
                Err(error) => {
                    return Err((next, format!("it cannot be read: {error}").into()));
                }
                Ok(None) => {
                    let ended = self.check_unchanged().map(|()| None);
                    return ended.map_err(|wrong| (next, wrong));
                }
                Ok(Some(line)) => line,
            };
            // Including its newline.
            let bytes = line.text.len() as u64 + 1;
            let task = self.task(&line);
            match task.map_err(|wrong| (line.number, wrong))? {
                Some(task) => {
                    self.progress.read(bytes);
                    return Ok(Some(task));
                }
                None => self.progress.skip(bytes),
            }
        }
    }

    /// Checks at the end of the file that its size has not changed since it was opened.
    fn check_unchanged(&self) -> Result<(), LineError> {
        match self.watched.size_now() {
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(
                "the file has grown since it was opened, and nothing from this line on was run; run it again with \
                 `--resume` when it is complete"
                    .into(),
            ),
            Ordering::Less => {
                Err("the file has become shorter while it was read, and ends here now".into())
            }
        }
    }

    /// Returns the task of a line, if it still has to run.
    fn task(&mut self, line: &Line) -> Result<Option<Task>, LineError> {
        match line.closed {
            Closed::Never => {
                let most = MAX_BYTES >> 20;
                let sentence =
                    format!("it is over the {most} MiB that a task may have; keep data out of it");
                return Err(sentence.into());
            }
            // The line may be incomplete if the file has grown.
            Closed::ByEof => self.check_unchanged()?,
            Closed::ByNewline => {}
        }
        let mut text = line.text.as_slice();
        if line.number == 1 {
            // Some editors put a byte order mark before UTF-8.
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        let mut task = TaskLine::parse(text)?;
        let id = task.id.take().unwrap_or_else(|| of_line(line.number));
        match self.ids.record_task(&id) {
            IdState::New => self.policies.task(id, task).map(Some),
            IdState::Finished => {
                self.progress.count_finished();
                Ok(None)
            }
            IdState::Repeated => Err(format!(
                "an earlier task has the id {id} too; give each task a unique id"
            )
            .into()),
        }
    }
}

impl Iterator for Tasks {
    type Item = Result<Task, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Ended {
            return None;
        }
        let found = self.find();
        if !matches!(found, Ok(Some(_))) {
            self.state = State::Ended;
        }
        let named = |(line, what)| InputError {
            name: self.watched.name.clone(),
            line,
            what,
        };
        found.map_err(named).transpose()
    }
}

/// The policies that tasks name, each loaded once.
pub struct Policies {
    default: Arc<Policy>,
    overrides: Vec<String>,
    named: HashMap<String, Arc<Policy>>,
    reach: Reach,
}

/// What tasks may refer to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// Scripts and policies of the host, and programs of the sandbox.
    Host,
    /// Nothing: tasks contain their code, and run under the batch's policy.
    CodeOnly,
}

impl Policies {
    /// Creates the policies of a file. `default` is the policy of `choice`. The overrides of `choice` apply to all
    /// policies.
    pub fn new(default: Policy, choice: &PolicyChoice, reach: Reach) -> Self {
        Self {
            default: Arc::new(default),
            overrides: choice.overrides.clone(),
            named: HashMap::new(),
            reach,
        }
    }

    fn get(&mut self, name: &str) -> Result<Arc<Policy>, LineError> {
        if let Some(policy) = self.named.get(name) {
            return Ok(Arc::clone(policy));
        }
        if self.named.len() == MAX_POLICIES {
            let sentence = format!(
                "earlier tasks name {MAX_POLICIES} policies already, each with a separate interpreter; \
                 put tasks with other policies into another file"
            );
            return Err(sentence.into());
        }
        let policy = Arc::new(chosen(&PolicyChoice {
            policy: name.to_owned(),
            overrides: self.overrides.clone(),
        })?);
        self.named.insert(name.to_owned(), Arc::clone(&policy));
        Ok(policy)
    }

    /// Creates a task from its line.
    fn task(&mut self, id: TaskId, mut line: TaskLine) -> Result<Task, LineError> {
        if let Some(key) = beyond_code(&line).filter(|_| self.reach == Reach::CodeOnly) {
            let sentence = format!(
                "it has `{key}`, which `--code-only` refuses: take it out, or run tasks that you trust without the \
                 option"
            );
            return Err(sentence.into());
        }
        let own = line.policy.take().map(|name| self.get(&name)).transpose()?;
        let policy = Arc::clone(own.as_ref().unwrap_or(&self.default));
        line.check(&policy)?;
        let script = |path| Script::load(Origin::Task(path)).map(Script::request_with_file);
        let (request, expect) = line.request(None, |path| script(path).map_err(no_script))?;
        let fit = request.check_files(&policy.limits);
        fit.map_err(|error| format!("`files`: {error}"))?;
        let task = Task::new(id, request).expect(expect);
        Ok(match own {
            Some(policy) => task.policy(policy),
            None => task,
        })
    }
}

/// Returns the id of a task without one: its line number, which messages name too.
fn of_line(number: u64) -> TaskId {
    TaskId::Number(number.cast_signed())
}

/// Returns the key by which a task refers to more than its own code.
fn beyond_code(line: &TaskLine) -> Option<&'static str> {
    match line.program {
        TaskProgram::File { .. } => Some("file"),
        TaskProgram::Program(_) => Some("program"),
        TaskProgram::Code { .. } => line.policy.is_some().then_some("policy"),
    }
}

/// Replaces the error for a missing script, whose remedy `-c` does not apply to tasks.
fn no_script(failure: Failure) -> LineError {
    match failure {
        Failure::NoScript(path) => format!(
            "`{}` does not exist; check the path, which is relative to the directory in which `sandfork` was started",
            path.display()
        )
        .into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests;
