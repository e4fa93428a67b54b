//! A supervisor in this process: runs and sessions from many threads.

use std::sync::Arc;
use std::time::Duration;

use sandfork::session::{
    Cell, Contents, Interrupter, NamedError, OutgoingValue, Removal, Session, ToolArguments,
};
use sandfork::{
    Cancel, Error, FileSystem, Outcome, OutputSink, Override, Policy, Request, Sandbox,
};

use crate::answers::{Answers, Judged, Reply};
use crate::kills::{Disturbed, Kills};
use crate::mix::{End, Home, Numbers};
use crate::repertoire::{Fit, Guest, Limit};

/// Limits that guests which aim at them reach soon, and other guests never approach.
pub const LIMITS: [&str; 11] = [
    "limits.wall=5m",
    "limits.cpu=5m",
    "limits.memory=96MiB",
    "limits.pids=24",
    "limits.output=256KiB",
    "limits.file_size=2MiB",
    "limits.open_files=64",
    "filesystem.work_size=6MiB",
    "filesystem.work_inodes=128",
    "filesystem.tmp_size=6MiB",
    "filesystem.tmp_inodes=128",
];

/// The wall limit of guests that would never end.
const SHORT: Duration = Duration::from_millis(150);

/// The number of sessions that start from one snapshot.
const FORKS: usize = 8;

/// The sandboxes of this process.
pub struct Library {
    standard: Arc<Sandbox>,
    ready: Arc<Sandbox>,
    strict: Arc<Sandbox>,
}

impl Library {
    pub fn build() -> Result<Self, Error> {
        Ok(Self {
            standard: Arc::new(
                Sandbox::builder()
                    .policy(policy("standard"))
                    .ready(0)
                    .build()?,
            ),
            ready: Arc::new(Sandbox::builder().policy(policy("standard")).build()?),
            strict: Arc::new(
                Sandbox::builder()
                    .policy(policy("strict"))
                    .ready(0)
                    .build()?,
            ),
        })
    }

    /// Makes a run.
    pub fn run(
        &self,
        home: Home,
        numbers: &mut Numbers,
        token: &str,
        answers: &Answers,
        kills: &Kills,
    ) {
        let sandbox = match home {
            Home::Standard => &self.standard,
            Home::Ready => &self.ready,
            Home::Strict => &self.strict,
        };
        run(sandbox, numbers.guest(Fit::Run), token, answers, kills);
    }

    /// Opens a session and ends it.
    pub fn session(
        &self,
        end: End,
        numbers: &mut Numbers,
        token: &str,
        answers: &Answers,
        kills: &Kills,
    ) {
        let sandbox = if numbers.below(2) == 0 {
            &self.standard
        } else {
            &self.ready
        };
        let guest = numbers.guest(Fit::Anywhere);
        let (judged, disturbed) = kills.observe(|| session(sandbox, end, guest, token, answers));
        match (judged, disturbed) {
            (Err(_), Disturbed::Perhaps) => answers.count("lost with a killed zygote"),
            (judged, _) => answers.keep(judged),
        }
    }

