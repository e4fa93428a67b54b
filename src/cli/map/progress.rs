//! Tracks the progress of a batch: drawn on a terminal while it runs, and summarized at the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::batch::Done;
use crate::outcome::Verdict;
use crate::waiters::lock;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts results, and draws a progress bar. The bar is removed on every path, so that it does not overwrite a message.
pub struct Progress {
    bar: ProgressBar,
    begun: Instant,
    /// Tasks that already had a result.
    finished: AtomicU64,
    counts: Mutex<Counts>,
}

/// The redraw interval: frequent enough to look alive.
const REDRAW: Duration = Duration::from_millis(200);

impl Progress {
    /// Starts tracking. `size` is the size of the task file in bytes, if it has one.
    pub fn begin(size: Option<u64>, target: ProgressDrawTarget) -> Self {
        let progress = Self {
            bar: ProgressBar::with_draw_target(size, target).with_style(style(size)),
            begun: Instant::now(),
            finished: AtomicU64::default(),
            counts: Mutex::default(),
        };
        progress.show();
        if !progress.bar.is_hidden() {
            progress.bar.enable_steady_tick(REDRAW);
        }
        progress
    }

    /// Counts the bytes of a line whose task is to be run.
    pub fn read(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Excludes the bytes of a line that has no task to run, because it does not help to estimate the time left.
    pub fn skip(&self, bytes: u64) {
        self.bar.dec_length(bytes);
    }

    /// Returns how many tasks already had a result.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    /// Counts one more task that already had a result.
    pub fn count_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more result.
    pub fn count(&self, done: &Done) {
        self.counts().add(done);
        self.show();
    }

    fn show(&self) {
        let counts = *self.counts();
        let failed = counts.failed + counts.refused + counts.infrastructure;
        let rate = counts.rate(self.begun.elapsed());
        let left = match self.bar.eta() {
            left if counts.all() > 0 && !left.is_zero() => format!(", {} left", clock(left)),
            // Without a result there is nothing to estimate from.
            _ => String::new(),
        };
        let done = counts.all();
        self.bar
            .set_message(format!("{done} done, {failed} failed, {rate}{left}"));
    }

    /// Removes the bar. Returns the counts and the summary.
    pub fn end(&self) -> (Counts, String) {
        self.bar.finish_and_clear();
        let counts = *self.counts();
        (
            counts,
            counts.summary(self.begun.elapsed(), self.finished()),
        )
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts)
    }
}

/// Returns the style of a line shorter than 80 columns, which contains only numbers.
fn style(size: Option<u64>) -> ProgressStyle {
    let template = match size {
        Some(1..) => "[{bar:16}] {percent}% {msg}",
        _ => "{msg}",
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("##-")
}

/// The results so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Tasks that succeeded or exited with 0.
    pub ok: u64,
    /// Tasks that ended in any other way.
    pub failed: u64,
    /// Tasks whose request no sandbox can run.
    pub refused: u64,
    /// Tasks that got no sandbox.
    pub infrastructure: u64,
    /// Tasks with a verdict.
    pub judged: u64,
    /// Tasks whose outcome is the expected one.
    pub passed: u64,
}

impl Counts {
    fn add(&mut self, done: &Done) {
        match done.outcome() {
            Some(outcome) if outcome.is_ok() => self.ok += 1,
            Some(_) => self.failed += 1,
            None if done.is_finished() => self.refused += 1,
            None => self.infrastructure += 1,
        }
        self.judged += u64::from(done.verdict.is_some());
        self.passed += u64::from(done.verdict == Some(Verdict::Pass));
    }

    fn all(&self) -> u64 {
        self.ok + self.failed + self.refused + self.infrastructure
    }

    /// Returns the average tasks per second: a whole number, or tenths for a low rate.
    fn rate(&self, elapsed: Duration) -> String {
        // Task counts are far below the largest integer that an f64 holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let all = self.all() as f64;
        let rate = all / elapsed.as_secs_f64().max(1e-3);
        let digits = usize::from(rate < 10.0);
        format!("{rate:.digits$}/s")
    }

    /// Returns the summary line. `finished` tasks already had a result.
    fn summary(&self, elapsed: Duration, finished: u64) -> String {
        let refused = match self.refused {
            0 => String::new(),
            refused => format!(", {refused} refused"),
        };
        let lost = match self.infrastructure {
            0 => String::new(),
            lost => format!(", {lost} without a sandbox"),
        };
        let expected = match self.judged {
            0 => String::new(),
            judged => format!("; {} of {judged} as expected", self.passed),
        };
        let before = match finished {
            0 => String::new(),
            finished => format!("; {} had a result already", tasks(finished)),
        };
        format!(
            "{} in {:.1} s ({}): {} ok, {} failed{refused}{lost}{expected}{before}",
            tasks(self.all()),
            elapsed.as_secs_f64(),
            self.rate(elapsed),
            self.ok,
            self.failed,
        )
    }
}

fn tasks(count: u64) -> String {
    match count {
        1 => "1 task".to_owned(),
        count => format!("{count} tasks"),
    }
}

/// Formats a duration as `0:07`, `12:34` or `1:02:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_omits_zero_counts() {
        let ten_seconds = Duration::from_secs(10);
        let counts = Counts {
            ok: 7,
            failed: 2,
            refused: 3,
            infrastructure: 1,
            ..Counts::default()
        };
        assert_eq!(
            counts.summary(ten_seconds, 0),
            "13 tasks in 10.0 s (1.3/s): 7 ok, 2 failed, 3 refused, 1 without a sandbox"
        );
        let one = Counts {
            ok: 1,
            judged: 1,
            ..Counts::default()
        };
        assert_eq!(
            one.summary(ten_seconds, 5),
            "1 task in 10.0 s (0.1/s): 1 ok, 0 failed; 0 of 1 as expected; 5 tasks had a result already"
        );
    }

    #[test]
    fn skipped_line_is_excluded_from_the_total() {
        let progress = Progress::begin(Some(100), ProgressDrawTarget::hidden());
        progress.skip(60);
        progress.read(10);
        assert_eq!(
            (progress.bar.position(), progress.bar.length()),
            (10, Some(40))
        );
    }

    #[test]
    fn clock_formats_durations() {
        for (seconds, text) in [(0, "0:00"), (7, "0:07"), (754, "12:34"), (3723, "1:02:03")] {
            assert_eq!(clock(Duration::from_secs(seconds)), text);
        }
    }
}
