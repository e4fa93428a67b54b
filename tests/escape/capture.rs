//! Runs a command until it ends or a deadline passes, and captures its output.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Far longer than any probe takes under any limit of the test profile, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(11 * 60);
const POLL: Duration = Duration::from_millis(5);

pub struct Captured {
    pub stdout: String,
    pub stderr: String,
    pub status: ExitStatus,
}

impl Captured {
    /// Returns the exit code that a shell would report.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .or(self.status.signal().map(|signal| 128 + signal))
            .unwrap_or(-1)
    }

    pub fn output(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }
}

/// Writes `stdin` to the command and reads both streams to EOF, which may come after the command
/// has ended: a process that it left behind may still hold the streams open.
pub fn capture(mut command: Command, stdin: &str) -> Result<Captured, String> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let program = command.get_program().to_owned();
    let describe = |error| format!("{}: {error}", program.display());
    let mut child = command.spawn().map_err(describe)?;
    // The command may end without reading its stdin.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(stdin.as_bytes());
    let (sender, streams) = mpsc::channel();
    let stdout = child.stdout.take().expect("piped");
    let stderr = child.stderr.take().expect("piped");
    read_to_end("stdout", stdout, sender.clone());
    read_to_end("stderr", stderr, sender);

    let deadline = Instant::now() + PATIENCE;
    let group = Pid::from_raw(child.id().cast_signed());
    let mut captured = (String::new(), String::new());
    let mut overstayed = false;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match streams.recv_timeout(left) {
            Ok(("stdout", text)) => captured.0 = text,
            Ok((_, text)) => captured.1 = text,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if overstayed => break,
            Err(RecvTimeoutError::Timeout) => {
                overstayed = true;
                let _ = killpg(group, Signal::SIGKILL);
                thread::sleep(Duration::from_secs(1));
            }
        }
    }
    while child.try_wait().map_err(describe)?.is_none() {
        if Instant::now() > deadline {
            overstayed = true;
            let _ = killpg(group, Signal::SIGKILL);
        }
        thread::sleep(POLL);
    }
    let status = child.wait().map_err(describe)?;
    if overstayed {
        let streams = format!("stdout {:?}, stderr {:?}", captured.0, captured.1);
        return Err(format!(
            "still running or holding a stream open after {PATIENCE:?}: {streams}"
        ));
    }
    Ok(Captured {
        stdout: captured.0,
        stderr: captured.1,
        status,
    })
}

fn read_to_end(
    name: &'static str,
    mut stream: impl Read + Send + 'static,
    sender: mpsc::Sender<(&'static str, String)>,
) {
    thread::spawn(move || -> io::Result<()> {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        // The receiver is gone if the deadline has passed.
        let _ = sender.send((name, String::from_utf8_lossy(&bytes).into_owned()));
        Ok(())
    });
}
