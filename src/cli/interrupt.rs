//! Ctrl-C and its kin: the first ends what is running, so that its outcome is still reported; the
//! second ends the command.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use sandfork::exit_code::INTERRUPTED;

/// Signals that end what is running instead of the command.
#[derive(Debug)]
pub struct Interrupts {
    /// Whether the next signal has something to end.
    running: Arc<AtomicBool>,
}

impl Interrupts {
    /// Takes SIGINT, SIGTERM and SIGHUP from here on: until something runs, they end the command;
    /// then the first has it ended by `end`, on a thread of its own.
    ///
    /// To be called before any other thread exists, since a thread that does not block a signal
    /// may be the one to get it. What this process executes starts with no signal blocked.
    pub fn take(end: impl Fn() + Send + 'static) -> io::Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        signals.thread_block()?;
        let running = Arc::new(AtomicBool::new(false));
        let taken = Arc::clone(&running);
        thread::Builder::new().spawn(move || {
            while signals.wait().is_ok() {
                if !taken.swap(false, Ordering::SeqCst) {
                    process::exit(INTERRUPTED.into());
                }
                end();
            }
        })?;
        Ok(Self { running })
    }

    /// From here on there is something to end.
    pub fn end_what_runs(&self) {
        self.running.store(true, Ordering::SeqCst);
    }
}
