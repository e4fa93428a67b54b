//! Functions of a caller.

use std::fmt;

/// A function in a value that is shown for debugging, which has nothing to show.
#[derive(Clone)]
pub struct Opaque<F>(pub F);

impl<F> fmt::Debug for Opaque<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a function")
    }
}
