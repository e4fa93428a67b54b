//! Run a command to its end, or to the harness's patience.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Far beyond what any probe and any limit of the test profile take, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(11 * 60);
const POLL: Duration = Duration::from_millis(5);

pub struct Captured {
    pub stdout: String,
    pub stderr: String,
    pub status: ExitStatus,
}

impl Captured {
    /// The exit code as a shell gives it.
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

/// Gives the command `stdin` and reads both streams to their end, which may come after the
/// command's own: a process that it left behind is heard too.
pub fn capture(mut command: Command, stdin: &str) -> Result<Captured, String> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let program = command.get_program().to_owned();
    let describe = |error| format!("{}: {error}", program.display());
    let mut child = command.spawn().map_err(describe)?;
    // A command that never reads may be gone already.
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
        let heard = format!("stdout {:?}, stderr {:?}", captured.0, captured.1);
        return Err(format!(
            "still running or heard after {PATIENCE:?}: {heard}"
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
        // The receiver is gone when the harness ran out of patience.
        let _ = sender.send((name, String::from_utf8_lossy(&bytes).into_owned()));
        Ok(())
    });
}
