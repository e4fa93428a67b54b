//! Defines the task of a batch.

use std::sync::Arc;

use super::{Done, Expect, TaskId, TaskLine};
use crate::error::{Error, ErrorKind};
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::supervisor::Request;

/// A request with an id, and the policy under which it runs.
#[derive(Clone, Debug)]
pub struct Task {
    pub(super) id: TaskId,
    pub(super) request: Request,
    pub(super) policy: Option<Arc<Policy>>,
    pub(super) expect: Option<Expect>,
}

impl Task {
    /// Creates a task under the batch's policy. The id need not be unique, but it identifies the result.
    ///
    /// A request that gets no sandbox is retried, so its standard input should be [`bytes`](Request::stdin_bytes). It
    /// is cancelled with the batch, not by its own [`Cancel`](crate::Cancel).
    pub fn new(id: impl Into<TaskId>, request: impl Into<Request>) -> Self {
        Self {
            id: id.into(),
            request: request.into(),
            policy: None,
            expect: None,
        }
    }

    /// Parses a line of a task file; `docs/batch.md` describes the keys. `id` is used if the line has no id. `file` and
    /// `policy` are rejected, because they name files of the host.
    ///
    /// # Errors
    ///
    /// Of kind [`Request`](crate::ErrorKind::Request), if the line is not a valid task.
    pub fn read(line: &[u8], id: impl Into<TaskId>) -> Result<Self, Error> {
        let line = TaskLine::parse(line)?;
        if line.policy.is_some() {
            return Err(host_file_error("policy"));
        }
        let id = line.id.clone().unwrap_or_else(|| id.into());
        let (request, expect) = line.request(None, |_| Err(host_file_error("file")))?;
        Ok(Self::new(id, request).expect(expect))
    }

    /// Returns the request, for a caller that runs it without a batch.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the task's result for the outcome of its request.
    pub fn done(self, outcome: Outcome) -> Done {
        Done {
            id: self.id,
            verdict: self.expect.and_then(|expect| expect.judge(&outcome)),
            elapsed: outcome.usage().wall,
            result: Ok(Box::new(outcome)),
            attempts: 1,
        }
    }

    /// Sets a policy other than the batch's. All tasks under policies with the same effect share one sandbox, which is
    /// built with the settings of the batch's sandbox. The sandbox has a separate interpreter and lives until the batch
    /// has ended, so use few policies.
    #[must_use]
    pub fn policy(mut self, policy: Arc<Policy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets the expected result.
    #[must_use]
    pub(crate) fn expect(mut self, expect: Option<Expect>) -> Self {
        self.expect = expect;
        self
    }

    /// Returns the task's id.
    pub fn id(&self) -> &TaskId {
        &self.id
    }
}

/// Returns the error for a key that names a file of the host, in a task from an untrusted source.
fn host_file_error(key: &str) -> Error {
    let sentence =
        format!("`{key}` names a file of the host, which is not allowed in tasks from elsewhere");
    Error::new(ErrorKind::Request, sentence)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use super::*;
    use crate::outcome::{Ending, Enforced, PolicyIdentity, Verdict};
    use crate::policy::Level;

    fn printed(text: &str) -> Outcome {
        let layers = Vec::new();
        let enforced = Enforced {
            level: Level::Full,
            layers,
        };
        Outcome::new(Ending::Ok, PolicyIdentity::default(), enforced)
            .with_output(text.into(), Vec::new())
    }

    #[test]
    fn task_is_judged_without_a_batch() {
        let line = br#"{"code": "print(1)", "expect": {"stdout": "1"}}"#;
        let task = Task::read(line, 7).expect("it is a task");
        assert_eq!(task.id(), &TaskId::from(7));
        let verdict = |text| task.clone().done(printed(text)).verdict;
        assert_eq!(verdict("1\n"), Some(Verdict::Pass));
        assert!(matches!(verdict("2\n"), Some(Verdict::Wrong(_))));
    }

    #[test]
    fn keys_for_host_files_are_rejected() {
        for (line, key) in [
            (r#"{"file": "/etc/passwd"}"#, "`file`"),
            (r#"{"code": "1", "policy": "strict"}"#, "`policy`"),
        ] {
            let error = Task::read(line.as_bytes(), 0).expect_err(line);
            assert_eq!(error.kind(), ErrorKind::Request);
            assert!(error.to_string().starts_with(key), "{error}");
        }
    }
}
