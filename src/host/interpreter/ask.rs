//! Runs an interpreter once, and reads the facts that it prints about itself.

use std::array;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use sandfork_jail::sys;

use super::{FACTS_SCRIPT, Interpreter, broken, unsuitable, unusable};
use crate::error::{self, Error};
use crate::host::{CallerEnvironment, io_exhaustion_hint};

const PRINT_FACTS: &str = "\nprint(_sandfork_facts())\n";

/// Prints the version on every Python: Python 2 supports neither `-I` nor all of the facts script.
const PRINT_VERSION: &str = "import sys; print('%d.%d.%d' % tuple(sys.version_info[:3]))";

/// The timeout for an answer. It allows for a cold disk and a slow shim; a slower interpreter will never answer.
const DEADLINE: Duration = Duration::from_secs(20);

/// The maximum size of the output in bytes, more than any interpreter prints.
const MAX_ANSWER: usize = 64 * 1024;

/// The empty standard input.
const NULL: &str = "/dev/null";

/// How much of a script the kernel reads to find the program in its first line (execve(2)), in bytes.
const MAX_FIRST_LINE: u64 = 256;

/// The maximum number of characters of the program's last output that an error quotes.
const MAX_QUOTED: usize = 300;

/// Runs the program at `path`, with only the variables of `environment`.
pub fn probe(path: &Path, environment: &CallerEnvironment) -> Result<Interpreter, Error> {
    let script = format!("{FACTS_SCRIPT}{PRINT_FACTS}");
    let answer = run(path, &["-I", "-S", "-c", &script], environment)?;
    if answer.status.success() {
        return Interpreter::from_facts(&answer.stdout, path);
    }
    let old = run(path, &["-E", "-s", "-S", "-c", PRINT_VERSION], environment)?;
    let version = old.stdout.trim();
    if old.status.success() && version.starts_with("2.") {
        let what = format!("Python {version}");
        return Err(unsuitable(path, &what));
    }
    Err(broken(path, &answer.describe()))
}

struct Answer {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Answer {
    fn describe(&self) -> String {
        let end = match (self.status.signal(), self.status.code()) {
            (Some(signal), _) => format!("killed by signal {signal}"),
            (None, code) => format!("exit status {}", code.unwrap_or(-1)),
        };
        let mut lines = self.stderr.lines().rev();
        let first_line = FACTS_SCRIPT.lines().next().unwrap_or(FACTS_SCRIPT);
        match lines.find(|line| !line.trim().is_empty()) {
            // The program took the script for a file name, and quotes it.
            Some(last_line) if last_line.contains(first_line) => format!("{end}: it is not Python"),
            Some(last_line) => format!("{end}: {}", shortened(last_line.trim())),
            None => end,
        }
    }
}

fn shortened(last_line: &str) -> String {
    match last_line.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}...", &last_line[..end]),
        None => last_line.to_owned(),
    }
}

fn run(path: &Path, arguments: &[&str], environment: &CallerEnvironment) -> Result<Answer, Error> {
    let broken = |how: String| broken(path, &how);
    let mut child = Command::new(path)
        .args(arguments)
        .env_clear()
        .envs(environment.selecting_variables())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| not_run(path, &error))?;
    let received = read_output(&mut child, Instant::now() + DEADLINE);
    if received.is_err() {
        // Killing fails only if the child has already exited.
        let _ = child.kill();
    }
    let status = child.wait().or_else(|error| match error.raw_os_error() {
        // This process ignores SIGCHLD. The interpreter's output shows whether it worked.
        Some(libc::ECHILD) => Ok(ExitStatus::default()),
        _ => Err(broken(error.to_string())),
    })?;
    let [stdout, stderr] = received.map_err(broken)?;
    Ok(Answer {
        status,
        stdout,
        stderr,
    })
}

