//! Kills zygotes while requests are active: those requests may fail with an error, later ones must
//! not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::census::processes::{Process, Role, family};
use crate::mix::Numbers;

/// The time that a killed process may take to end, even on a busy machine.
const GONE: Duration = Duration::from_secs(60);

/// A counter that is odd while a zygote is being killed.
#[derive(Debug, Default)]
pub struct Kills(AtomicUsize);

impl Kills {
    /// Makes a request. Returns its result, and whether a zygote was killed meanwhile.
    pub fn observe<T>(&self, ask: impl FnOnce() -> T) -> (T, Disturbed) {
        let before = self.0.load(Ordering::SeqCst);
        let answer = ask();
        let after = self.0.load(Ordering::SeqCst);
        let disturbed = before % 2 == 1 || before != after;
        (
            answer,
            if disturbed {
                Disturbed::Perhaps
            } else {
                Disturbed::No
            },
        )
    }

    /// Kills one of the zygotes.
    pub fn strike(&self, numbers: &mut Numbers) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let struck = strike(numbers);
        self.0.fetch_add(1, Ordering::SeqCst);
        struck
    }

    /// Returns the number of kills.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst) / 2
    }
}

/// Whether a reply may be missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Disturbed {
    No,
    Perhaps,
}

fn strike(numbers: &mut Numbers) -> Result<(), String> {
    let all = family(std::process::id());
    let zygotes: Vec<_> = all
        .iter()
        .filter(|it| it.role == Role::Zygote && !it.is_zombie())
        .collect();
    let Some(count) = u32::try_from(zygotes.len()).ok().filter(|count| *count > 0) else {
        return Ok(());
    };
    let zygote = zygotes[numbers.below(count) as usize];
    let pid = i32::try_from(zygote.pid).map_err(|error| error.to_string())?;
    kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|error| format!("kill a zygote: {error}"))?;
    // Its init ends with it, and with that every worker. The interpreter that forked it ends too, and stays a zombie
    // until the supervisor needs the zygote again and finds it dead.
    let is_left = |it: &Process| {
        it.pid == zygote.pid
            || it.parent == zygote.parent
            || it.pid == zygote.parent && !it.is_zombie()
    };
    let until = Instant::now() + GONE;
    loop {
        let left: Vec<_> = family(std::process::id())
            .into_iter()
            .filter(is_left)
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("of a killed zygote {left:?} are left"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
