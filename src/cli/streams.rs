//! Forwards the guest's output to the command's stdout and stderr as it arrives.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use crate::{Cancel, OutputSink};

use super::drawing::Drawing;
use super::terminal::Neutralizer;

/// The command's two output streams.
///
/// A separate thread writes them: a reader that stops, such as a pager, must not block the supervisor, which enforces
/// the guest's deadlines. The policy's output limit bounds the queue.
pub struct Streams {
    cancel: Cancel,
    guest: Guest,
    /// Started with the first output, because many guests have none.
    writer: Option<io::Result<Writer>>,
}

struct Writer {
    queue: Sender<Piece>,
    thread: JoinHandle<io::Result<()>>,
}

/// How a guest's output is filtered for a terminal.
#[derive(Clone, Copy, Debug)]
pub enum Guest {
    /// Text, in which control characters are escaped.
    Prints,
    /// Text and drawing sequences, because the guest has a terminal.
    Draws,
}

enum Piece {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

impl Streams {
    /// Creates the streams of this process. `cancel` ends the run if the output cannot be written, because its reader
    /// is gone or no thread can be started.
    pub fn new(cancel: Cancel, guest: Guest) -> Self {
        Self {
            cancel,
            guest,
            writer: None,
        }
    }

    /// Prints a traceback, if there is one, where Python would print it.
    pub fn show_traceback(&mut self, traceback: &str) {
        if traceback.is_empty() {
            return;
        }
        self.stderr(traceback.as_bytes());
        if !traceback.ends_with('\n') {
            self.stderr(b"\n");
        }
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    ///
    /// The error that ended writing early.
    pub fn finish(self) -> io::Result<()> {
        let Some(writer) = self.writer.transpose()? else {
            return Ok(());
        };
        drop(writer.queue);
        let joined = writer.thread.join();
        joined.unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }

    fn send(&mut self, piece: Piece) {
        let (cancel, guest) = (&self.cancel, self.guest);
        let start = || Writer::start(cancel.clone(), guest).inspect_err(|_| cancel.cancel());
        if let Ok(writer) = self.writer.get_or_insert_with(start) {
            // Fails if the writer has ended early; `finish` returns the error.
            let _ = writer.queue.send(piece);
        }
    }
}

impl Writer {
    fn start(cancel: Cancel, guest: Guest) -> io::Result<Self> {
        let (queue, pieces) = mpsc::channel();
        let write = move || write_all(pieces, guest).inspect_err(|_| cancel.cancel());
        let thread = thread::Builder::new().spawn(write)?;
        Ok(Self { queue, thread })
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
fn write_all(pieces: Receiver<Piece>, guest: Guest) -> io::Result<()> {
    // All output of a guest's terminal arrives on stdout. Only the worker writes to stderr then.
    let mut stdout = Stream::new(io::stdout(), guest);
    let mut stderr = Stream::new(io::stderr(), Guest::Prints);
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
    filter: Option<Filter>,
}

enum Filter {
    Text(Neutralizer),
    Drawing(Drawing),
}

impl<W: Write + IsTerminal> Stream<W> {
    fn new(writer: W, guest: Guest) -> Self {
        let filter = writer.is_terminal().then(|| match guest {
            Guest::Prints => Filter::Text(Neutralizer::default()),
            Guest::Draws => Filter::Drawing(Drawing::default()),
        });
        Self { writer, filter }
    }

    /// Writes the guest's output immediately.
    fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.filter {
            None => self.write(bytes),
            Some(filter) => {
                let mut harmless = Vec::with_capacity(bytes.len());
                match filter {
                    Filter::Text(filter) => filter.filter(bytes, &mut harmless),
                    Filter::Drawing(filter) => filter.filter(bytes, &mut harmless),
                }
                self.write(&harmless)
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut rest = Vec::new();
        if let Some(Filter::Text(filter)) = &mut self.filter {
            filter.finish(&mut rest);
        }
        self.write(&rest)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)?;
        self.writer.flush()
    }
}
