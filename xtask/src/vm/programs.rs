//! Runs inside the guest: runs the programs of a job as its user, and forwards their output.

use std::fs;
use std::io::{PipeReader, Read};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::cgroups;
use super::guest::forward_output;
use super::job::{Event, Job, Program, User};

/// The uid and gid of an ordinary user: the first that useradd(8) assigns.
pub const ORDINARY: u32 = 1000;

/// A shell that enters the cgroup, drops its privileges and executes the program, which is then alone in it.
const ENTER_ALONE: &str = "echo 0 >\"$0/cgroup.procs\" && exec \"$@\"";
/// A shell that enters the cgroup and stays there beside the program, as after a login or in a service.
const ENTER_BESIDE: &str = "echo 0 >\"$0/cgroup.procs\" && \"$@\"; exit $?";

/// A shell for a program without a cgroup.
const STAY: &str = "\"$@\"; exit $?";

/// How long a program's descendants may hold its output open after its end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs the programs.
pub fn run(job: &Job, home: &Path, report: &dyn Fn(&Event)) -> Result<()> {
    fs::create_dir_all(home)?;
    if job.user != User::Root {
        chown(home, Some(ORDINARY), Some(ORDINARY))?;
    }
    for (number, program) in (1..).zip(&job.programs) {
        let place = cgroups::arrange(job.cgroups, job.user, number)?;
        let until = Instant::now() + job.deadline;
        report(&Event::Began(program.name.clone()));
        let mut command = command(job, program, place.as_deref(), home);
        let Some(status) = run_one(&mut command, until)? else {
            let seconds = job.deadline.as_secs();
            bail!("{} runs after {seconds} s", program.name);
        };
        report(&Event::Ended(status));
    }
    report(&Event::Finished);
    Ok(())
}

fn command(job: &Job, program: &Program, place: Option<&Path>, home: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    let enter = match (place, job.user) {
        (None, _) => STAY,
        (Some(_), User::Delegated) => ENTER_ALONE,
        (Some(_), _) => ENTER_BESIDE,
    };
    command
        .args(["-c", enter])
        .arg(place.unwrap_or(Path::new("sh")));
    if job.user != User::Root {
        let (uid, gid) = (format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}"));
        command.args(["setpriv", &uid, &gid, "--clear-groups"]);
    }
    command.args(&program.words);
    command
        .current_dir(&job.directory)
        .env_clear()
        .env("HOME", home)
        .env("LANG", "C.UTF-8")
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .stdin(Stdio::null());
    command
}

/// Runs one program. Returns `None` if it did not end in time.
fn run_one(command: &mut Command, until: Instant) -> Result<Option<i32>> {
    let (reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn()?;
    // Closes this process's copies of the pipe's write ends.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let output = in_background(move || pass_on(reader));
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let end = in_background(move || reap_until(pid));
    match end.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok(status) => {
            _ = output.recv_timeout(LAST_WORDS);
            Ok(Some(status))
        }
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => bail!("its end was missed"),
    }
}

fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || _ = sender.send(work()));
    receiver
}

fn pass_on(mut reader: PipeReader) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        forward_output(&buffer[..length]);
    }
}

/// Waits for the program. As process 1, this process also inherits all orphans and reaps them.
fn reap_until(pid: Pid) -> i32 {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(ended, code)) if ended == pid => return code,
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended == pid => {
                return 128 + signal as i32;
            }
            Ok(_) => {}
            Err(_) => return -1,
        }
    }
}
