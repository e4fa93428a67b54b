//! Checks and counts the replies: whether each belongs to its request, and how many ended in each way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sandfork::{Outcome, Value};

use crate::repertoire::Guest;

/// What is wrong, if anything.
pub type Judged = Result<(), String>;

/// A reply from any caller interface.
#[derive(Debug)]
pub struct Reply {
    pub status: String,
    pub stdout: String,
    /// The value, if it is a string.
    pub value: Option<String>,
    /// The exception's message.
    pub message: Option<String>,
}

impl From<&Outcome> for Reply {
    fn from(outcome: &Outcome) -> Self {
        Self {
            status: outcome.status().to_string(),
            stdout: outcome.stdout().into_owned(),
            value: outcome.value().and_then(Value::as_str).map(str::to_owned),
            message: outcome.error().map(|error| error.message.clone()),
        }
    }
}

impl Reply {
    /// Checks that this is the reply of this guest with this token.
    pub fn judge(&self, guest: &Guest, token: &str) -> Judged {
        let mismatch = |what: &str| {
            let Self { stdout, .. } = self;
            let stdout: String = stdout.chars().take(200).collect();
            let seen = Self {
                stdout,
                status: self.status.clone(),
                value: self.value.clone(),
                message: self.message.clone(),
            };
            Err(format!(
                "{what}: guest `{}` with {token}: {seen:?}",
                guest.name
            ))
        };
        if !guest.ends.iter().any(|end| end.as_str() == self.status) {
            return mismatch("another ending");
        }
        let line = format!("{token}\n");
        let is_its_own = self.stdout.starts_with(&line)
            || (guest.may_be_silent() && line.starts_with(&self.stdout));
        if !is_its_own {
            return mismatch("another's output");
        }
        match guest.name {
            "value" if self.value.as_deref() != Some(token) => mismatch("another's value"),
            "exception" if self.message.as_deref() != Some(token) => {
                mismatch("another's exception")
            }
            _ => Ok(()),
        }
    }

    /// Checks that it succeeded with this value.
    pub fn is_value(&self, token: &str) -> Judged {
        if self.status == "ok" && self.value.as_deref() == Some(token) {
            return Ok(());
        }
        Err(format!("a cell that must give {token}: {self:?}"))
    }

    /// Checks that it ended with one of these statuses.
    pub fn has_ended(&self, ends: &[&str]) -> Judged {
        if ends.contains(&self.status.as_str()) {
            return Ok(());
        }
        Err(format!("a cell that must end with {ends:?}: {self:?}"))
    }
}

/// Counts of all replies, and the first wrong ones.
#[derive(Debug, Default)]
pub struct Answers {
    endings: Mutex<BTreeMap<String, usize>>,
    wrong: Mutex<Vec<String>>,
    /// The number of session copies by method.
    copies: Mutex<BTreeMap<&'static str, usize>>,
    /// The number of workers that were used.
    runs: AtomicUsize,
}

/// The maximum number of reported wrong replies.
const MAX_WRONG: usize = 20;

impl Answers {
    /// Counts a status.
    pub fn count(&self, ending: &str) {
        let mut endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
        *endings.entry(ending.to_owned()).or_default() += 1;
    }

    /// Counts a worker that was restored from the state of another.
    pub fn count_copy(&self, way: &'static str) {
        self.count_run();
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        *copies.entry(way).or_default() += 1;
    }

    /// Counts a worker.
    pub fn count_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Keeps an error, if there is one.
    pub fn keep(&self, judged: Judged) {
        let Err(wrong) = judged else { return };
        let mut all = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MAX_WRONG {
            all.push(wrong);
        }
    }

    pub fn endings(&self) -> BTreeMap<String, usize> {
        self.endings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn copies(&self) -> BTreeMap<&'static str, usize> {
        let copies = self.copies.lock();
        copies.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn wrong(&self) -> Vec<String> {
        self.wrong
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
