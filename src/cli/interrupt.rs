//! Handles Ctrl-C and similar signals: the first ends the running guest, so that its outcome is
//! still reported; the second ends the command.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::outcome::exit_code::INTERRUPTED;
use nix::sys::signal::{SigSet, Signal};

/// Signals that end the running guest instead of the command.
#[derive(Debug)]
pub struct Interrupts {
    /// Whether there is a running guest for the next signal to end.
    running: Arc<AtomicBool>,
}

impl Interrupts {
    /// Takes SIGINT, SIGTERM and SIGHUP from now on. While nothing runs, they end the command.
    /// After that, the first one calls `end` on its own thread.
    ///
    /// Call it before any other thread exists: a thread that does not block a signal may receive
    /// it. Programs that this process executes start with no signal blocked.
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

    /// From now on a signal calls `end` first.
    pub fn end_what_runs(&self) {
        self.running.store(true, Ordering::SeqCst);
    }
}
