//! Checks and prepares a worker for a copy of its state.

use std::thread;
use std::time::Duration;

use super::worker_io::JailedWorker;
use crate::supervisor::programs::ProgramServer;
use crate::supervisor::snapshot::{Base, Medium, SnapshotRefusal, Source, require_alone};

/// The most times that a worker's processes are counted while the starter process ends.
const STARTER_CHECKS: usize = 200;
const STARTER_PAUSE: Duration = Duration::from_millis(1);

impl JailedWorker<'_> {
    /// Returns the worker as the source of a copy, or the target of a restore. It has run `cells` cells.
    pub(super) fn source(&self, cells: u64) -> Source<'_> {
        Source {
            worker: self.worker(),
            zygote: self.context.zygote,
            jail: &self.context.jail.worker,
            cells,
            limits: &self.context.limits,
            base: None,
            lent: &self.lent,
            share: &self.context.snapshots.on_disk,
            starter_socket: self
                .starter_socket
                .as_ref()
                .map(|starter_socket| starter_socket.peer),
        }
    }

    /// Returns the room for another copy of the session that shares pages with `base`, bytes.
    pub(super) fn room(
        &self,
        medium: Medium,
        base: Option<Base<'_>>,
    ) -> Result<u64, SnapshotRefusal> {
        if self.verified.session.is_some() {
            return Err(SnapshotRefusal::Level);
        }
        let context = self.context;
        context
            .snapshots
            .room(context.session, &context.limits, medium, base)
    }

    /// Requires that only the worker's main thread runs.
    pub(super) fn require_single(&mut self) -> Result<(), SnapshotRefusal> {
        self.dismiss_starter()?;
        require_alone(self.worker(), &self.watch.tree())
    }

    /// Ends the starter process, unless programs run. The starter exits as soon as its link is closed.
    fn dismiss_starter(&mut self) -> Result<(), SnapshotRefusal> {
        let dismissed = self
            .programs
            .as_mut()
            .map(ProgramServer::dismiss)
            .transpose();
        let runs =
            |name| SnapshotRefusal::Other(format!("the program `{name}` still runs; end it first"));
        if dismissed.map_err(runs)? == Some(true) {
            let is_there = || self.watch.tree().len() > 1;
            for _ in (0..STARTER_CHECKS).take_while(|_| is_there()) {
                thread::sleep(STARTER_PAUSE);
            }
        }
        Ok(())
    }
}
