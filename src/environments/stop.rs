//! A handle that ends the making of an environment, from another thread.

use std::sync::{Arc, Mutex, PoisonError};

use crate::session::Interrupter;
use crate::supervisor::Cancel;

/// Ends what is being made, from another thread.
#[derive(Clone, Debug)]
pub struct Stop {
    /// For runs.
    pub(super) cancel: Cancel,
    session: Arc<Mutex<Stopped>>,
}

#[derive(Debug)]
enum Stopped {
    Not(Option<Interrupter>),
    Already,
}

impl Stop {
    /// Makes an unused handle.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            cancel: Cancel::new()?,
            session: Arc::new(Mutex::new(Stopped::Not(None))),
        })
    }

    /// Ends it, now and for good.
    pub fn stop(&self) {
        self.cancel.cancel();
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stopped::Not(Some(interrupter)) = &*session {
            interrupter.interrupt();
        }
        *session = Stopped::Already;
    }

    /// Whether it has been ended.
    pub fn is_stopped(&self) -> bool {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*session, Stopped::Already)
    }

    /// Has it end this session's cells too.
    pub(super) fn reaches(&self, interrupter: Interrupter) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *session {
            Stopped::Not(slot) => *slot = Some(interrupter),
            Stopped::Already => interrupter.interrupt(),
        }
    }
}
