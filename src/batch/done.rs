//! Defines the result of a task.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{INFRASTRUCTURE, REFUSED, TaskId};
use crate::error::{Error, ErrorKind};
use crate::outcome::{ExceptionInfo, Outcome, Status, Verdict};

/// The result of one task.
#[derive(Debug)]
pub struct Done {
    pub(super) id: TaskId,
    /// The outcome, or an error if no attempt got a sandbox or if no sandbox can run the request.
    pub(super) result: Result<Box<Outcome>, Error>,
    /// The verdict, if the task ran and has `expect`.
    pub(crate) verdict: Option<Verdict>,
    pub(super) attempts: u32,
    pub(super) elapsed: Duration,
}

impl Done {
    /// Returns the task's id.
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// Returns the outcome, if the task ran.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.result.as_deref().ok()
    }

    /// Returns the error, if no attempt got a sandbox or if no sandbox can run the request.
    pub fn error(&self) -> Option<&Error> {
        self.result.as_ref().err()
    }

    /// Returns the outcome or the error.
    pub fn into_result(self) -> Result<Outcome, Error> {
        self.result.map(|outcome| *outcome)
    }

    /// Returns the number of attempts. It exceeds 1 only if earlier attempts got no sandbox.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the time from the start of the task to its result, including all attempts and the pauses between them.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the outcome's status. Without an outcome, returns `refused` if no sandbox can run the request, or else
    /// `infrastructure`.
    pub fn status(&self) -> &'static str {
        match &self.result {
            Ok(outcome) => outcome.status().as_str(),
            Err(error) => status_of_error(error),
        }
    }

    /// Returns whether the task needs no further run. A task that was cancelled or got no sandbox should run again.
    pub fn is_finished(&self) -> bool {
        match &self.result {
            Ok(outcome) => outcome.status() != Status::Interrupted,
            Err(error) => error.kind() == ErrorKind::Request,
        }
    }
}

/// Serializes as the object of `sandfork run --json` with the task's `id`, and with `attempts` if there was more than
/// one.
impl Serialize for Done {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json<'a> {
            id: &'a TaskId,
            #[serde(skip_serializing_if = "Option::is_none")]
            attempts: Option<u32>,
            #[serde(flatten)]
            result: Ended<'a>,
            #[serde(flatten)]
            verdict: Option<&'a Verdict>,
        }
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Ended<'a> {
            Outcome(&'a Outcome),
            NotRun(NotRun<'a>),
        }
        Json {
            id: &self.id,
            attempts: (self.attempts > 1).then_some(self.attempts),
            result: match &self.result {
                Ok(outcome) => Ended::Outcome(outcome),
                Err(error) => Ended::NotRun(not_run(error)),
            },
            verdict: self.verdict.as_ref(),
        }
        .serialize(serializer)
    }
}

/// Returns the status of a task that did not run.
fn status_of_error(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Request => REFUSED,
        _ => INFRASTRUCTURE,
    }
}

/// The result of a task that did not run. It has the keys of an outcome in the same order, so that a table of results
/// has one set of columns and `--resume` recognizes an incomplete result.
#[derive(Serialize)]
struct NotRun<'a> {
    status: &'static str,
    exit_code: u8,
    limit: (),
    stdout: &'a str,
    stderr: &'a str,
    value: (),
    error: ExceptionInfo,
    usage: (),
    enforced: (),
    denied: [(); 0],
    denied_omitted: u64,
    policy: (),
}

