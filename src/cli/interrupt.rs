//! Handles Ctrl-C and similar signals. The first signal ends the running guest, so that its outcome is still reported;
//! the second ends the command. Ctrl-Z stops the guests and the command. The signal thread also drives the guests'
//! clock.

use std::io;
use std::os::fd::AsFd;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::outcome::exit_code::INTERRUPTED;
use crate::supervisor::clock::{self, Beat};
use crate::supervisor::{hold_guests, wait};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, getpid, tcgetpgrp};
use sandfork_jail::sys::process::is_ignored;

use super::failure::say;
use super::tty;

/// The interval at which the signal thread advances the guests' clock.
const PULSE: Duration = Duration::from_millis(200);

/// Signals that end the running guest instead of the command.
#[derive(Debug)]
pub struct Interrupts {
    /// Whether a guest is running that the next signal ends.
    running: Arc<AtomicBool>,
}

impl Interrupts {
    /// Handles SIGINT, SIGTERM and SIGHUP from now on. While no guest runs, they end the command. While a guest runs,
    /// the first signal calls `end` on a separate thread. SIGTSTP stops the guests, their clock and the command, until
    /// SIGCONT. SIGINT and SIGHUP stay ignored if they were ignored: nohup(1) or a shell script has decided that the
    /// command continues.
    ///
    /// Must be called before any other thread exists, because a thread that does not block a signal may receive it.
    /// Programs that this process executes start with no signal blocked.
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

    /// Like [`take`](Self::take), but calls `handle` for every signal.
    pub fn take_each(handle: impl Fn(Signal) + Send + 'static) -> io::Result<()> {
        let taken = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGTSTP,
            Signal::SIGCONT,
        ];
        let stays_ignored = |signal: &Signal| {
            [Signal::SIGINT, Signal::SIGHUP].contains(signal) && is_ignored(*signal)
        };
        let signals: SigSet = taken.into_iter().filter(|it| !stays_ignored(it)).collect();
        signals.thread_block()?;
        let signals =
            SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let modes = Modes::of_stdin();
        clock::beat(Beat::Due);
        thread::Builder::new().spawn(move || {
            loop {
                match next(&signals) {
                    Ok(Some(Signal::SIGTSTP)) => stop(&modes),
                    Ok(Some(Signal::SIGCONT)) => {
                        clock::beat(Beat::Continued);
                        // The terminal size may have changed while stopped. Ignored unless a thread waits for SIGWINCH.
                        _ = kill(getpid(), Signal::SIGWINCH);
                    }
                    Ok(Some(other)) => handle(other),
                    Ok(None) => clock::beat(Beat::Due),
                    Err(_) => return,
                }
            }
        })?;
        Ok(())
    }

    /// Makes the next signal end the command, because no guest runs.
    pub fn set_idle(&self) {
        self.running.store(false, Ordering::SeqCst);
    }

    /// Makes the next signal call `end`, because a guest runs.
    pub fn set_running(&self) {
        self.running.store(true, Ordering::SeqCst);
    }
}

/// Waits for a signal, for one clock interval at most. A signal that arrived while the process was stopped is returned
/// before the clock advances.
fn next(signals: &SignalFd) -> Result<Option<Signal>, Errno> {
    let arrives = Some((signals.as_fd(), PollFlags::POLLIN));
    wait([arrives], Some(clock::now() + PULSE))?;
    let received = signals.read_signal()?;
    Ok(received.and_then(|it| Signal::try_from(it.ssi_signo.cast_signed()).ok()))
}

/// Stops this process and its guests until it is continued. Meanwhile the terminal has the modes that it had before the
/// command.
fn stop(before: &Modes) {
    let report = |error: &str| {
        say(&format!(
            "the guest keeps running while the command is stopped: {error}"
        ));
    };
    hold_guests(report, || {
        let own = Modes::of_stdin();
        before.restore();
        let signal = SigSet::from(Signal::SIGTSTP);
        // The signal is pending for this thread only, so the thread stops as soon as the signal is unblocked. The
        // default action stops the process, unless it is in an orphaned process group.
        _ = raise(Signal::SIGTSTP);
        _ = signal.thread_unblock();
        _ = signal.thread_block();
        own.restore();
    });
}

/// The terminal modes of stdin, if stdin is a terminal.
#[derive(Clone, Debug)]
pub struct Modes(Option<Termios>);

impl Modes {
    /// Reads the current modes.
    pub fn of_stdin() -> Self {
        Self(tcgetattr(io::stdin()).ok())
    }

    /// Restores the modes. A background process must not try, because SIGTTOU would stop it.
    pub fn restore(&self) {
        let is_in_front = || tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
        if let Some(modes) = self.0.as_ref().filter(|_| is_in_front()) {
            // Fails if the terminal is gone.
            _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, modes);
        }
    }
}
