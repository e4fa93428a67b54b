//! Copies the state of a session: snapshots, forks, rollbacks and pauses.

use std::path::Path;
use std::sync::Arc;

use super::Session;
use super::caller::thread_ended;
use crate::error::{Error, ErrorKind};
use crate::protocol::caller::{ClientEvent, ClientRequest};
use crate::sandbox::{Sandbox, SessionRequest};
use crate::supervisor::{Image, Payload};

/// The state of a session after a cell: variables, imports, functions, generators, open files and the contents of its
/// directories. Any number of independent sessions can start from it.
///
/// Dropping the snapshot frees its memory. Sessions that started from it live on.
#[derive(Debug)]
pub struct Snapshot {
    sandbox: Arc<Sandbox>,
    image: Arc<Image>,
    number: u64,
}

impl Snapshot {
    /// Returns the memory that the snapshot takes, in bytes.
    pub fn size(&self) -> u64 {
        self.image.bytes()
    }

    /// Saves the snapshot as a file that only this user can read, from which a sandbox of another process can
    /// [`resume`](Sandbox::resume). Replaces an existing file of that name. Returns the file's length in bytes.
    ///
    /// # Errors
    ///
    /// If no session could start from the snapshot, or if the file cannot be written. No partial file is left.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        Ok(self.sandbox.save(&self.image, path.as_ref())?)
    }

    /// Opens a session that starts from this snapshot. It has no host tools until [`Session::tool`] defines them.
    ///
    /// Forks of one snapshot share its address layout and its keys, and may share memory: use them for one tenant only.
    ///
    /// # Errors
    ///
    /// If the session could not be provided, or if the state could not be restored.
    pub fn fork(&self) -> Result<Session, Error> {
        self.sandbox.open(SessionRequest {
            from: Some(Arc::clone(&self.image)),
            ..SessionRequest::default()
        })
    }
}

impl Sandbox {
    /// Opens a session from a file that [`Snapshot::save`] or [`Session::pause_to`] has written, in this process or in
    /// another process of this user. A file can be resumed any number of times. The session has no host tools until
    /// [`Session::tool`] defines them.
    ///
    /// The sandbox needs the same policy and interpreter as the sandbox that saved the file, and the machine must not
    /// have rebooted since.
    ///
    /// # Errors
    ///
    /// If the file cannot be used here, for a reason that the error gives, or as [`Snapshot::fork`].
    pub fn resume(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<Session, Error> {
        self.open(SessionRequest {
            from: Some(self.saved(path.as_ref())?),
            ..SessionRequest::default()
        })
    }
}

impl Session {
    /// Saves the session's state as a file, as [`Snapshot::save`] does, and ends the session. Returns the file's length
    /// in bytes.
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot) and [`Snapshot::save`]. The session then lives on.
    pub fn pause_to(&mut self, path: impl AsRef<Path>) -> Result<u64, Error> {
        let length = self.snapshot()?.save(path)?;
        self.requests.send(ClientRequest::Close, Payload::default());
        let id = self.id();
        while !matches!(self.events.next(id)?.0, ClientEvent::Closed) {}
        Ok(length)
    }

    /// Copies the session's state between two cells. The session continues unchanged.
    ///
    /// # Errors
    ///
    /// If the state includes something that cannot be copied, such as a thread, another process or a socket. The error
    /// names it, and the session lives on.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let id = self.id();
        let ClientEvent::Snapshot { snapshot, .. } =
            self.copied(id, ClientRequest::Snapshot { id })?
        else {
            return Err(thread_ended());
        };
        let image = self.sandbox.snapshots().get(snapshot);
        Ok(Snapshot {
            sandbox: Arc::clone(&self.sandbox),
            image: image.ok_or_else(thread_ended)?,
            number: snapshot,
        })
    }

    /// Pauses the session now, as `session.pause_after` does after a while: its state is written to disk, and its
    /// process has ended when this returns. The next use resumes the session. Its directory watches end. The paused
    /// time counts neither towards `session.idle` nor towards `session.age`.
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot), and if there is no disk, or too little space on it. The session lives on.
    pub fn pause(&mut self) -> Result<(), Error> {
        let id = self.id();
        self.copied(id, ClientRequest::Pause { id }).map(drop)
    }

    /// Sends a copy or pause request with this number, and returns the reply.
    fn copied(&mut self, id: u64, request: ClientRequest) -> Result<ClientEvent, Error> {
        self.requests.send(request, Payload::default());
        loop {
            match self.events.next(id)?.0 {
                answer @ (ClientEvent::Snapshot { .. } | ClientEvent::Accepted { .. }) => {
                    return Ok(answer);
                }
                // The worker has ended.
                ClientEvent::Outcome(ended) => {
                    let status = ended.outcome.0.status();
                    return Err(Error::new(
                        ErrorKind::SessionEnded,
                        format!(
                            "the session ended with `{}` while it was copied: restart it, or open another",
                            status.as_str()
                        ),
                    ));
                }
                _ => {}
            }
        }
    }

    /// Restores the session's state from a snapshot of the same sandbox. Host tools stay defined.
    ///
    /// # Errors
    ///
    /// If the state could not be restored. The session then keeps its current state.
    pub fn rollback(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let id = self.id();
        let snapshot = snapshot.number;
        self.replace_worker(id, ClientRequest::Rollback { id, snapshot })
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.sandbox.snapshots().discard(self.number);
    }
}
