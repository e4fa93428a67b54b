//! How far it is: counted by whoever knows, drawn on a terminal, summed up at the end.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sandfork::batch::Done;

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

/// What has come of the tasks so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Ran to their end, or exited with 0.
    pub ok: u64,
    /// Ended otherwise.
    pub failed: u64,
    /// Got no sandbox.
    pub infrastructure: u64,
}

impl Counts {
    /// Counts one result.
    pub fn add(&mut self, done: &Done) {
        match done.outcome() {
            Some(outcome) if outcome.is_ok() => self.ok += 1,
            Some(_) => self.failed += 1,
            None => self.infrastructure += 1,
        }
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        self.ok + self.failed + self.infrastructure
    }
}

/// A moment of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    counts: Counts,
    elapsed: Duration,
    read: u64,
    skipped: u64,
    finished: u64,
    /// Size of the file of tasks, bytes, where it has one.
    size: Option<u64>,
}

impl Moment {
    /// Tasks a second, so far: whole ones, or a tenth where they are few.
    fn rate(&self) -> String {
        // Counts of tasks are far below what a float holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let all = self.counts.all() as f64;
        let rate = all / self.elapsed.as_secs_f64().max(1e-3);
        let digits = usize::from(rate < 10.0);
        format!("{rate:.digits$}/s")
    }

    /// How long it will take still, if the tasks to come are as those before, line by line.
    fn left(&self) -> Option<Duration> {
        let worked = self
            .read
            .checked_sub(self.skipped)
            .filter(|worked| *worked > 0)?;
        let ahead = self.size?.saturating_sub(self.read);
        #[allow(clippy::cast_precision_loss)]
        let share = ahead as f64 / worked as f64;
        (self.counts.all() > 0)
            .then(|| Duration::try_from_secs_f64(self.elapsed.as_secs_f64() * share).ok())?
    }

    /// One line, shorter than a terminal of 80 columns.
    fn bar(&self) -> String {
        const WIDTH: usize = 16;
        let mut line = String::new();
        if let Some(size) = self.size.filter(|size| *size > 0) {
            let done = u128::from(self.read.min(size));
            let part = |whole: u128| usize::try_from(done * whole / u128::from(size)).unwrap_or(0);
            let filled = part(WIDTH as u128);
            let (filled, empty) = ("#".repeat(filled), "-".repeat(WIDTH - filled));
            line = format!("[{filled}{empty}] {}% ", part(100));
        }
        let Counts {
            failed,
            infrastructure,
            ..
        } = self.counts;
        line += &format!(
            "{} done, {} failed",
            self.counts.all(),
            failed + infrastructure
        );
        line += &format!(", {}", self.rate());
        if let Some(left) = self.left() {
            line += &format!(", {} left", clock(left));
        }
        line
    }

    /// The last word.
    fn summary(&self) -> String {
        let Counts {
            ok,
            failed,
            infrastructure,
        } = self.counts;
        let seconds = self.elapsed.as_secs_f64();
        let mut line = format!(
            "{} in {seconds:.1} s ({}): {ok} ok, {failed} failed",
            tasks(self.counts.all()),
            self.rate()
        );
        if infrastructure > 0 {
            line += &format!(", {infrastructure} without a sandbox");
        }
        if self.finished > 0 {
            line += &format!("; {} had a result already", tasks(self.finished));
        }
        line
    }
}

fn tasks(count: u64) -> String {
    match count {
        1 => "1 task".to_owned(),
        count => format!("{count} tasks"),
    }
}

/// `0:07`, `12:34`, `1:02:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
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

    fn moment(done: u64, read: u64, size: Option<u64>) -> Moment {
        Moment {
            counts: Counts {
                ok: done,
                failed: 2,
                infrastructure: 1,
            },
            elapsed: Duration::from_secs(10),
            read,
            size,
            ..Moment::default()
        }
    }

    #[test]
    fn a_bar_tells_how_far_and_how_long_still() {
        assert_eq!(
            moment(997, 500, Some(2000)).bar(),
            "[####------------] 25% 1000 done, 3 failed, 100/s, 0:30 left"
        );
        assert_eq!(moment(997, 500, None).bar(), "1000 done, 3 failed, 100/s");
        let widest = Moment {
            counts: Counts {
                ok: 10_000_000,
                failed: 10_000_000,
                infrastructure: 0,
            },
            elapsed: Duration::from_secs(100_000),
            ..moment(0, 1, Some(1000))
        };
        assert!(widest.bar().len() < 80, "{}", widest.bar());
    }

    #[test]
    fn nothing_is_foretold_from_nothing() {
        let start = Moment {
            size: Some(100),
            ..Moment::default()
        };
        assert_eq!(start.bar(), "[----------------] 0% 0 done, 0 failed, 0.0/s");
        let none = Moment {
            size: Some(0),
            ..Moment::default()
        };
        assert_eq!(none.bar(), "0 done, 0 failed, 0.0/s");
    }

    #[test]
    fn what_was_skipped_foretells_nothing() {
        let resumed = Moment {
            skipped: 400,
            ..moment(997, 500, Some(1000))
        };
        // A hundred bytes took ten seconds, and five hundred are left.
        assert_eq!(resumed.left(), Some(Duration::from_secs(50)));
    }

    #[test]
    fn the_last_word_has_what_is_worth_telling() {
        let mut moment = moment(7, 0, None);
        assert_eq!(
            moment.summary(),
            "10 tasks in 10.0 s (1.0/s): 7 ok, 2 failed, 1 without a sandbox"
        );
        moment.counts = Counts {
            ok: 1,
            ..Counts::default()
        };
        moment.finished = 5;
        assert_eq!(
            moment.summary(),
            "1 task in 10.0 s (0.1/s): 1 ok, 0 failed; 5 tasks had a result already"
        );
    }

    #[test]
    fn a_time_is_read_easily() {
        for (seconds, text) in [(0, "0:00"), (7, "0:07"), (754, "12:34"), (3723, "1:02:03")] {
            assert_eq!(clock(Duration::from_secs(seconds)), text);
        }
    }

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
