//! Records whether standard output was closed when this process was executed. Rust's runtime opens /dev/null in its
//! place before `main`, so that no other file gets its number.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the dynamic loader calls each function in this section once, with arguments that this function ignores. The
// function needs no state that is initialised after it, such as that of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = record_stdout;

extern "C" fn record_stdout() {
    // SAFETY: integer arguments only; the number need not be an open descriptor.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    IS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Returns whether standard output was closed when this program was executed.
pub fn stdout_was_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}
