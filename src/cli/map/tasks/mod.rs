//! Reads tasks line by line, on demand.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::error::Error;
use std::io::{BufReader, Read};
use std::sync::Arc;

use crate::Policy;
use crate::batch::{Task, TaskId, TaskLine, TaskProgram};

use super::ids::{Ids, Met};
use super::lines::{Closed, Line, Lines};
use super::progress::Progress;
use super::source::{Source, Watched};
use crate::cli::args::PolicyChoice;
use crate::cli::failure::Failure;
use crate::cli::policy::chosen;
use crate::cli::script::{Origin, Script};

/// The longest line, bytes: a script and its files, in base64.
const MOST_BYTES: usize = 64 << 20;

/// The most policies that the tasks of one file may name: each has its own warm interpreter.
const MOST_POLICIES: usize = 16;

/// The tasks of a file that are still to be run.
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

/// An error in a file of tasks, with its place.
#[derive(Debug, thiserror::Error)]
#[error("{name}:{line}: {what}")]
pub struct InputError {
    name: String,
    line: u64,
    what: Wrong,
}

/// What is wrong with a line: a sentence, of its own or of what refused it.
type Wrong = Box<dyn Error + Send + Sync>;

impl Tasks {
    /// Reads `source`, without the tasks that have a result.
    pub fn new(source: Source, policies: Policies, ids: Ids, progress: Arc<Progress>) -> Self {
        let Source { reader, watched } = source;
        Self {
            lines: Lines::new(reader, MOST_BYTES),
            watched,
            policies,
            ids,
            progress,
            state: State::Reading,
        }
    }

    /// The next task to run, or an error with its line number.
    fn find(&mut self) -> Result<Option<Task>, (u64, Wrong)> {
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
            // With its newline.
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

    /// Checks at the end of the file that it has the size that it had when it was opened.
    fn check_unchanged(&self) -> Result<(), Wrong> {
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

    /// The task of a line, if it still has to be run.
    fn task(&mut self, line: &Line) -> Result<Option<Task>, Wrong> {
        match line.closed {
            Closed::Never => {
                let most = MOST_BYTES >> 20;
                let sentence =
                    format!("it is over the {most} MiB that a task may have; keep data out of it");
                return Err(sentence.into());
            }
            // The line may be incomplete if the file has grown.
            Closed::ByTheEnd => self.check_unchanged()?,
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
        match self.ids.meet(&id) {
            Met::New => self.policies.task(id, task).map(Some),
            Met::Finished => {
                self.progress.count_finished();
                Ok(None)
            }
            Met::Again => {
                Err(format!("a task before it has the id {id} too; give each its own").into())
            }
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
    /// Nothing: they contain their code, and run under the policy of the batch.
    CodeOnly,
}

impl Policies {
    /// `default` is the policy of `choice`. The overrides of `choice` apply to the other policies
    /// too.
    pub fn new(default: Policy, choice: &PolicyChoice, reach: Reach) -> Self {
        Self {
            default: Arc::new(default),
            overrides: choice.overrides.clone(),
            named: HashMap::new(),
            reach,
        }
    }

    fn get(&mut self, name: &str) -> Result<Arc<Policy>, Wrong> {
        if let Some(policy) = self.named.get(name) {
            return Ok(Arc::clone(policy));
        }
        if self.named.len() == MOST_POLICIES {
            let sentence = format!(
                "the tasks before it name {MOST_POLICIES} policies already, each with an interpreter of its own; \
                 put tasks of more into another file"
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

    /// Makes a task from its line.
    fn task(&mut self, id: TaskId, mut line: TaskLine) -> Result<Task, Wrong> {
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

/// The id of a task without one: the number of its line, which messages name too.
fn of_line(number: u64) -> TaskId {
    TaskId::Number(number.cast_signed())
}

/// The key of a task that refers to more than its own code.
fn beyond_code(line: &TaskLine) -> Option<&'static str> {
    match line.program {
        TaskProgram::File { .. } => Some("file"),
        TaskProgram::Program(_) => Some("program"),
        TaskProgram::Code { .. } => line.policy.is_some().then_some("policy"),
    }
}

/// Rewrites the error, whose usual remedy, `-c`, does not apply to a task.
fn no_script(failure: Failure) -> Wrong {
    match failure {
        Failure::NoScript(path) => format!(
            "`{}` does not exist; check the path, which starts where `sandfork` was started",
            path.display()
        )
        .into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests;
