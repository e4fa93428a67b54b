//! A process that measures its own times: it answers a request for a number of times with a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::contestant::Error;

/// The process. It ends at the end of its input.
pub struct Probe {
    child: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Probe {
    pub fn start(mut command: Command) -> Result<Self, Error> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ask = child.stdin.take();
        let answers = child.stdout.take().ok_or("it has no output")?;
        Ok(Self {
            child,
            ask,
            answers: BufReader::new(answers),
        })
    }

    /// Sends a line.
    pub fn ask(&mut self, line: &str) -> Result<(), Error> {
        let ask = self.ask.as_mut().ok_or("it has no input")?;
        Ok(writeln!(ask, "{line}")?)
    }

    /// Reads a line.
    pub fn hear(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("it ended without an answer".into());
        }
        Ok(line)
    }

    /// Reads a line of `count` times, in nanoseconds.
    pub fn hear_times(&mut self, count: usize) -> Result<Vec<Duration>, Error> {
        let line = self.hear()?;
        let times: Result<Vec<u64>, _> = line.split_ascii_whitespace().map(str::parse).collect();
        match times {
            Ok(times) if times.len() == count => {
                Ok(times.into_iter().map(Duration::from_nanos).collect())
            }
            // The line is not a time, but the reason why there is none.
            _ => Err(line.trim().into()),
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        drop(self.ask.take());
        _ = self.child.wait();
    }
}
