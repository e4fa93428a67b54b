//! Copies of a session's state.

use std::path::Path;
use std::sync::Arc;

use super::Session;
use super::caller::lost;
use crate::error::{Error, ErrorKind};
use crate::protocol::caller::{ClientEvent, ClientRequest};
use crate::sandbox::{Sandbox, SessionRequest};
use crate::supervisor::{Image, Payload};

/// The state of a session at the end of a cell: variables, imports, functions, generators, open files and the
/// contents of its directories. Sessions begin with it, in any number and each on its own.
///
/// Dropping it frees its memory. The sessions that began with it live on.
#[derive(Debug)]
pub struct Snapshot {
    sandbox: Arc<Sandbox>,
    image: Arc<Image>,
    number: u64,
}

impl Snapshot {
    /// The memory that it takes, bytes.
    pub fn size(&self) -> u64 {
        self.image.bytes()
    }

    /// Saves it as a file that only this user can read, from which a sandbox of another process can
    /// [`resume`](Sandbox::resume). Another file with this name is replaced. Returns the file's length, bytes.
    ///
    /// # Errors
    ///
    /// When no session could begin with it, or the file cannot be written. Nothing is left of it then.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        Ok(self.sandbox.save(&self.image, path.as_ref())?)
    }

    /// Opens a session that begins with this state. It has no host tools until [`Session::tool`] defines them.
    ///
    /// Forks of one snapshot share its address layout and its keys, and may share memory: give them to one tenant.
    ///
    /// # Errors
    ///
    /// When the session could not be provided, or the state could not be restored.
    pub fn fork(&self) -> Result<Session, Error> {
        self.sandbox.open(SessionRequest {
            from: Some(Arc::clone(&self.image)),
            ..SessionRequest::default()
        })
    }
}

impl Sandbox {
    /// Opens a session that begins with the state which [`Snapshot::save`] or [`Session::pause_to`] has saved, in this
    /// process or in another of this user: any number of them. It has no host tools until [`Session::tool`] defines them.
    ///
    /// The sandbox needs the policy and the interpreter of the one that saved it, and the machine must not have been started anew
    /// since.
    ///
    /// # Errors
    ///
    /// When the file is of no use here, which the error explains, or as [`Snapshot::fork`].
    pub fn resume(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<Session, Error> {
        self.open(SessionRequest {
            from: Some(self.saved(path.as_ref())?),
            ..SessionRequest::default()
        })
    }
}

impl Session {
    /// Saves the session's state as a file, as [`Snapshot::save`] does, and ends the session. Returns the file's length,
    /// bytes.
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

    /// Copies the session's state between two cells. The session goes on as before.
    ///
    /// # Errors
    ///
    /// When there is something that cannot be copied, such as a thread, another process or a socket. The error names
    /// it, and the session lives on.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let id = self.id();
        let ClientEvent::Snapshot { snapshot, .. } =
            self.copied(id, ClientRequest::Snapshot { id })?
        else {
            return Err(lost());
        };
        let image = self.sandbox.snapshots().get(snapshot);
        Ok(Snapshot {
            sandbox: Arc::clone(&self.sandbox),
            image: image.ok_or_else(lost)?,
            number: snapshot,
        })
    }

    /// Pauses the session now, as `session.pause_after` does after a time: its state goes to a disk, and its process has
    /// ended when this returns. The next use brings it back. Watches of its directories end. The time
    /// until then counts neither for `session.idle` nor for `session.age`.
    ///
    /// # Errors
    ///
    /// As [`snapshot`](Self::snapshot), and when there is no disk or too little room on it. The session lives on.
    pub fn pause(&mut self) -> Result<(), Error> {
        let id = self.id();
        self.copied(id, ClientRequest::Pause { id }).map(drop)
    }

    /// Copies the session by the request with this number, and returns the answer.
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

    /// Gives the session the state of a snapshot of its sandbox. Host tools stay defined.
    ///
    /// # Errors
    ///
    /// When the state could not be restored. The session then has the state that it had.
    pub fn rollback(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let id = self.id();
        let snapshot = snapshot.number;
        self.begin_anew(id, ClientRequest::Rollback { id, snapshot })
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.sandbox.snapshots().discard(self.number);
    }
}
