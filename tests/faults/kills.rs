//! `kill -9` of each of the family, at every system call of what goes on.
//!
//! Nothing of the victim's survives, another session gets its answer or a clear error, the next run is
//! as it should be, and so is the next supervisor.

use std::time::Duration;

use crate::bench::Bench;
use crate::call::{Fault, Role};
use crate::subject::Went;
use crate::tracer::Tracer;

/// Who is killed, and by whose system calls the moment is told: two of them make hardly any.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    pub victim: Role,
    pub clock: Role,
    /// What goes on meanwhile.
    pub command: &'static str,
}

const fn kill(victim: Role, clock: Role, command: &'static str) -> Kill {
    Kill {
        victim,
        clock,
        command,
    }
}

pub const KILLS: [Kill; 8] = [
    kill(Role::Worker, Role::Worker, "busy"),
    kill(Role::WorkerInit, Role::Worker, "busy"),
    kill(Role::Zygote, Role::Worker, "busy"),
    kill(Role::Zygote, Role::Zygote, "build"),
    kill(Role::Init, Role::Worker, "busy"),
    kill(Role::Init, Role::Init, "build"),
    kill(Role::Supervisor, Role::Worker, "busy"),
    kill(Role::Supervisor, Role::Supervisor, "build"),
];

/// How long whatever is left may take to be gone.
#[derive(Clone, Copy, Debug)]
pub struct Patience(pub Duration);

/// What came of it.
#[derive(Debug, Default)]
pub struct Cost {
    pub points: usize,
    /// The longest that anything took to be gone.
    pub gone: Duration,
    /// The longest that the next run took, a new zygote's start included.
    pub next: Duration,
    pub wrong: Vec<String>,
}

/// Kills at the nth call.
pub fn strike(bench: &mut Bench, kill: Kill, nth: usize, patience: Patience, cost: &mut Cost) {
    let Kill {
        victim,
        clock,
        command,
    } = kill;
    let in_run = command != "build";
    if in_run {
        assert_eq!(bench.ask("open other", None).went, Some(Went::Well));
    }
    let told = bench.ask(command, Some(Fault::kill(victim, clock, nth)));
    let Some(fired) = told.fired else {
        bench.ask("close other", None);
        return;
    };
    cost.points += 1;
    let mut wrong = |how: String| {
        let how = format!("{victim} killed in `{command}` at {fired}: {how}");
        eprintln!("{how}");
        cost.wrong.push(how);
    };
    if let Some(Went::Refused { says, .. }) = &told.went
        && says.is_empty()
    {
        wrong("an error without a word".to_owned());
    }
    if victim == Role::Supervisor {
        match bench.tracer.until(patience.0, Tracer::is_over) {
            Some(took) => cost.gone = cost.gone.max(took),
            None => wrong(format!("{:?} are left", bench.tracer.family())),
        }
        bench.restart();
    } else {
        if in_run {
            let other = bench.ask("ask other", None).went;
            let untouched = matches!(victim, Role::Worker | Role::WorkerInit);
            match &other {
                answer if Went::is_plain(answer.as_ref()) => {}
                Some(Went::Refused { kind, .. }) if !untouched && kind == "SessionEnded" => {}
                other => wrong(format!("another session was told {other:?}")),
            }
            bench.ask("close other", None);
        }
        if !in_run && told.went != Some(Went::Well) {
            let alone = |tracer: &Tracer| tracer.family() == [Role::Supervisor];
            match bench.tracer.until(patience.0, alone) {
                Some(took) => cost.gone = cost.gone.max(took),
                None => wrong(format!("{:?} are left", bench.tracer.family())),
            }
            bench.build();
        }
    }
    let next = bench.ask("plain", None);
    cost.next = cost.next.max(next.took);
    if !Went::is_plain(next.went.as_ref()) {
        wrong(format!("the next run: {:?}", next.went));
        bench.build();
    }
    let start = std::time::Instant::now();
    match bench.left_over() {
        None => cost.gone = cost.gone.max(start.elapsed()),
        Some(left) => wrong(format!("leaves {left}")),
    }
}
