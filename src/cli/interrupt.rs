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

use super::failure::say;

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
        let mut signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        signals.add(Signal::SIGTSTP);
        signals.thread_block()?;
        let running = Arc::new(AtomicBool::new(false));
        let taken = Arc::clone(&running);
        thread::Builder::new().spawn(move || {
            while let Ok(signal) = signals.wait() {
                if signal == Signal::SIGTSTP {
                    stop();
                } else if !taken.swap(false, Ordering::SeqCst) {
                    process::exit(INTERRUPTED.into());
                } else {
                    end();
                }
            }
        })?;
        Ok(Self { running })
    }

    /// From now on a signal calls `end` first.
    pub fn end_what_runs(&self) {
        self.running.store(true, Ordering::SeqCst);
    }
}

/// Stops this process until it is continued, and its guests with it.
fn stop() {
    let report = |error: &_| {
        say(&format!(
            "the guest goes on while the command is stopped: {error}"
        ));
    };
    hold_guests(report, || {
        let signal = SigSet::from(Signal::SIGTSTP);
        // Pending for this thread alone, so that it has stopped when the signal is unblocked. The default
        // action stops the process, unless no shell could continue it.
        _ = raise(Signal::SIGTSTP);
        _ = signal.thread_unblock();
        _ = signal.thread_block();
    });
}
