//! Reads, counts, limits and forwards the guest's output.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::read;

use super::descriptors::{CHUNK, with_buffer};

/// A receiver of a guest's output as it arrives.
///
/// The run's thread calls it between two checks of the clock. A piece may have any length and may end within a line or
/// a character. A sink that blocks delays the run and the enforcement of its limits, so a sink that may block should
/// pass the bytes to its own thread.
pub trait OutputSink {
    /// Receives bytes that the guest wrote to stdout.
    fn stdout(&mut self, bytes: &[u8]);
    /// Receives bytes that the guest wrote to stderr.
    fn stderr(&mut self, bytes: &[u8]);
}

/// Discards the pieces; the outcome still contains the output.
impl OutputSink for () {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

/// One of the two output streams.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// The output of one run or cell.
#[derive(Debug)]
pub struct Output<'w> {
    /// By stream.
    captured: [Captured<'w>; 2],
    cap: u64,
    total: u64,
}

#[derive(Debug)]
struct Captured<'w> {
    pipe: Option<BorrowedFd<'w>>,
    bytes: Vec<u8>,
}

/// The result of reading.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Drained {
    /// Everything available was read.
    WithinCap,
    /// The guest wrote more than its limit.
    OverCap,
}

impl<'w> Output<'w> {
    /// Captures the output of these two pipes, at most `cap` bytes in total.
    pub fn new(stdout: &'w OwnedFd, stderr: &'w OwnedFd, cap: u64) -> Self {
        let captured = [stdout, stderr].map(|pipe| Captured {
            pipe: Some(pipe.as_fd()),
            bytes: Vec::new(),
        });
        Self {
            captured,
            cap,
            total: 0,
        }
    }

    /// Returns the pipe of a stream, if it is still open.
    pub fn pipe(&self, stream: Stream) -> Option<BorrowedFd<'w>> {
        self.captured[stream as usize].pipe
    }

    /// Reads the output that is available now, and passes it to `sink`.
    pub fn drain(&mut self, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> Drained {
        with_buffer(|buffer| self.drain_by(buffer, stream, sink))
    }

    fn drain_by(
        &mut self,
        buffer: &mut [u8],
        stream: Stream,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Drained {
        let captured = &mut self.captured[stream as usize];
        while let Some(pipe) = captured.pipe {
            match read(pipe, buffer) {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Ok(0) | Err(_) => captured.pipe = None,
                Ok(length) => {
                    let room = usize::try_from(self.cap - self.total).unwrap_or(usize::MAX);
                    let kept = &buffer[..length.min(room)];
                    captured.bytes.extend_from_slice(kept);
                    self.total += kept.len() as u64;
                    sink(kept);
                    if length > room {
                        return Drained::OverCap;
                    }
                    if length < CHUNK {
                        break;
                    }
                }
            }
        }
        Drained::WithinCap
    }

    /// Returns the output of a stream captured so far.
    pub fn captured(&self, stream: Stream) -> &[u8] {
        &self.captured[stream as usize].bytes
    }

    /// Takes the captured stdout and stderr, and the number of bytes in both. Later output is counted from zero.
    pub fn take(&mut self) -> (Vec<u8>, Vec<u8>, u64) {
        let captured = self.captured.each_mut();
        let [stdout, stderr] = captured.map(|captured| mem::take(&mut captured.bytes));
        (stdout, stderr, mem::take(&mut self.total))
    }
}
