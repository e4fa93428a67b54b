//! Queries terminals (ioctl_tty(2)).

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// Returns the rows and columns of a terminal (`TIOCGWINSZ`).
pub fn window_size(terminal: impl AsFd) -> Result<(u16, u16), Errno> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: `size` is a live `struct winsize`, which is what the kernel writes for this request, and the descriptor
    // is borrowed for the call.
    Errno::result(unsafe {
        libc::ioctl(
            terminal.as_fd().as_raw_fd(),
            libc::TIOCGWINSZ,
            &raw mut size,
        )
    })?;
    Ok((size.ws_row, size.ws_col))
}
