//! What came back, whether it is the answer to its question, and how many of each there were.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sandfork::{Outcome, Value};

use crate::repertoire::Guest;

/// What is wrong, in words; nothing if it is as it should be.
pub type Judged = Result<(), String>;

/// What came back, from wherever.
#[derive(Debug)]
pub struct Came {
    pub status: String,
    pub stdout: String,
    /// The value, where it is a text.
    pub value: Option<String>,
    /// The exception's message.
    pub message: Option<String>,
}

impl From<&Outcome> for Came {
    fn from(outcome: &Outcome) -> Self {
        Self {
            status: outcome.status().to_string(),
            stdout: outcome.stdout().into_owned(),
            value: outcome.value().and_then(Value::as_str).map(str::to_owned),
            message: outcome.error().map(|error| error.message.clone()),
        }
    }
}

impl Came {
    /// Whether it is what this guest, with this token, must give.
    pub fn judge(&self, guest: &Guest, token: &str) -> Judged {
        let told = |what: &str| {
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
            return told("another ending");
        }
        let line = format!("{token}\n");
        let is_its_own = self.stdout.starts_with(&line)
            || (guest.may_be_silent() && line.starts_with(&self.stdout));
        if !is_its_own {
            return told("another's output");
        }
        match guest.name {
            "value" if self.value.as_deref() != Some(token) => told("another's value"),
            "exception" if self.message.as_deref() != Some(token) => told("another's exception"),
            _ => Ok(()),
        }
    }

    /// Whether it ended well, with this value.
    pub fn is_value(&self, token: &str) -> Judged {
        if self.status == "ok" && self.value.as_deref() == Some(token) {
            return Ok(());
        }
        Err(format!("a cell that must give {token}: {self:?}"))
    }

    /// Whether it ended so.
    pub fn has_ended(&self, ends: &[&str]) -> Judged {
        if ends.contains(&self.status.as_str()) {
            return Ok(());
        }
        Err(format!("a cell that must end with {ends:?}: {self:?}"))
    }
}

/// All that came back, counted, and the first of what was wrong.
#[derive(Debug, Default)]
pub struct Answers {
    endings: Mutex<BTreeMap<String, usize>>,
    wrong: Mutex<Vec<String>>,
    /// How often sessions were copied, by the way in which they were.
    copies: Mutex<BTreeMap<&'static str, usize>>,
    /// Workers that guests were given, one each.
    runs: AtomicUsize,
}

/// The maximum number of reported wrong answers.
const MOST_WRONG: usize = 20;

impl Answers {
    /// One ended so.
    pub fn count(&self, ending: &str) {
        let mut endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
        *endings.entry(ending.to_owned()).or_default() += 1;
    }

    /// A worker has got the state of another.
    pub fn count_copy(&self, way: &'static str) {
        self.count_run();
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        *copies.entry(way).or_default() += 1;
    }

    /// A worker was had.
    pub fn count_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Keeps what is wrong, if it is.
    pub fn keep(&self, judged: Judged) {
        let Err(wrong) = judged else { return };
        let mut all = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_WRONG {
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
