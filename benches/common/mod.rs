//! Helpers that the benchmarks share.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use sandfork::internals::policy::BuiltInsOnly;
use sandfork::{Override, Policy};

/// A process that replies to lines with lines, until EOF of its stdin.
pub struct Conversation {
    child: Child,
    /// The stdin of the process.
    pub input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Conversation {
    pub fn start(mut command: Command) -> Result<Self> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn()?;
        let output = child.stdout.take().context("it has no output")?;
        Ok(Self {
            input: child.stdin.take(),
            output: BufReader::new(output),
            child,
        })
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("it has no input")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// Reads a line.
    pub fn receive(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("it ended without an answer");
        }
        Ok(line)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        drop(self.input.take());
        _ = self.child.wait();
    }
}

/// Returns the default policy with this interpreter and these preloaded modules.
pub fn policy(python: &Path, preload: &[&str]) -> Result<Policy> {
    let preload = preload.iter().map(|name| format!("python.preload={name}"));
    let interpreter = format!("python.interpreter={}", python.display());
    let settings = preload.chain([interpreter]).map(|setting| setting.parse());
    let settings: Vec<Override> = settings.collect::<Result<_, _>>()?;
    Ok(Policy::load("standard", &settings, &BuiltInsOnly)?)
}
