//! Handles Ctrl-C and similar signals: the first ends the running guest, so that its outcome is
//! still reported; the second ends the command. Ctrl-Z stops the guest with the command.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::outcome::exit_code::INTERRUPTED;
use crate::supervisor::hold_guests;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};

use super::failure::say;
use super::tty;

/// Signals that end the running guest instead of the command.
#[derive(Debug)]
pub struct Interrupts {
    /// Whether there is a running guest for the next signal to end.
    running: Arc<AtomicBool>,
}

impl Interrupts {
    /// Takes SIGINT, SIGTERM and SIGHUP from now on. While nothing runs, they end the command.
    /// After that, the first one calls `end` on its own thread. SIGTSTP stops the guests and their
    /// clock with the command, until SIGCONT.
    ///
    /// Call it before any other thread exists: a thread that does not block a signal may receive
    /// it. Programs that this process executes start with no signal blocked.
    pub fn take(end: impl Fn() + Send + 'static) -> io::Result<Self> {
        let running = Arc::new(AtomicBool::new(false));
        let taken = Arc::clone(&running);
        Self::take_each(move |_| {
            if !taken.swap(false, Ordering::SeqCst) {
                tty::restore();
                process::exit(INTERRUPTED.into());
            }
            end();
        })?;
        Ok(Self { running })
    }

    /// As [`take`](Self::take), but calls `handle` for every signal.
    pub fn take_each(handle: impl Fn(Signal) + Send + 'static) -> io::Result<()> {
        let taken = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGTSTP,
        ];
        let signals: SigSet = taken.into_iter().collect();
        signals.thread_block()?;
        let modes = Modes::of_stdin();
        thread::Builder::new().spawn(move || {
            while let Ok(signal) = signals.wait() {
                match signal {
                    Signal::SIGTSTP => stop(&modes),
                    other => handle(other),
                }
            }
        })?;
        Ok(())
    }

    /// From now on a signal calls `end` first.
    pub fn end_what_runs(&self) {
        self.running.store(true, Ordering::SeqCst);
    }
}

/// Stops this process until it is continued, and its guests with it. The terminal has the modes meanwhile
/// that it had before the command.
fn stop(before: &Modes) {
    let report = |error: &_| {
        say(&format!(
            "the guest goes on while the command is stopped: {error}"
        ));
    };
    hold_guests(report, || {
        let own = Modes::of_stdin();
        before.restore();
        let signal = SigSet::from(Signal::SIGTSTP);
        // Pending for this thread alone, so that it has stopped when the signal is unblocked. The default
        // action stops the process, unless no shell could continue it.
        _ = raise(Signal::SIGTSTP);
        _ = signal.thread_unblock();
        _ = signal.thread_block();
        own.restore();
    });
}

/// The modes of the terminal that stdin is, if it is one.
#[derive(Clone, Debug)]
pub struct Modes(Option<Termios>);

impl Modes {
    /// Those of now.
    pub fn of_stdin() -> Self {
        Self(tcgetattr(io::stdin()).ok())
    }

    /// Gives them back to the terminal. A process in the background may not, and would be stopped.
    pub fn restore(&self) {
        let is_in_front = || tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        if let Some(modes) = self.0.as_ref().filter(|_| is_in_front()) {
            // Fails if the terminal is gone.
            _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, modes);
        }
    }
}
