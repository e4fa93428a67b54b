//! Watches directories of a session for a caller, from outside the sandbox.
//!
//! The supervisor uses inotify(7), which the guest itself may not use. Each watch has its own inotify instance, whose
//! queue the kernel bounds. Events are read on the caller's request, and at a limited rate ([`Watch::next`]). Events
//! that do not fit are dropped, and the caller receives [`FileEvent::Overflow`] instead. A guest that changes its files
//! as fast as it can, or a caller that never reads, therefore costs the host a bounded amount of memory and CPU time.

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

/// The minimum pause between reads, so that events are handled in batches.
const PAUSE: Duration = Duration::from_millis(10);
/// The pause as a multiple of the time that handling took: a watch takes at most a tenth of one CPU.
const PAUSES: u32 = 9;
/// The maximum pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Watches directories of one session, from any thread, also while a cell runs. Stays valid when the session moves to
/// another worker.
#[derive(Clone, Debug)]
pub struct Watcher(pub(crate) Arc<Queue>);

impl Watcher {
    /// Watches a directory and reports changes from now on. The path is relative to the session's work directory, or
    /// begins with it.
    ///
    /// # Errors
    ///
    /// If there is no such directory, it holds more than 1,024 directories to watch, the session has ended or has 8
    /// watches, or this process holds a quarter of `fs.inotify.max_user_instances`.
    pub fn watch(&self, path: &str, depth: Depth) -> Result<Watch, Error> {
        Ok(self.begin(path, depth)?)
    }

    /// Like [`watch`](Self::watch), with the reason as a value.
    pub(crate) fn begin(&self, path: &str, depth: Depth) -> Result<Watch, BesideRefusal> {
        let watch = Watch(Arc::new(Shared::new()?));
        // Registered first, so that the watch ends if the session's worker ends meanwhile.
        self.0.add_watch(&watch.0)?;
        let directory = self.0.directory(path)?;
        let tree = Tree::new(&watch.0.inotify, directory, depth, path)?;
        watch.0.begin(tree)?;
        Ok(watch)
    }
}

/// A watched directory. The watch ends when this is dropped, and when its session ends, is restarted or rolled back, or
/// is paused at the caller's request. It reports nothing more once the directory is removed.
#[derive(Debug)]
pub struct Watch(Arc<Shared>);

/// The part of a watch that its session also holds.
#[derive(Debug)]
pub struct Shared {
    inotify: Inotify,
    /// Readable once the watch has ended.
    ended: EventFd,
    state: Mutex<State>,
    _slot: Slot,
}

#[derive(Debug)]
enum State {
    /// Registered, but not yet watching.
    Registered,
    Watching {
        tree: Tree,
        /// When events may be read next.
        ready: Instant,
    },
    /// Holds the reason, as part of a sentence.
    Ended(String),
}

impl Watch {
    /// Waits for events in the directory until `until`, if there is a deadline. Returns an empty list at the deadline,
    /// unless events are still queued: those are returned first, over several calls if there are many.
    ///
    /// # Errors
    ///
    /// If the watch has ended, for example because its session has.
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
            // A guest can keep producing changes that yield no event, such as mode changes of the watched directory
            // itself.
            is_last = is_late && ready.is_none();
            let until = match ready {
                Some(ready) if is_late => Some(ready),
                Some(ready) => Some(until.map_or(ready, |until| until.min(ready))),
                None => until,
            };
            // Fails only if the kernel is out of memory. The loop then tries again at once.
            _ = wait(sources, until);
        }
    }

    /// Ends the watch. A thread that waits in [`next`](Self::next) gets an error.
    pub fn close(&self) {
        self.0.end("it was closed");
    }

    /// Returns the queued events, if the rate limit allows a read now. The error is the reason why the watch has ended.
    pub(crate) fn events_now(&self) -> Result<Vec<FileEvent>, String> {
        let mut state = lock(&self.0.state);
        let (tree, ready) = match &mut *state {
            State::Registered => return Ok(Vec::new()),
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

    /// Returns what to poll before [`events_now`](Self::events_now), and when the rate limit allows the next read if it
    /// does not now.
    pub(crate) fn sources(&self) -> ([Option<(BorrowedFd<'_>, PollFlags)>; 2], Option<Instant>) {
        let ready = match &*lock(&self.0.state) {
            State::Watching { ready, .. } => Some(*ready).filter(|ready| clock::now() < *ready),
            State::Registered | State::Ended(_) => None,
        };
        let events = (self.0.inotify.as_fd(), PollFlags::POLLIN);
        let ended = (self.0.ended.as_fd(), PollFlags::POLLIN);
        (
            [Some(events).filter(|_| ready.is_none()), Some(ended)],
            ready,
        )
    }

    /// Whether events are queued.
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
            state: Mutex::new(State::Registered),
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

    /// Whether the watch has ended.
    pub fn has_ended(&self) -> bool {
        matches!(*lock(&self.state), State::Ended(_))
    }

    /// Ends the watch, and closes the session's files.
    pub fn end(&self, why: &str) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Ended(_)) {
            drop(mem::replace(&mut *state, State::Ended(why.to_owned())));
            // Fails only after 2^64 writes.
            _ = self.ended.write(1);
        }
    }
}

/// Builds the error for a watch that has ended.
fn over(why: &str) -> BesideRefusal {
    let sentence = format!("the watch has ended because {why}: watch the directory anew");
    BesideRefusal::Other(ErrorKind::SessionEnded, sentence)
}

/// The session thread's reply to a request for a directory.
pub type DirectoryAnswer = Result<OwnedFd, BesideRefusal>;

#[cfg(test)]
mod tests;
