//! What detects that a jail is not sound.

use std::fmt;

use sandfork::Layer;

use crate::subject::Reply;

/// The first party that detected a mutant, in the order in which they see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The kernel: the set-up failed.
    SetUp(String),
    /// The worker or its supervisor: verification failed.
    Inspection(String),
    /// A guest: it could do more or less than in a sound jail.
    Guest {
        name: &'static str,
        difference: String,
    },
    /// No party detected it.
    Survived,
    /// Another layer stops the same: a guest sees a difference only without that layer.
    Doubled { by: Layer, difference: String },
    /// No party can detect it, for this reason.
    Equivalent(&'static str),
    /// The mutant could not be made.
    Untried(String),
}

impl Verdict {
    /// Sets the name of the guest that detected it, if a guest did.
    pub fn by(self, guest: &'static str) -> Self {
        match self {
            Self::Guest { difference, .. } => Self::Guest {
                name: guest,
                difference,
            },
            other => other,
        }
    }

    /// Returns the table columns: the detector and the finding.
    pub fn columns(&self) -> (String, &str) {
        match self {
            Self::SetUp(says) => ("set-up".to_owned(), says),
            Self::Inspection(says) => ("look".to_owned(), says),
            Self::Guest { name, difference } => (format!("guest {name}"), difference),
            Self::Doubled { by, difference } => (format!("doubled by {by}"), difference),
            Self::Equivalent(reason) => ("equivalent".to_owned(), reason),
            Self::Survived => ("SURVIVED".to_owned(), ""),
            Self::Untried(why) => ("UNTRIED".to_owned(), why),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, what) = self.columns();
        write!(f, "{by}: {what}")
    }
}

/// Compares a result with that in a sound jail.
pub fn judge(sound: &Reply, reply: Option<&Reply>) -> Verdict {
    match reply {
        None => Verdict::SetUp("the supervisor ended".to_owned()),
        Some(Reply::Refused { says }) => Verdict::SetUp(says.clone()),
        Some(Reply::NotEnforced { says }) => Verdict::Inspection(says.clone()),
        Some(reply) => {
            difference(sound, reply).map_or(Verdict::Survived, |difference| Verdict::Guest {
                name: "",
                difference,
            })
        }
    }
}

/// Returns the first differing line and the number of others.
fn difference(sound: &Reply, reply: &Reply) -> Option<String> {
    let (
        Reply::Ran {
            status,
            stdout,
            stderr,
        },
        Reply::Ran {
            status: sound_status,
            stdout: sound_out,
            ..
        },
    ) = (reply, sound)
    else {
        return Some(format!("{reply:?}"));
    };
    if status != sound_status {
        let message = stderr.lines().last().unwrap_or("nothing said");
        return Some(format!("{status} ({message})"));
    }
    let known: Vec<&str> = sound_out.lines().collect();
    let found: Vec<&str> = stdout.lines().collect();
    let new: Vec<&&str> = found.iter().filter(|line| !known.contains(line)).collect();
    let missing: Vec<&&str> = known.iter().filter(|line| !found.contains(line)).collect();
    match (new.as_slice(), missing.as_slice()) {
        ([], []) => None,
        ([first], _) => Some((**first).to_owned()),
        ([first, rest @ ..], _) => Some(format!("{first} (and {} more)", rest.len())),
        ([], [first, ..]) => Some(format!("no more: {first}")),
    }
}