fn not_run(error: &Error) -> NotRun<'static> {
    NotRun {
        status: status_of_error(error),
        exit_code: error.exit_code(),
        limit: (),
        stdout: "",
        stderr: "",
        value: (),
        error: ExceptionInfo::new(error.kind().class_name(), error.to_string(), ""),
        usage: (),
        enforced: (),
        denied: [],
        denied_omitted: 0,
        policy: (),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::batch::{Compact, FailureStreak, LOST_IN_A_ROW, RecordLine};
    use crate::outcome::{Ending, Enforced, PolicyIdentity};
    use crate::policy::Level;
    use crate::supervisor::SupervisorError;

    fn outcome(ending: Ending) -> Box<Outcome> {
        let enforced = Enforced {
            level: Level::Full,
            layers: vec![],
        };
        Box::new(Outcome::new(ending, PolicyIdentity::default(), enforced))
    }

    fn done(result: Result<Box<Outcome>, Error>, attempts: u32) -> Done {
        Done {
            id: TaskId::from("a"),
            result,
            verdict: None,
            attempts,
            elapsed: Duration::from_millis(1),
        }
    }

    fn keys(value: &Value) -> BTreeSet<&String> {
        value.as_object().unwrap().keys().collect()
    }

    #[test]
    fn result_is_a_runs_object_with_an_id() {
        let json = serde_json::to_value(done(Ok(outcome(Ending::Exit(3))), 1)).unwrap();
        assert_eq!(json["id"], "a");
        assert_eq!(json["status"], "exit");
        assert_eq!(json["exit_code"], 3);
        assert_eq!(json.get("attempts"), None);
        let json = serde_json::to_value(done(Ok(outcome(Ending::Ok)), 2)).unwrap();
        assert_eq!(json["attempts"], 2);
    }

    #[test]
    fn lost_task_has_the_same_keys() {
        let error = || Err(SupervisorError::ZygoteGone.into());
        let failed = serde_json::to_value(done(error(), 4)).unwrap();
        assert_eq!(failed["status"], "infrastructure");
        assert_eq!(failed["exit_code"], 125);
        assert_eq!(failed["error"]["name"], "System");
        assert_eq!(failed["attempts"], 4);
        let fine = serde_json::to_value(done(Ok(outcome(Ending::Ok)), 4)).unwrap();
        assert_eq!(keys(&failed), keys(&fine));
        assert_eq!(keys(&failed["error"]).len(), 3);
    }

    #[test]
    fn every_prefix_of_a_result_is_recognized() {
        let lost = || Err(SupervisorError::ZygoteGone.into());
        for done in [done(Ok(outcome(Ending::Ok)), 2), done(lost(), 4)] {
            let full = serde_json::to_string(&done).unwrap();
            for line in [full, serde_json::to_string(&Compact(&done)).unwrap()] {
                let beginnings = (0..=line.len()).map(|end| &line.as_bytes()[..end]);
                let unknown = beginnings.filter(|it| !RecordLine::may_begin_with(it));
                assert_eq!(unknown.count(), 0, "{line}");
            }
        }
    }

    #[test]
    fn only_tasks_that_ran_are_finished() {
        for ending in [
            Ending::Ok,
            Ending::Exception,
            Ending::Denied,
            Ending::Signal(9),
        ] {
            assert!(done(Ok(outcome(ending)), 1).is_finished());
        }
        assert!(!done(Ok(outcome(Ending::Interrupted)), 1).is_finished());
        let error = SupervisorError::ZygoteGone.into();
        assert!(!done(Err(error), 4).is_finished());
    }

    #[test]
    fn refused_requests_do_not_end_the_batch() {
        let mut losses = FailureStreak::default();
        for _ in 0..=LOST_IN_A_ROW {
            let refused = done(Err(Error::new(ErrorKind::Request, "no terminal")), 1);
            assert_eq!((refused.status(), refused.is_finished()), ("refused", true));
            let json = serde_json::to_value(&refused).unwrap();
            assert_eq!(
                (&json["status"], &json["exit_code"]),
                (&json!("refused"), &json!(2))
            );
            assert!(losses.last_of_too_many(&refused).is_none());
        }
        let lost = |losses: &mut FailureStreak| {
            let lost = done(Err(SupervisorError::ZygoteGone.into()), 4);
            losses.last_of_too_many(&lost).is_some()
        };
        assert!((1..LOST_IN_A_ROW).all(|_| !lost(&mut losses)));
        assert!(lost(&mut losses));
    }
}
