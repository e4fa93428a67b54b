//! Connects the command's own terminal to a guest's terminal (`-t`): its modes, its size, and its input.

use std::env;
use std::io::{self, IsTerminal, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use sandfork_jail::sys::terminal::window_size;

use super::failure::Failure;
use crate::waiters::lock;
use crate::{Cancel, Request};

/// The terminal modes from before raw mode, while the terminal is raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Resets what a guest may leave behind: the alternate screen, colours and character sets, tab stops, the cursor's
/// shape, and every mode of [`drawing::MODES`](super::drawing::MODES). The cursor stays where it is.
const RESET: &[u8] = b"\x18\x1b7\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\
    \x1b[?1006l\x1b[?1015l\x1b[?2004l\x1b[?2026l\x1b[?1l\x1b[?5l\x1b[?6l\x1b[?7h\x1b[?12l\x1b[?25h\x1b[?45l\
    \x1b[0 q\x1b[?5W\x1b[4l\x1b>\x1b[r\x1b8\x1b[0m\x1b(B\x1b)B\x0f";

/// The `TERM` value for an unknown terminal.
const UNKNOWN: &str = "dumb";

/// The caller's terminal, to be connected to a guest's.
pub struct Tty {
    records: Records,
    guest: OwnedFd,
}

impl Tty {
    /// Blocks the signals for which [`connect`](Self::connect) waits. Must be called before any other thread exists.
    ///
    /// # Errors
    ///
    /// If stdin is not a terminal.
    pub fn prepare() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            let problem = "`-t` needs a terminal on stdin, and stdin is not one: leave out `-t`";
            return Err(Failure::Usage(problem.to_owned()));
        }
        let blocked = signals().thread_block();
        blocked.map_err(|errno| Failure::Setup(errno.into()))?;
        let (guest, writer) = io::pipe().map_err(Failure::Setup)?;
        Ok(Self {
            records: Records(Arc::new(Mutex::new(writer))),
            guest: guest.into(),
        })
    }

    /// Adds the terminal to a request, puts the caller's terminal into raw mode, and starts to forward its input.
    pub fn connect(self, request: Request, cancel: &Cancel) -> Result<(Request, Raw), Failure> {
        let Self { records, guest } = self;
        let raw = Raw::enter().map_err(Failure::Setup)?;
        // The size must be the first record: the guest waits for it.
        records.size().map_err(Failure::Setup)?;
        let (sizes, cancel) = (records.clone(), cancel.clone());
        let watch = move || {
            while let Ok(signal) = signals().wait() {
                match signal {
                    Signal::SIGQUIT => cancel.cancel(),
                    // Fails after the guest has ended.
                    _ => _ = sizes.size(),
                }
            }
        };
        thread::Builder::new()
            .spawn(watch)
            .map_err(Failure::Setup)?;
        // The thread is not joined, because it blocks on input.
        let typed = move || records.copy_keys();
        thread::Builder::new()
            .spawn(typed)
            .map_err(Failure::Setup)?;
        Ok((request.with_terminal(&kind()).stdin(guest), raw))
    }
}

/// Returns the signals that report a new size, and the one that would end the command in raw mode.
fn signals() -> SigSet {
    [Signal::SIGWINCH, Signal::SIGQUIT].into_iter().collect()
}

/// Returns the caller's `TERM`, by which the guest's programs know how they may draw.
fn kind() -> String {
    let is_plain = |kind: &String| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
        (1..=64).contains(&kind.len()) && kind.bytes().all(plain)
    };
    let known = env::var("TERM").ok().filter(is_plain);
    known.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// The records that the guest's end of the terminal reads (docs/protocol.md).
#[derive(Clone)]
struct Records(Arc<Mutex<PipeWriter>>);

impl Records {
    fn write(&self, kind: u8, data: &[u8]) -> io::Result<()> {
        let length = u16::try_from(data.len()).map_err(io::Error::other)?;
        let mut record = vec![kind];
        record.extend(length.to_le_bytes());
        record.extend(data);
        let mut writer = lock(&self.0);
        writer.write_all(&record)
    }

    fn size(&self) -> io::Result<()> {
        let (rows, columns) = window_size(io::stdin())?;
        let size = [rows.to_le_bytes(), columns.to_le_bytes()].concat();
        self.write(b's', &size)
    }

    fn copy_keys(self) {
        let mut keys = [0; 4096];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut keys) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(length @ 1..) if self.write(b't', &keys[..length]).is_ok() => {}
                _ => return,
            }
        }
    }
}

/// Keeps the caller's terminal in raw mode until this is dropped.
pub struct Raw(());

impl Raw {
    fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        *lock(&BEFORE) = Some(before);
        let guard = Self(());
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(guard)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal's modes, if it is raw. Discards typed input that the guest has not read, because the caller's
/// shell would execute it.
pub fn restore() {
    let before = lock(&BEFORE).take();
    if let Some(before) = before {
        let mut stdout = io::stdout();
        if stdout.is_terminal() {
            // Fails if the terminal is gone, as does the next call.
            _ = stdout.write_all(RESET).and_then(|()| stdout.flush());
        }
        _ = tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &before);
    }
}

#[cfg(test)]
mod tests {
    use super::RESET;
    use crate::cli::drawing::MODES;

    #[test]
    fn reset_covers_every_allowed_mode() {
        let reset = String::from_utf8_lossy(RESET);
        for mode in MODES {
            let (mode, usual) = match mode {
                7 | 25 => (mode, 'h'),
                // Mode 1049 also covers the older alternate-screen modes.
                47 | 1047 | 1048 => (1049, 'l'),
                _ => (mode, 'l'),
            };
            assert!(reset.contains(&format!("\x1b[?{mode}{usual}")), "{mode}");
        }
    }
}