    /// Brings the pool to the size that it has under light load.
    pub fn calm(&self) -> Result<(), String> {
        self.ready.run("pass").map_err(|error| error.to_string())?;
        self.ready
            .session()
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

/// Builds a sandbox for one run.
pub fn sandbox(numbers: &mut Numbers, token: &str, answers: &Answers, kills: &Kills) {
    match kills.observe(|| Sandbox::builder().policy(policy("standard")).build()) {
        (Ok(sandbox), _) => run(&sandbox, numbers.guest(Fit::Run), token, answers, kills),
        (Err(_), Disturbed::Perhaps) => answers.count("lost with a killed zygote"),
        (Err(error), Disturbed::No) => answers.keep(Err(format!("no sandbox: {error}"))),
    }
}

fn run(sandbox: &Sandbox, guest: &Guest, token: &str, answers: &Answers, kills: &Kills) {
    answers.count_run();
    match kills.observe(|| outcome(sandbox, guest, token)) {
        (Ok(outcome), disturbed) => {
            let reply = Reply::from(&outcome);
            answers.count(&reply.status);
            let judged = reply.judge(guest, token);
            // A worker that died with a killed zygote ended by a signal.
            if disturbed == Disturbed::No {
                answers.keep(judged);
            }
        }
        (Err(_), Disturbed::Perhaps) => answers.count("lost with a killed zygote"),
        (Err(error), Disturbed::No) => {
            answers.keep(Err(format!("no run of `{}`: {error}", guest.name)));
        }
    }
}

fn outcome(sandbox: &Sandbox, guest: &Guest, token: &str) -> Result<Outcome, Error> {
    let request = Request::python(guest.source(token));
    match guest.limit {
        Limit::None => sandbox.run(request),
        Limit::Wall => sandbox.run(request.wall(SHORT)),
        Limit::Cpu => sandbox.run(request.cpu(SHORT)),
        Limit::CalledOff => {
            let cancel = Cancel::new().expect("a descriptor is available");
            let request = request.cancel(&cancel);
            sandbox.run_streaming(request, &mut OnOutput(|| cancel.cancel()))
        }
    }
}

/// Calls a function once the guest has printed something.
struct OnOutput<F>(F);

impl<F: FnMut()> OutputSink for OnOutput<F> {
    fn stdout(&mut self, _: &[u8]) {
        (self.0)();
    }

    fn stderr(&mut self, _: &[u8]) {}
}

/// Runs a cell with a tool, files from outside, the guest, and then the end.
fn session(
    sandbox: &Arc<Sandbox>,
    end: End,
    guest: &Guest,
    token: &str,
    answers: &Answers,
) -> Judged {
    let plainly = |error: Error| format!("a session of `{}`: {error}", guest.name);
    let mut session = sandbox.session().map_err(plainly)?;
    answers.count_run();
    session.tool("echo", echo).map_err(plainly)?;
    value(&mut session, token, answers)?;
    files(&mut session, token).map_err(plainly)?;
    match end {
        End::Dropped => {
            let report = session.run(guest.source(token)).map_err(plainly)?;
            let reply = Reply::from(report.outcome());
            answers.count(&reply.status);
            reply.judge(guest, token)
        }
        End::Restarted => {
            session.restart().map_err(plainly)?;
            answers.count_run();
            value(&mut session, token, answers)
        }
        End::Interrupted => {
            let reply = interrupted(&mut session).map_err(plainly)?;
            answers.count(&reply.status);
            reply.has_ended(&["interrupted"])
        }
        End::Copied => match copied(session, guest, token, answers) {
            Err(error) if is_not_here(&error) => Ok(()),
            copied => copied,
        },
    }
}

/// Forks a session several times, rolls it back and pauses it. Each copy has its state; the last fork runs the guest.
fn copied(mut session: Session, guest: &Guest, token: &str, answers: &Answers) -> Judged {
    let plainly = |error: Error| format!("a copy of a session for `{}`: {error}", guest.name);
    let run = |session: &mut Session, code: &str| session.run(code).map(drop).map_err(plainly);
    let kept = format!("kept = {token:?}; open('kept', 'w').write(kept)");
    run(&mut session, &kept)?;
    let snapshot = session.snapshot().map_err(plainly)?;
    let mut forks = Vec::new();
    for _ in 0..FORKS {
        let mut fork = snapshot.fork().map_err(plainly)?;
        answers.count_copy("forks");
        state(&mut fork, token, answers)?;
        run(&mut fork, "kept = open('kept', 'w')")?;
        forks.push(fork);
    }
    run(&mut session, "kept = open('kept', 'w')")?;
    session.rollback(&snapshot).map_err(plainly)?;
    answers.count_copy("rollbacks");
    drop(snapshot);
    state(&mut session, token, answers)?;
    session.pause().map_err(plainly)?;
    state(&mut session, token, answers)?;
    answers.count_copy("pauses");
    let Some(fork) = forks.last_mut() else {
        return Ok(());
    };
    let report = fork.run(guest.source(token)).map_err(plainly)?;
    let reply = Reply::from(report.outcome());
    answers.count(&reply.status);
    reply.judge(guest, token)
}

/// Returns whether sessions cannot be copied here, to memory or to a disk.
fn is_not_here(error: &str) -> bool {
    let reasons = ["PAGEMAP_SCAN", "this build is for", "on a disk in none"];
    reasons.iter().any(|reason| error.contains(reason))
}

/// Checks the state from which all copies start.
fn state(session: &mut Session, token: &str, answers: &Answers) -> Judged {
    let report = session.run("kept if open('kept').read() == kept else None");
    let report = report.map_err(|error| format!("a cell of a copy: {error}"))?;
    let reply = Reply::from(report.outcome());
    answers.count(&reply.status);
    reply.is_value(token)
}

/// Checks that the guest returns a value through a tool.
fn value(session: &mut Session, token: &str, answers: &Answers) -> Judged {
    let report = session.run(format!("echo({token:?})"));
    let report = report.map_err(|error| format!("a cell: {error}"))?;
    let reply = Reply::from(report.outcome());
    answers.count(&reply.status);
    reply.is_value(token)
}

fn interrupted(session: &mut Session) -> Result<Reply, Error> {
    let interrupter: Interrupter = session.interrupter();
    let cell = Cell::new("import time\nprint('on', flush=True)\ntime.sleep(600)");
    let report = session.run_streaming(cell, &mut OnOutput(|| interrupter.interrupt()))?;
    Ok(Reply::from(report.outcome()))
}

fn files(session: &mut Session, token: &str) -> Result<(), Error> {
    use std::io::{Read, Write};
    let mut file = session.open_write("given.txt", Contents::Replaced)?;
    // Written through a descriptor of the guest's own file system.
    let written = file.write_all(token.as_bytes());
    drop(file);
    let (mut file, size) = session.open_read("given.txt")?;
    let mut text = String::new();
    let read = file.read_to_string(&mut text);
    assert!(
        written.is_ok() && read.is_ok() && text == token && size == token.len() as u64,
        "{text:?}"
    );
    session.list(".")?;
    session.remove("given.txt", Removal::Single)
}

/// Returns the guest's argument to it.
#[allow(clippy::unnecessary_wraps)] // as a tool is
fn echo(arguments: ToolArguments) -> Result<OutgoingValue, NamedError> {
    Ok(arguments.args.into_iter().next().unwrap_or_default().into())
}

/// Returns a built-in policy with the soak's limits.
pub fn policy(name: &str) -> Policy {
    let sets: Result<Vec<Override>, _> = LIMITS.iter().map(|set| set.parse()).collect();
    let policy = sets.and_then(|sets| Policy::load(name, &sets, &FileSystem));
    policy.expect("a valid built-in policy")
}
