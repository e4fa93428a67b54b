//! Progress of a batch: counted while it runs, drawn on a terminal, summed up at the end.

mod snapshot;

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sandfork::batch::Done;

pub use self::snapshot::Counts;

use self::snapshot::Snapshot;

/// How much of the task file has been read.
#[derive(Debug, Default)]
pub struct Reading {
    /// The offset of the end of the last line read, bytes.
    read: AtomicU64,
    /// How many of those bytes were lines without a task to run.
    skipped: AtomicU64,
    /// Tasks that already had a result.
    finished: AtomicU64,
}

impl Reading {
    /// Records that the file was read up to `end`.
    pub fn read_to(&self, end: u64) {
        self.read.store(end, Ordering::Relaxed);
    }

    /// Records that the file was read up to `end`, and that the last line had no task to run.
    pub fn skipped_to(&self, end: u64) {
        let before = self.read.swap(end, Ordering::Relaxed);
        self.skipped.fetch_add(end - before, Ordering::Relaxed);
    }

    /// How many tasks already had a result.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    /// Counts one more task that already had a result.
    pub fn count_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tracks a batch, and draws its progress on a terminal.
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

/// Whether there is a progress bar.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bar {
    /// Drawn on stderr repeatedly.
    Drawn,
    /// Not drawn.
    None,
}

impl Bar {
    /// Draws if stderr is a terminal and stdout, which may receive results, is not.
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
    /// Starts tracking.
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

    /// Counts one more result.
    pub fn count(&self, done: &Done) {
        self.shared.lock().counts.add(done);
    }

    /// Ends the bar. Returns the counts and the summary.
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

/// Ends the bar on every path, so that it does not overwrite a message.
impl Drop for Progress {
    fn drop(&mut self) {
        self.stop_drawing();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, state: &State) -> Snapshot {
        let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Snapshot {
            counts: state.counts,
            elapsed: self.begun.elapsed(),
            read: number(&self.reading.read),
            skipped: number(&self.reading.skipped),
            finished: self.reading.finished(),
            size: self.size,
        }
    }

    /// Draws until the batch is over, and then clears the line. Ignores a terminal that has closed.
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
