//! Whether this process began without a standard output. Before `main`, Rust's runtime opens /dev/null in its place, so
//! that no other file gets its number.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the dynamic loader calls each function of this section once, with arguments that this one does not take. It
// needs nothing that `main` would find initialised.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: reads the flags of a number, which need not be a descriptor.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    IS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Whether standard output was closed when this program was executed.
pub fn stdout_was_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}
