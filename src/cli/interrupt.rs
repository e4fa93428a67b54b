//! Handles Ctrl-C and similar signals: the first ends the running guest, so that its outcome is
//! still reported; the second ends the command. Ctrl-Z stops the guest with the command. The thread that waits for
//! them is the pulse of the guests' clock too.

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

/// How often the pulse of the guests' clock beats.
const PULSE: Duration = Duration::from_millis(200);

/// Signals that end the running guest instead of the command.
#[derive(Debug)]
pub struct Interrupts {
    /// Whether there is a running guest for the next signal to end.
    running: Arc<AtomicBool>,
}

impl Interrupts {
    /// Takes SIGINT, SIGTERM and SIGHUP from now on. While nothing runs, they end the command.
    /// After that, the first one calls `end` on its own thread. SIGTSTP stops the guests and their
    /// clock with the command, until SIGCONT. SIGINT and SIGHUP stay ignored if they were: nohup(1) and the shell of a
    /// script decide that the command goes on.
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
                        // The size of the terminal may have changed meanwhile. Ignored unless a thread waits for it.
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

    /// From now on a signal ends the command: nothing runs.
    pub fn end_the_command(&self) {
        self.running.store(false, Ordering::SeqCst);
    }

    /// From now on a signal calls `end` first.
    pub fn end_what_runs(&self) {
        self.running.store(true, Ordering::SeqCst);
    }
}

/// Waits for a signal for the time of one beat. What arrived while the process was stopped is found before the beat
/// that was due meanwhile.
fn next(signals: &SignalFd) -> Result<Option<Signal>, Errno> {
    let arrives = Some((signals.as_fd(), PollFlags::POLLIN));
    wait([arrives], Some(clock::now() + PULSE))?;
    let received = signals.read_signal()?;
    Ok(received.and_then(|it| Signal::try_from(it.ssi_signo.cast_signed()).ok()))
}

/// Stops this process until it is continued, and its guests with it. The terminal has the modes meanwhile
/// that it had before the command.
fn stop(before: &Modes) {
    let report = |error: &str| {
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