fn not_run(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    match io_exhaustion_hint(error, "") {
        "" => unusable(format!(
            "the interpreter {shown} cannot be executed ({error}): {}",
            remedy_for(path, error)
        )),
        remedy => Error::new(
            error::ErrorKind::System,
            format!("the interpreter {shown} could not be started ({error}): {remedy}"),
        ),
    }
}

/// Returns the remedy for a program that could not be executed.
fn remedy_for(path: &Path, error: &io::Error) -> String {
    let another = "name another with `python.interpreter`";
    match error.kind() {
        ErrorKind::PermissionDenied => format!("make it executable (`chmod +x`) or {another}"),
        ErrorKind::NotFound if !Path::new(NULL).exists() => {
            format!("make {NULL}, from which it reads: `sudo mknod -m 666 {NULL} c 1 3`")
        }
        ErrorKind::NotFound if path.exists() => match shebang_program(path) {
            Some(program) => {
                format!("its first line names `{program}`; install that, or {another}")
            }
            None => format!("install the loader that it is linked with (ldd(1)), or {another}"),
        },
        _ => another.to_owned(),
    }
}

/// Returns the program in the `#!` line of a script (execve(2)).
fn shebang_program(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_FIRST_LINE).read_to_end(&mut start).ok()?;
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = String::from_utf8_lossy(line);
    line.split_whitespace().next().map(str::to_owned)
}

/// Reads both streams until EOF, within the size limit, and waits until the process has exited.
fn read_output(child: &mut Child, end: Instant) -> Result<[String; 2], String> {
    let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("its output could not be read".to_owned());
    };
    let mut received = [Vec::new(), Vec::new()];
    let mut open = [true, true];
    while open.contains(&true) {
        let ready = wait_readable([stdout.as_fd(), stderr.as_fd()], open, end)?;
        let streams: [&mut dyn Read; 2] = [&mut stdout, &mut stderr];
        for (number, stream) in streams.into_iter().enumerate().filter(|(n, _)| ready[*n]) {
            open[number] = read_some(stream, &mut received[number])?;
        }
    }
    // The process may outlive its streams. Without pidfds (before Linux 5.3) no guest can run anyway.
    if let Ok(process) = sys::pidfd::open(Pid::from_raw(child.id().cast_signed())) {
        while !wait_readable([process.as_fd()], [true], end)?[0] {}
    }
    Ok(received.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns which of the open descriptors are readable or at EOF.
fn wait_readable<const N: usize>(
    descriptors: [BorrowedFd; N],
    open: [bool; N],
    end: Instant,
) -> Result<[bool; N], String> {
    let mut polled: [PollFd; N] = array::from_fn(|number| {
        let wanted = open[number].then_some(PollFlags::POLLIN);
        PollFd::new(descriptors[number], wanted.unwrap_or(PollFlags::empty()))
    });
    let left = PollTimeout::try_from(end.saturating_duration_since(Instant::now()))
        .map_err(|error| error.to_string())?;
    match poll(&mut polled, left) {
        Ok(0) => Err(format!("no answer within {} seconds", DEADLINE.as_secs())),
        Ok(_) => Ok(array::from_fn(|number| {
            open[number] && polled[number].any() == Some(true)
        })),
        Err(Errno::EINTR) => Ok([false; N]),
        Err(errno) => Err(errno.desc().to_owned()),
    }
}

/// Reads the available data. Returns `false` at EOF.
fn read_some(stream: &mut dyn Read, into: &mut Vec<u8>) -> Result<bool, String> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(0) => Ok(false),
        Ok(length) if into.len() + length > MAX_ANSWER => Err("its output is too long".to_owned()),
        Ok(length) => {
            into.extend_from_slice(&buffer[..length]);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn program_that_closes_its_streams_times_out() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec sleep 600 >&- 2>&-"]);
        let piped = shell.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let received = read_output(&mut child, Instant::now() + Duration::from_millis(100));
        let is_running = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_running && received.is_err(), "{received:?}");
    }
}
