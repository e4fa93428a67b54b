//! Forwards the guest's output to the command's own stdout and stderr, as it arrives.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use crate::{Cancel, OutputSink};

use super::terminal::Neutralizer;

/// Both streams of the command.
///
/// A thread writes them: a reader that stops, such as a pager, must not hold up the supervisor,
/// which enforces the guest's deadlines. The policy's limit on output bounds what waits to be
/// written.
pub struct Streams {
    queue: Sender<Piece>,
    writer: JoinHandle<io::Result<()>>,
}

enum Piece {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

impl Streams {
    /// The streams of this process. `cancel` ends the run when the output has no reader any more.
    ///
    /// # Errors
    ///
    /// When the host has no thread left.
    pub fn new(cancel: Cancel) -> io::Result<Self> {
        let (queue, pieces) = mpsc::channel();
        let write = move || write_all(pieces).inspect_err(|_| cancel.cancel());
        let writer = thread::Builder::new().spawn(write)?;
        Ok(Self { queue, writer })
    }

    /// Shows a traceback where Python would print it.
    pub fn show_traceback(&mut self, traceback: &str) {
        self.stderr(traceback.as_bytes());
        if !traceback.is_empty() && !traceback.ends_with('\n') {
            self.stderr(b"\n");
        }
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    ///
    /// The error that ended the writing early.
    pub fn finish(self) -> io::Result<()> {
        drop(self.queue);
        self.writer
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }

    fn send(&self, piece: Piece) {
        // Fails if the writer has ended early; `finish` returns the error.
        let _ = self.queue.send(piece);
    }
}

impl OutputSink for Streams {
    fn stdout(&mut self, bytes: &[u8]) {
        self.send(Piece::Stdout(bytes.to_vec()));
    }

    fn stderr(&mut self, bytes: &[u8]) {
        self.send(Piece::Stderr(bytes.to_vec()));
    }
}

/// Writes pieces until the queue closes.
fn write_all(pieces: Receiver<Piece>) -> io::Result<()> {
    let (mut stdout, mut stderr) = (Stream::new(io::stdout()), Stream::new(io::stderr()));
    for piece in pieces {
        match piece {
            Piece::Stdout(bytes) => stdout.show(&bytes)?,
            Piece::Stderr(bytes) => stderr.show(&bytes)?,
        }
    }
    stdout.finish()?;
    stderr.finish()
}

/// One output stream.
struct Stream<W> {
    writer: W,
    /// Present if the output is a terminal.
    filter: Option<Neutralizer>,
}

impl<W: Write + IsTerminal> Stream<W> {
    fn new(writer: W) -> Self {
        let filter = writer.is_terminal().then(Neutralizer::default);
        Self { writer, filter }
    }

    /// Writes the guest's output immediately.
    fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.filter {
            None => self.write(bytes),
            Some(filter) => {
                let mut harmless = Vec::with_capacity(bytes.len());
                filter.filter(bytes, &mut harmless);
                self.write(&harmless)
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut rest = Vec::new();
        if let Some(filter) = &mut self.filter {
            filter.finish(&mut rest);
        }
        self.write(&rest)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)?;
        self.writer.flush()
    }
}
