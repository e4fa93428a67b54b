//! An outcome as a caller is told of it: output and value travel beside it, and what holds for the
//! whole session was told when it was opened.

use serde::{Serialize, Serializer};

use crate::exit_code;
use crate::outcome::{Denial, ExceptionInfo, LimitHit, Outcome, Status, Usage};

/// An outcome without what travels beside it or was told before.
#[derive(Clone, Debug, PartialEq)]
pub struct Told(pub Outcome);

impl Serialize for Told {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json<'a> {
            status: Status,
            exit_code: u8,
            limit: Option<LimitHit>,
            error: Option<&'a ExceptionInfo>,
            usage: &'a Usage,
            denied: &'a [Denial],
        }
        let outcome = &self.0;
        Json {
            status: outcome.status(),
            exit_code: exit_code::of(outcome.ending()),
            limit: outcome.limit(),
            error: outcome.error(),
            usage: outcome.usage(),
            denied: outcome.denied(),
        }
        .serialize(serializer)
    }
}
