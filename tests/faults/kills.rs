//! Sends SIGKILL to each process of the family at the system calls of each command.
//!
//! Nothing of the victim survives, another session gets its result or a clear error, and the next run is
//! sound, as is the next supervisor.

use std::time::{Duration, Instant};

use crate::bench::{Bench, CommandReport};
use crate::family::Role;
use crate::fault::Fault;
use crate::found::Found;
use crate::setting::Setting;
use crate::subject::Reply;
use crate::tracer::Tracer;

/// The victim, and the role whose system calls set the moment: some victims make hardly any calls.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    pub setting: Setting,
    pub victim: Role,
    pub clock: Role,
    /// The command that runs meanwhile.
    pub command: &'static str,
    /// The number of kill points, if there are more calls.
    pub most: usize,
}

const fn kill(victim: Role, clock: Role, command: &'static str, most: usize) -> Kill {
    Kill {
        setting: Setting::Best,
        victim,
        clock,
        command,
        most,
    }
}

const ALL: usize = usize::MAX;

/// At least a thousand kill points for each victim. `build` makes a sandbox, `run` makes a worker that runs a guest
/// and ends, `session` is a whole session with tools, files and output, and `copies` forks a session and rolls it
/// back.
pub const KILLS: [Kill; 24] = [
    kill(Role::Worker, Role::Worker, "run", 400),
    kill(Role::Worker, Role::Worker, "session", 500),
    kill(Role::Worker, Role::Attendant, "session", 200),
    kill(Role::WorkerInit, Role::Worker, "session", 200),
    kill(Role::Zygote, Role::Zygote, "build", 500),
    kill(Role::Zygote, Role::Zygote, "run", ALL),
    kill(Role::Zygote, Role::Worker, "session", 400),
    kill(Role::Zygote, Role::Attendant, "session", 200),
    kill(Role::Init, Role::Init, "build", ALL),
    kill(Role::Init, Role::Zygote, "build", 300),
    kill(Role::Init, Role::Worker, "session", 400),
    kill(Role::Init, Role::Attendant, "session", 300),
    kill(Role::Supervisor, Role::Supervisor, "build", 350),
    kill(Role::Supervisor, Role::Supervisor, "run", ALL),
    kill(Role::Supervisor, Role::Worker, "session", 300),
    kill(Role::Supervisor, Role::Attendant, "session", 300),
    kill(Role::Worker, Role::Worker, "copies", 200),
    kill(Role::Worker, Role::Attendant, "copies", 200),
    kill(Role::Zygote, Role::Attendant, "copies", 200),
    kill(Role::Supervisor, Role::Worker, "copies", 200),
    kill(Role::Supervisor, Role::Attendant, "copies", 200),
    kill(Role::Supervisor, Role::Worker, "session", 100).of(Setting::User),
    kill(Role::Worker, Role::Worker, "session", 100).of(Setting::NoNamespaces),
    kill(Role::Supervisor, Role::Worker, "session", 100).of(Setting::NoNamespaces),
];

impl Kill {
    const fn of(self, setting: Setting) -> Self {
        Self { setting, ..self }
    }

    pub fn name(self) -> String {
        let Self {
            setting,
            victim,
            clock,
            command,
            ..
        } = self;
        let setting = setting.name();
        format!("killed::{setting}::{victim}_at_{clock}_in_{command}")
    }

    /// Returns whether the command has a sandbox, in which another session can be.
    fn is_in_sandbox(self) -> bool {
        self.command != "build"
    }
}

/// How long to wait for leftovers to disappear.
const PATIENCE: Duration = Duration::from_secs(60);

