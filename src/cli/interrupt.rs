//! Ctrl-C and its kin: the first ends the run, so that its outcome is still reported; the second
//! ends the command.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use sandfork::Cancel;
use sandfork::exit_code::INTERRUPTED;

/// Signals that end the run instead of the command.
#[derive(Debug)]
pub struct Interrupts {
    /// Whether the next signal has a run to end.
    run_to_end: Arc<AtomicBool>,
}

impl Interrupts {
    /// Takes SIGINT, SIGTERM and SIGHUP from here on: until there is a run, they end the command.
    ///
    /// To be called before any other thread exists, since a thread that does not block a signal
    /// may be the one to get it. What this process executes starts with no signal blocked.
    pub fn take(cancel: Cancel) -> io::Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        signals.thread_block()?;
        let run_to_end = Arc::new(AtomicBool::new(false));
        let taken = Arc::clone(&run_to_end);
        thread::Builder::new().spawn(move || {
            while signals.wait().is_ok() {
                if !taken.swap(false, Ordering::SeqCst) {
                    process::exit(INTERRUPTED.into());
                }
                cancel.cancel();
            }
        })?;
        Ok(Self { run_to_end })
    }

    /// From here on there is a run to end.
    pub fn end_run(&self) {
        self.run_to_end.store(true, Ordering::SeqCst);
    }
}
