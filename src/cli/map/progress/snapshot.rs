//! A batch at one point in time, and its description. Pure.

use std::time::Duration;

use sandfork::batch::Done;

/// The results so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Tasks that ran to their end, or exited with 0.
    pub ok: u64,
    /// Tasks that ended otherwise.
    pub failed: u64,
    /// Tasks that got no sandbox.
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

    /// The number of all results.
    pub fn all(&self) -> u64 {
        self.ok + self.failed + self.infrastructure
    }
}

/// The state of a batch at one point in time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// The results so far.
    pub counts: Counts,
    /// The time since the start.
    pub elapsed: Duration,
    /// How much of the task file has been read, bytes.
    pub read: u64,
    /// How many of those bytes were lines without a task to run.
    pub skipped: u64,
    /// Tasks that already had a result.
    pub finished: u64,
    /// The size of the task file, bytes, if it has one.
    pub size: Option<u64>,
}

impl Snapshot {
    /// The average tasks per second: a whole number, or tenths for a low rate.
    fn rate(&self) -> String {
        // Counts of tasks are far below what a float holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let all = self.counts.all() as f64;
        let rate = all / self.elapsed.as_secs_f64().max(1e-3);
        let digits = usize::from(rate < 10.0);
        format!("{rate:.digits$}/s")
    }

    /// The estimated remaining time, if the remaining lines take as long as those before.
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

    /// The progress bar's line, shorter than 80 columns.
    pub fn bar(&self) -> String {
        const WIDTH: usize = 16;
        let Counts {
            failed,
            infrastructure,
            ..
        } = self.counts;
        let failed = failed + infrastructure;
        let mut parts = vec![
            format!("{} done", self.counts.all()),
            format!("{failed} failed"),
            self.rate(),
        ];
        parts.extend(self.left().map(|left| format!("{} left", clock(left))));
        let text = parts.join(", ");
        let Some(size) = self.size.filter(|size| *size > 0) else {
            return text;
        };
        let done = u128::from(self.read.min(size));
        let part = |whole: u128| usize::try_from(done * whole / u128::from(size)).unwrap_or(0);
        let filled = part(WIDTH as u128);
        let (filled, empty) = ("#".repeat(filled), "-".repeat(WIDTH - filled));
        format!("[{filled}{empty}] {}% {text}", part(100))
    }

    /// The summary line.
    pub fn summary(&self) -> String {
        let Counts {
            ok,
            failed,
            infrastructure,
        } = self.counts;
        let seconds = self.elapsed.as_secs_f64();
        let lost = match infrastructure {
            0 => String::new(),
            lost => format!(", {lost} without a sandbox"),
        };
        let before = match self.finished {
            0 => String::new(),
            finished => format!("; {} had a result already", tasks(finished)),
        };
        format!(
            "{} in {seconds:.1} s ({}): {ok} ok, {failed} failed{lost}{before}",
            tasks(self.counts.all()),
            self.rate()
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(done: u64, read: u64, size: Option<u64>) -> Snapshot {
        Snapshot {
            counts: Counts {
                ok: done,
                failed: 2,
                infrastructure: 1,
            },
            elapsed: Duration::from_secs(10),
            read,
            size,
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_bar_tells_how_far_and_how_long_still() {
        assert_eq!(
            moment(997, 500, Some(2000)).bar(),
            "[####------------] 25% 1000 done, 3 failed, 100/s, 0:30 left"
        );
        assert_eq!(moment(997, 500, None).bar(), "1000 done, 3 failed, 100/s");
        let widest = Snapshot {
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
        let start = Snapshot {
            size: Some(100),
            ..Snapshot::default()
        };
        assert_eq!(start.bar(), "[----------------] 0% 0 done, 0 failed, 0.0/s");
        let none = Snapshot {
            size: Some(0),
            ..Snapshot::default()
        };
        assert_eq!(none.bar(), "0 done, 0 failed, 0.0/s");
    }

    #[test]
    fn what_was_skipped_foretells_nothing() {
        let resumed = Snapshot {
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
}
