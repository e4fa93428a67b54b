//! Directories of a session that a caller watches, from outside.
//!
//! The kernel tells this process of changes (inotify(7)), since the guest may not ask for that itself: each watch is an
//! instance of its own, whose queue the kernel bounds. Events are read when a caller wants them, and no faster than the
//! host can spare the time for ([`Watch::next`]). What does not fit is lost, and the caller gets
//! [`FileEvent::Overflow`] in its place. So a guest that changes its files as fast as it can, or a caller that never
//! reads, takes a bounded amount of memory and processor time from the host.

mod slot;
mod tree;

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{InitFlags, Inotify};

use self::slot::Slot;
pub use self::tree::Depth;
use self::tree::Tree;
use super::clock;
use super::programs::{BesideRefusal, Queue};
use super::wait::{is_readable, wait};
use crate::error::{Error, ErrorKind};
use crate::protocol::caller::FileEvent;
use crate::waiters::lock;

/// The pause after events were read: those that come meanwhile are read together.
const PAUSE: Duration = Duration::from_millis(10);
/// The pause in terms of the time that it took to handle them, so that a watch takes a tenth of one processor.
const PAUSES: u32 = 9;
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Watches directories of one session, from any thread, also while a cell runs. It serves the session's workers one
/// after another.
#[derive(Clone, Debug)]
pub struct Watcher(pub(crate) Arc<Queue>);

impl Watcher {
    /// Watches a directory. What changes from now on is reported. The path is relative to the session's work directory,
    /// or begins with it.
    ///
    /// # Errors
    ///
    /// When there is no such directory, it holds more than 1,024 directories to watch, the session has ended or has 8
    /// watches, or this process has a quarter of `fs.inotify.max_user_instances`.
    pub fn watch(&self, path: &str, depth: Depth) -> Result<Watch, Error> {
        Ok(self.begin(path, depth)?)
    }

    /// The same, with the reason as a value.
    pub(crate) fn begin(&self, path: &str, depth: Depth) -> Result<Watch, BesideRefusal> {
        let watch = Watch(Arc::new(Shared::new()?));
        // First, so that the end of the session's worker ends it too.
        self.0.add_watch(&watch.0)?;
        let directory = self.0.directory(path)?;
        let tree = Tree::new(&watch.0.inotify, directory, depth, path)?;
        watch.0.begin(tree)?;
        Ok(watch)
    }
}

/// A directory that is watched until this is dropped, or its session ends or begins anew. Nothing happens in one that was
/// removed.
#[derive(Debug)]
pub struct Watch(Arc<Shared>);

/// What a watch shares with its session.
#[derive(Debug)]
pub struct Shared {
    inotify: Inotify,
    /// Readable from its end on.
    ended: EventFd,
    state: Mutex<State>,
    _slot: Slot,
}

#[derive(Debug)]
enum State {
    /// It has not begun.
    Asked,
    Watching {
        tree: Tree,
        /// When events may be read again.
        ready: Instant,
    },
    /// Holds the reason, as part of a sentence.
    Ended(String),
}

impl Watch {
    /// Waits for what happened in the directory, until `until` if there is one. Returns nothing when that has passed.
    /// What has happened by then is returned all the same, over several calls if it is much.
    ///
    /// # Errors
    ///
    /// When the watch has ended, such as with its session.
    pub fn next(&self, until: Option<Instant>) -> Result<Vec<FileEvent>, Error> {
        let mut is_last = false;
        loop {
            let events = self.events_now().map_err(|why| over(&why))?;
            if !events.is_empty() || is_last {
                return Ok(events);
            }
            let is_late = until.is_some_and(|until| clock::now() >= until);
            if is_late && !self.has_more() {
                return Ok(events);
            }
            let (sources, ready) = self.sources();
            // A guest can go on with what means no event, such as a change of the watched directory's own mode.
            is_last = is_late && ready.is_none();
            let until = match ready {
                Some(ready) if is_late => Some(ready),
                Some(ready) => Some(until.map_or(ready, |until| until.min(ready))),
                None => until,
            };
            // It fails only if the kernel is out of memory. Then the next attempt follows at once.
            _ = wait(sources, until);
        }
    }

    /// Ends it. In a thread that waits for events, [`next`](Self::next) returns the error.
    pub fn close(&self) {
        self.0.end("it was closed");
    }

    /// What happened, if it may be read now. The error is the reason why it has ended.
    pub(crate) fn events_now(&self) -> Result<Vec<FileEvent>, String> {
        let mut state = lock(&self.0.state);
        let (tree, ready) = match &mut *state {
            State::Asked => return Ok(Vec::new()),
            State::Ended(why) => return Err(why.clone()),
            State::Watching { tree, ready } => (tree, ready),
        };
        let begun = clock::now();
        if begun < *ready {
            return Ok(Vec::new());
        }
        let Some(events) = tree.read(&self.0.inotify) else {
            return Ok(Vec::new());
        };
        let now = clock::now();
        let pause = now.duration_since(begun).saturating_mul(PAUSES);
        *ready = now + pause.clamp(PAUSE, LONGEST_PAUSE);
        Ok(events)
    }

    /// What to wait for, for [`events_now`](Self::events_now), and when to look again if events may not be read before.
    pub(crate) fn sources(&self) -> ([Option<(BorrowedFd<'_>, PollFlags)>; 2], Option<Instant>) {
        let ready = match &*lock(&self.0.state) {
            State::Watching { ready, .. } => Some(*ready).filter(|ready| clock::now() < *ready),
            State::Asked | State::Ended(_) => None,
        };
        let events = (self.0.inotify.as_fd(), PollFlags::POLLIN);
        let ended = (self.0.ended.as_fd(), PollFlags::POLLIN);
        (
            [Some(events).filter(|_| ready.is_none()), Some(ended)],
            ready,
        )
    }

    /// Whether there is something that was not read.
    fn has_more(&self) -> bool {
        let events = Some((self.0.inotify.as_fd(), PollFlags::POLLIN));
        wait([events], Some(clock::now())).is_ok_and(|[ready]| is_readable(ready))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn new() -> Result<Self, BesideRefusal> {
        let slot = Slot::take()?;
        let failed = |errno| BesideRefusal::of_system("a directory could not be watched", errno);
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        Ok(Self {
            inotify: Inotify::init(flags).map_err(failed)?,
            ended: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(failed)?,
            state: Mutex::new(State::Asked),
            _slot: slot,
        })
    }

    fn begin(&self, tree: Tree) -> Result<(), BesideRefusal> {
        let mut state = lock(&self.state);
        if let State::Ended(why) = &*state {
            return Err(over(why));
        }
        let ready = clock::now();
        *state = State::Watching { tree, ready };
        Ok(())
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        matches!(*lock(&self.state), State::Ended(_))
    }

    /// Ends it, and lets go of the session's files.
    pub fn end(&self, why: &str) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Ended(_)) {
            drop(mem::replace(&mut *state, State::Ended(why.to_owned())));
            // Fails only after 2^64 writes.
            _ = self.ended.write(1);
        }
    }
}

/// The watch has ended.
fn over(why: &str) -> BesideRefusal {
    let sentence = format!("the watch has ended because {why}: watch the directory anew");
    BesideRefusal::Other(ErrorKind::SessionEnded, sentence)
}

/// How the session's thread answers a request for a directory.
pub type DirectoryAnswer = Result<OwnedFd, BesideRefusal>;

#[cfg(test)]
mod tests;
