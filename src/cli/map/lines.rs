//! Reads lines of a file without buffering a line that is too long.

use std::io::{self, BufRead, Read};

/// A line reader that counts lines and bytes.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    most: usize,
    number: u64,
    bytes: u64,
}

/// A line.
#[derive(Debug, Eq, PartialEq)]
pub struct Line {
    /// The line's number, from 1.
    pub number: u64,
    /// The offset of the next line, in bytes from the start of the file.
    pub end: u64,
    /// The text without its newline.
    pub text: Vec<u8>,
    /// How the line ends.
    pub closed: Closed,
}

/// How a line ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Closed {
    /// With a newline.
    ByNewline,
    /// With the end of the file, so the line may be incomplete.
    ByEof,
    /// The line is longer than the limit, and its [`rest`](Lines::rest) has not been read.
    Never,
}

impl<R: BufRead> Lines<R> {
    /// Creates a reader of lines of at most `most` bytes.
    pub fn new(reader: R, most: usize) -> Self {
        Self {
            reader,
            most,
            number: 0,
            bytes: 0,
        }
    }

    /// Returns the number of the last line that was read.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns a reader of the rest of the last line, which was longer than the limit.
    pub fn rest(&mut self) -> Rest<'_, R> {
        Rest {
            lines: self,
            closed: Closed::Never,
        }
    }

    /// Returns the next line, or `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Line>> {
        let mut text = Vec::new();
        let limit = self.most as u64 + 1;
        let read = Read::take(&mut self.reader, limit).read_until(b'\n', &mut text)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.bytes += read as u64;
        let closed = if text.last() == Some(&b'\n') {
            text.pop();
            Closed::ByNewline
        } else if text.len() > self.most {
            Closed::Never
        } else {
            Closed::ByEof
        };
        Ok(Some(Line {
            number: self.number,
            end: self.bytes,
            text,
            closed,
        }))
    }
}

/// A reader of the rest of a line that is longer than the limit, up to its newline.
#[derive(Debug)]
pub struct Rest<'l, R> {
    lines: &'l mut Lines<R>,
    closed: Closed,
}

impl<R: BufRead> Rest<'_, R> {
    /// Reads to the end of the line. Returns the offset of the next line, and how this line ends.
    pub fn end(mut self) -> io::Result<(u64, Closed)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((self.lines.bytes, self.closed))
    }
}

impl<R: BufRead> Read for Rest<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.closed != Closed::Never || buffer.is_empty() {
            return Ok(0);
        }
        let available = self.lines.reader.fill_buf()?;
        let part = &available[..available.len().min(buffer.len())];
        let newline = part.iter().position(|byte| *byte == b'\n');
        let text = &part[..newline.unwrap_or(part.len())];
        buffer[..text.len()].copy_from_slice(text);
        let length = text.len();
        if newline.is_some() {
            self.closed = Closed::ByNewline;
        } else if length == 0 {
            self.closed = Closed::ByEof;
        }
        let taken = length + usize::from(newline.is_some());
        self.lines.reader.consume(taken);
        self.lines.bytes += taken as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn lines(text: &[u8], most: usize) -> Vec<(u64, u64, String, Closed)> {
        let mut lines = Lines::new(text, most);
        std::iter::from_fn(|| lines.next().unwrap())
            .map(|line| {
                let text = String::from_utf8(line.text).unwrap();
                (line.number, line.end, text, line.closed)
            })
            .collect()
    }

    #[test]
    fn lines_have_number_and_end() {
        let text = |text: &str| text.to_owned();
        assert_eq!(
            lines(b"a\n\nbcd", 3),
            [
                (1, 2, text("a"), Closed::ByNewline),
                (2, 3, text(""), Closed::ByNewline),
                (3, 6, text("bcd"), Closed::ByEof),
            ]
        );
        assert_eq!(lines(b"", 3), []);
        assert_eq!(lines(b"abc\n", 3), [(1, 4, text("abc"), Closed::ByNewline)]);
    }

    #[test]
    fn endless_line_is_not_read_completely() {
        let mut lines = Lines::new(io::BufReader::new(io::repeat(b'x')), 1000);
        let line = lines.next().unwrap().unwrap();
        assert_eq!((line.text.len(), line.closed), (1001, Closed::Never));
    }

    #[test]
    fn rest_of_a_long_line_ends_at_its_newline() {
        for (text, read, closed) in [
            ("abcdefgh\nx", "efgh", Closed::ByNewline),
            ("abcdefgh", "efgh", Closed::ByEof),
        ] {
            // The buffer is smaller than the rest.
            let mut lines = Lines::new(io::BufReader::with_capacity(3, text.as_bytes()), 3);
            assert_eq!(lines.next().unwrap().unwrap().text, b"abcd");
            let mut rest = lines.rest();
            let mut whole = String::new();
            rest.read_to_string(&mut whole).unwrap();
            let end = text.find('x').unwrap_or(text.len()) as u64;
            assert_eq!((whole.as_str(), rest.end().unwrap()), (read, (end, closed)));
            let next = lines.next().unwrap().map(|line| (line.number, line.text));
            assert_eq!(next, text.ends_with('x').then(|| (2, b"x".to_vec())));
        }
    }
}
