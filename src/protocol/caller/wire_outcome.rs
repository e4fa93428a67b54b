//! An outcome as it is sent to a caller. Output and value travel separately, and the properties of
//! the whole session were sent when it was opened.

use serde::{Serialize, Serializer};

use crate::outcome::{Outcome, OutcomeJson};

/// An outcome without the parts that travel separately or were sent before.
#[derive(Clone, Debug, PartialEq)]
pub struct WireOutcome(pub Outcome);

impl Serialize for WireOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        OutcomeJson::of(&self.0).serialize(serializer)
    }
}
