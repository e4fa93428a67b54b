//! How far it is: counted by whoever knows, drawn on a terminal, summed up at the end.

mod moment;

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sandfork::batch::Done;

pub use self::moment::Counts;

use self::moment::Moment;

/// How far the tasks have been read.
#[derive(Debug, Default)]
pub struct Reading {
    /// Where the last line that was read ends, bytes.
    read: AtomicU64,
    /// How many of those bytes were lines of which nothing had to be run.
    skipped: AtomicU64,
    /// Tasks that had a result already.
    finished: AtomicU64,
}

impl Reading {
    /// Up to there.
    pub fn read_to(&self, end: u64) {
        self.read.store(end, Ordering::Relaxed);
    }

    /// Up to there, and the last line was none to run.
    pub fn skipped_to(&self, end: u64) {
        let before = self.read.swap(end, Ordering::Relaxed);
        self.skipped.fetch_add(end - before, Ordering::Relaxed);
    }

    /// How many tasks had a result already.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    /// One more had a result already.
    pub fn count_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }
}

/// Follows a batch, and draws it where a person looks.
pub struct Progress {
    shared: Arc<Shared>,
    drawing: Option<JoinHandle<()>>,
}

struct Shared {
    begun: Instant,
    size: Option<u64>,
    reading: Arc<Reading>,
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    counts: Counts,
    over: bool,
}

/// Whether there is a bar.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bar {
    /// Drawn on stderr, again and again.
    Drawn,
    /// Not.
    None,
}

impl Bar {
    /// Where stderr is a terminal, and stdout, to which results may go, is not.
    pub fn where_seen() -> Self {
        match (io::stderr().is_terminal(), io::stdout().is_terminal()) {
            (true, false) => Self::Drawn,
            _ => Self::None,
        }
    }
}

/// Often enough to look alive.
const REDRAW: Duration = Duration::from_millis(200);

impl Progress {
    /// Begins to follow.
    pub fn begin(reading: Arc<Reading>, size: Option<u64>, bar: Bar) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            size,
            reading,
            state: Mutex::default(),
            over: Condvar::new(),
        });
        let drawing = match bar {
            Bar::None => None,
            Bar::Drawn => {
                let shared = Arc::clone(&shared);
                Some(thread::Builder::new().spawn(move || shared.draw())?)
            }
        };
        Ok(Self { shared, drawing })
    }

    /// One more result.
    pub fn count(&self, done: &Done) {
        self.shared.lock().counts.add(done);
    }

    /// Ends the bar; returns what there was, and the last word on it.
    pub fn end(mut self) -> (Counts, String) {
        self.stop_drawing();
        let moment = self.shared.moment(&self.shared.lock());
        (moment.counts, moment.summary())
    }

    fn stop_drawing(&mut self) {
        self.shared.lock().over = true;
        self.shared.over.notify_all();
        if let Some(drawing) = self.drawing.take() {
            _ = drawing.join();
        }
    }
}

/// On every way out: nothing is written over a message.
impl Drop for Progress {
    fn drop(&mut self) {
        self.stop_drawing();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, state: &State) -> Moment {
        let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Moment {
            counts: state.counts,
            elapsed: self.begun.elapsed(),
            read: number(&self.reading.read),
            skipped: number(&self.reading.skipped),
            finished: self.reading.finished(),
            size: self.size,
        }
    }

    /// Draws until it is over, and then leaves the line empty. A terminal that is gone is no matter.
    fn draw(&self) {
        const CLEAR: &str = "\r\x1b[K";
        let mut stderr = io::stderr();
        let mut state = self.lock();
        while !state.over {
            let line = self.moment(&state).bar();
            drop(state);
            _ = write!(stderr, "{CLEAR}{line}").and_then(|()| stderr.flush());
            let waited = self
                .over
                .wait_timeout_while(self.lock(), REDRAW, |state| !state.over);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        _ = write!(stderr, "{CLEAR}").and_then(|()| stderr.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_skipped_are_told_apart() {
        let reading = Reading::default();
        reading.skipped_to(10);
        reading.read_to(25);
        reading.skipped_to(30);
        let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!((number(&reading.read), number(&reading.skipped)), (30, 15));
    }
}
