//! What the caller takes from a run's files.

use std::fmt;
use std::sync::Arc;

use crate::outcome::Outcome;
use crate::supervisor::files::WorkDir;

type Look = dyn Fn(&WorkDir, &Outcome) + Send + Sync;

/// A function of the caller that looks at the work directory after a run.
#[derive(Clone)]
pub struct Collector(Arc<Look>);

impl Collector {
    pub fn new(look: impl Fn(&WorkDir, &Outcome) + Send + Sync + 'static) -> Self {
        Self(Arc::new(look))
    }

    pub fn look(&self, work: &WorkDir, outcome: &Outcome) {
        (self.0)(work, outcome);
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}