/// Kills at the nth call.
pub fn strike(bench: &mut Bench, kill: Kill, nth: usize, found: &mut Found) {
    bench.before(kill.command);
    if kill.is_in_sandbox() {
        assert_eq!(bench.ask("open other").reply, Some(Reply::Done));
    }
    let fault = Fault::kill(kill.victim, kill.clock, nth);
    let report = bench.ask_with(kill.command, fault);
    let (Some(fired), Some(victim)) = (report.fired, report.struck) else {
        // There were fewer calls this time, or the process to kill did not exist.
        bench.ask("close other");
        return bench.ready();
    };
    found.points += 1;
    let place = format!("{} killed in `{}` at {fired}", kill.victim, kill.command);
    let mut wrong = Vec::new();
    wrong.extend(judge(bench, kill, &report));
    match &report.reply {
        Some(Reply::Refused { says, .. }) => {
            found.refused += 1;
            found.record_message(says);
        }
        Some(Reply::Ran { status, .. }) if status != "ok" => {
            found.refused += 1;
            found.record_message(status);
        }
        Some(_) => found.sound += 1,
        None => {}
    }
    // A killed process exists until it is scheduled and ends.
    let ended = |tracer: &Tracer| !tracer.has(victim);
    match bench.tracer.until(PATIENCE, ended) {
        Some(took) => found.record_gone(took),
        None => wrong.push("the victim is left".to_owned()),
    }
    if kill.victim == Role::Supervisor {
        wrong.extend(after_supervisor(bench, found));
    } else {
        wrong.extend(after_another(bench, kill, &report, found));
    }
    for how in wrong {
        found.record_wrong(format!("{place}: {how}"));
    }
}

/// Returns what is wrong with the result of the command, if anything.
fn judge(bench: &Bench, kill: Kill, report: &CommandReport) -> Option<String> {
    let is_supervisor = kill.victim == Role::Supervisor;
    let of_worker = matches!(kill.victim, Role::Worker | Role::WorkerInit);
    let sound = match kill.command {
        "run" => &bench.sound().posture,
        "session" => &bench.sound().session,
        _ => &Some(Reply::Done),
    };
    match &report.reply {
        None if is_supervisor => None,
        // The command finished before the kill.
        reply if reply == sound => None,
        reply if kill.command == "copies" && Reply::is_plain(reply.as_ref()) => None,
        Some(Reply::Refused { says, .. }) if !is_supervisor && !says.is_empty() => None,
        Some(Reply::Ran { status, .. }) if of_worker && status == "signal" => None,
        reply => Some(format!("the caller got {reply:?}")),
    }
}

fn after_supervisor(bench: &mut Bench, found: &mut Found) -> Vec<String> {
    let mut wrong = Vec::new();
    match bench.tracer.until(PATIENCE, Tracer::is_over) {
        Some(took) => found.record_gone(took),
        None => wrong.push(format!("{:?} are left", bench.tracer.family())),
    }
    let (next, left) = bench.restart();
    found.record_next(next);
    wrong.extend(left.map(|left| format!("leaves {left}")));
    wrong.extend(bench.left_over().map(|left| format!("leaves {left}")));
    wrong
}

fn after_another(
    bench: &mut Bench,
    kill: Kill,
    report: &CommandReport,
    found: &mut Found,
) -> Vec<String> {
    let mut wrong = Vec::new();
    if kill.is_in_sandbox() {
        let other = bench.ask("ask other").reply;
        let untouched = matches!(kill.victim, Role::Worker | Role::WorkerInit);
        match &other {
            answer if Reply::is_plain(answer.as_ref()) => {}
            Some(Reply::Refused { kind, says }) if !untouched && is_session_end(kind, says) => {}
            other => wrong.push(format!("another session got {other:?}")),
        }
        bench.ask("close other");
    } else if report.reply != Some(Reply::Done) {
        let alone = |tracer: &Tracer| tracer.family() == [Role::Supervisor];
        match bench.tracer.until(PATIENCE, alone) {
            Some(took) => found.record_gone(took),
            None => wrong.push(format!("{:?} are left", bench.tracer.family())),
        }
        bench.build();
    }
    let next = bench.ask("plain");
    found.record_next(next.took);
    if !Reply::is_plain(next.reply.as_ref()) {
        wrong.push(format!("the next run: {:?}", next.reply));
        bench.build();
    }
    let start = Instant::now();
    match bench.left_over() {
        None => found.record_gone(start.elapsed()),
        Some(left) => wrong.push(format!("leaves {left}")),
    }
    wrong
}

/// Returns whether the message says that the session has ended, before the request or during it.
fn is_session_end(kind: &str, says: &str) -> bool {
    kind == "SessionEnded"
        || says.starts_with("the zygote was ended from outside while the code ran")
}
