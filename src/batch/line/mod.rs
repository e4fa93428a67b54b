//! Parses a line of a task file: one JSON object. Pure.

mod fields;

use std::path::PathBuf;

use self::fields::Fields;
use super::{Expect, TaskId};
use crate::error::{Error, ErrorKind};
use crate::policy::{AbovePolicy, LimitOverrides, Policy, Stdin};
use crate::protocol::FrameLimits;
use crate::supervisor::Request;
use crate::supervisor::files::GuestPath;

/// A task as one line describes it. `docs/batch.md` lists every key.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskLine {
    /// `id`: the task's id, if it has one.
    pub id: Option<TaskId>,
    /// `code`, `file` or `program`: what to run.
    pub program: TaskProgram,
    /// `policy`: the name or file of a policy other than the batch's.
    pub policy: Option<String>,
    /// `files`: the files in the work directory.
    pub files: Vec<(GuestPath, Vec<u8>)>,
    /// `stdin`: the standard input.
    pub stdin: Option<Vec<u8>>,
    /// `limits`: limits lower than the policy's.
    pub limits: LimitOverrides,
    /// `expect`: the expected result. It is never sent into the sandbox.
    pub expect: Option<Expect>,
}

/// What a task runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TaskProgram {
    /// Python source.
    Code {
        /// The source.
        source: String,
        /// `sys.argv[1:]`.
        args: Vec<String>,
    },
    /// A script file of the host.
    File {
        /// Its path.
        path: PathBuf,
        /// `sys.argv[1:]`.
        args: Vec<String>,
    },
    /// A program of the sandbox, with its arguments.
    Program(Vec<String>),
}

impl TaskLine {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// If the line is not JSON, if a key is unknown, missing, duplicated or of the wrong type, or if a value is
    /// invalid.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields::parse(line)?;
        Ok(Self {
            id: fields.id()?,
            program: program(&mut fields)?,
            files: fields.files()?,
            stdin: fields.bytes("stdin")?,
            policy: fields.text("policy")?,
            limits: fields.limits()?,
            expect: fields.expect()?,
        })
    }

    /// Checks, as far as possible in advance, whether the task can run under a policy. The files are checked later,
    /// with those that the [`request`](Self::request) adds.
    ///
    /// # Errors
    ///
    /// If the task exceeds what the policy allows. The error names the key, and a value that would be allowed.
    pub fn check(&self, policy: &Policy) -> Result<(), Error> {
        let resolved = self.limits.resolve(&policy.limits);
        resolved.map_err(|AbovePolicy { name, allowed, .. }| {
            invalid(format!(
                "`{key}` is above the policy's {allowed}, and a task can only have less: raise that in the policy \
                 (`--set {key}=...`)",
                key = name.key()
            ))
        })?;
        if self.stdin.is_some() && policy.stdin == Stdin::Closed {
            return Err(invalid(
                "it has `stdin`, which the policy does not let tasks read: allow it with `--set stdio.stdin=pass`",
            ));
        }
        Ok(())
    }

    /// Returns the request, and the expected result. `name` is the file name of the code, if it was read from a file.
    /// `script` reads a file for the caller.
    pub fn request<E>(
        self,
        name: Option<&str>,
        script: impl FnOnce(PathBuf) -> Result<Request, E>,
    ) -> Result<(Request, Option<Expect>), E> {
        let program = match self.program {
            TaskProgram::Code { source, args } => {
                let request = Request::text(source).args(args);
                match name {
                    Some(name) => request.own_file(name),
                    None => request,
                }
            }
            TaskProgram::File { path, args } => script(path)?.args(args),
            TaskProgram::Program(argv) => Request::program(argv),
        };
        let files = self.files.into_iter();
        let mut request = files.fold(program, |request, (path, contents)| {
            request.file(path, contents)
        });
        if let Some(stdin) = self.stdin {
            request = request.stdin_bytes(stdin);
        }
        Ok((request.overrides(self.limits), self.expect))
    }
}

fn program(fields: &mut Fields) -> Result<TaskProgram, Error> {
    const KINDS: [&str; 3] = ["code", "file", "program"];
    let kinds: Vec<&'static str> = KINDS.into_iter().filter(|kind| fields.has(kind)).collect();
    let nothing = || invalid("there is nothing to run: give it `code`, `file` or `program`");
    let kind = match kinds[..] {
        [] => return Err(nothing()),
        [kind] => kind,
        [first, second, ..] => {
            return Err(invalid(format!(
                "it has both `{first}` and `{second}`: a task runs only one of them"
            )));
        }
    };
    let args = fields.texts("args")?;
    if kind == "program" {
        let words = fields.texts(kind)?.unwrap_or_default();
        return match (words.is_empty(), args) {
            (true, _) => Err(nothing()),
            (false, Some(_)) => Err(invalid(
                "`args` belongs to `code` and `file`: put a program's arguments into `program` itself",
            )),
            (false, None) => Ok(TaskProgram::Program(words)),
        };
    }
    let args = args.unwrap_or_default();
    let text = fields.text(kind)?.unwrap_or_default();
    if kind == "file" {
        if text.trim().is_empty() {
            return Err(nothing());
        }
        let path = text.into();
        return Ok(TaskProgram::File { path, args });
    }
    if text.len() > FrameLimits::TO_WORKER.payload {
        return Err(invalid(format!(
            "`code` is over the {} MiB that a script may have: keep data in `files`",
            FrameLimits::TO_WORKER.payload >> 20
        )));
    }
    Ok(TaskProgram::Code { source: text, args })
}

/// Returns the error for an invalid task. The message follows the file's name and the line number.
fn invalid(sentence: impl Into<String>) -> Error {
    Error::new(ErrorKind::Request, sentence)
}

#[cfg(test)]
mod tests;
