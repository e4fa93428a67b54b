//! An outcome as it is sent to a caller. Output and value travel separately, and the properties of
//! the whole session were sent when it was opened.

use serde::{Serialize, Serializer};

use crate::outcome::{Connection, Denial, ExceptionInfo, LimitHit, Outcome, Status, Usage};

/// An outcome without the parts that travel separately or were sent before.
#[derive(Clone, Debug, PartialEq)]
pub struct WireOutcome(pub Outcome);

impl Serialize for WireOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json<'a> {
            status: Status,
            exit_code: u8,
            limit: Option<LimitHit>,
            error: Option<&'a ExceptionInfo>,
            usage: &'a Usage,
            denied: &'a [Denial],
            denied_omitted: u64,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            network: &'a [Connection],
        }
        let outcome = &self.0;
        Json {
            status: outcome.status(),
            exit_code: outcome.exit_code(),
            limit: outcome.limit(),
            error: outcome.error(),
            usage: outcome.usage(),
            denied: outcome.denied(),
            denied_omitted: outcome.denied_omitted(),
            network: outcome.network(),
        }
        .serialize(serializer)
    }
}
