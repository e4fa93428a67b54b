//! Every system call of a sandbox's and a worker's set-up fails in turn, in every way that calls do,
//! or is late. What comes of it is a run as sound as any, or an error with a name; never a weaker
//! jail, and nothing is left.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::errno::Errno;

use crate::bench::Bench;
use crate::call::{Act, Call, Fault, Role};
use crate::subject::Went;

/// The ways in which calls fail.
pub const ERRORS: [Errno; 5] = [
    Errno::EPERM,
    Errno::ENOSYS,
    Errno::ENOMEM,
    Errno::EMFILE,
    Errno::EINTR,
];

/// How late a call is that is late: later than anything that does not wait for it.
const LATE: Duration = Duration::from_millis(40);

/// No answer may take longer, with nothing but one call that failed.
const SLOW: Duration = Duration::from_secs(15);

/// The part of a command in which something is set up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Part {
    pub name: &'static str,
    pub command: &'static str,
    pub role: Role,
}

/// What is set up when a sandbox is built.
pub const BUILD: [Part; 4] = [
    Part::of(
        "build",
        Role::Supervisor,
        "the supervisor, making a sandbox",
    ),
    Part::of("build", Role::Launcher, "the launcher"),
    Part::of("build", Role::Init, "the zygote's init"),
    Part::of("build", Role::Zygote, "the zygote"),
];

/// What is set up for each worker.
pub const RUN: [Part; 4] = [
    Part::of("run", Role::Supervisor, "the supervisor, making a worker"),
    Part::of("run", Role::Zygote, "the zygote, forking a worker"),
    Part::of("run", Role::WorkerInit, "the worker's init"),
    Part::of("run", Role::Worker, "the worker"),
];

impl Part {
    const fn of(command: &'static str, role: Role, name: &'static str) -> Self {
        Self {
            name,
            command,
            role,
        }
    }

    /// The calls of the set-up, among all.
    pub fn calls(self, all: &[Call]) -> Vec<Call> {
        let own = all.iter().filter(|call| call.role == self.role).copied();
        let calls: Vec<Call> = own.collect();
        let position = |is_it: &dyn Fn(&Call) -> bool| calls.iter().position(is_it);
        let (start, end) = match (self.command, self.role) {
            // CPython's own start is before any jail; then it says who it is.
            ("build", Role::Launcher) => (position(&|call| call.is(&["sendmsg"])), None),
            // It says that it is ready, and waits.
            ("build", Role::Zygote) => (None, position(&|call| call.is(&["epoll_wait"]))),
            ("build", Role::Supervisor) => (Some(1), None),
            ("build", _) => (None, None),
            // The next request is another worker's.
            (_, Role::Zygote) => (None, position(&|call| call.is(&["epoll_wait"]))),
            // It has said that the jail stands, after it handed over its directories.
            (_, Role::Worker) => {
                let second = |call: &Call| call.is(&["sendmsg"]) && call.occurrence == 2;
                (None, position(&second).map(|last| last + 1))
            }
            // It has heard the command; then the worker was looked at, and its code is sent.
            (_, Role::Supervisor) => {
                let sends = |call: &Call| call.is(&["write"]) && is_code(call);
                (Some(1), position(&sends))
            }
            (_, _) => (None, None),
        };
        calls[start.unwrap_or(0)..end.unwrap_or(calls.len())].to_vec()
    }
}

/// Among the writes of a run's set-up, only that of the code is longer than any setting's.
fn is_code(call: &Call) -> bool {
    call.arguments[2] > 1000
}

/// All that can be done to a call.
pub fn acts(call: &Call) -> Vec<Act> {
    // These end the caller, or are where it returns to: there is nobody who could be told.
    if call.is(&["exit", "exit_group", "rt_sigreturn", "restart_syscall"]) {
        return Vec::new();
    }
    // These never fail.
    if call.is(&[
        "geteuid", "getegid", "getuid", "getgid", "getpid", "getppid", "umask",
    ]) {
        return Vec::new();
    }
    // What asks for nothing but memory: an allocator that gets none ends a Rust program, as it must.
    if call.role == Role::Supervisor && call.is(&["brk", "mmap", "munmap", "mremap", "madvise"]) {
        return Vec::new();
    }
    // The kernel closes what it was asked to, and can only say that it was disturbed (close(2)).
    if call.is(&["close"]) {
        return vec![Act::Deny(Errno::EINTR), Act::Delay(LATE)];
    }
    let fail = if call.is(&["munmap"]) {
        Act::Deny
    } else {
        Act::Fail
    };
    let errors = ERRORS.map(fail);
    errors.into_iter().chain([Act::Delay(LATE)]).collect()
}

/// What came of the faults, for the report.
#[derive(Debug, Default)]
pub struct Tally {
    pub faults: usize,
    pub sound: usize,
    pub refused: usize,
    /// What must not be.
    pub wrong: Vec<String>,
    /// How each error says it, with how often.
    pub says: BTreeMap<String, usize>,
}

/// What may come of a fault besides a sound run.
#[derive(Clone, Copy)]
pub struct Allowed {
    /// Whether a guest that finds these lines in its posture is held as well as any.
    pub posture: fn(&[String]) -> bool,
    /// Whether the run after may be refused too: where a step was left out, nobody knows of it before it
    /// is missed.
    pub later: bool,
}

/// A call that fails is known to have failed.
pub const FAILED: Allowed = Allowed {
    posture: |_| false,
    later: false,
};

/// Puts one fault into a part.
pub fn put(
    bench: &mut Bench,
    part: Part,
    call: &Call,
    act: Act,
    allowed: Allowed,
    tally: &mut Tally,
) {
    bench.before(part.command);
    let told = bench.ask(part.command, Some(Fault::at(call, act)));
    let Some(fired) = told.fired else {
        // It was not made this time.
        return;
    };
    tally.faults += 1;
    let place = format!("{}: {fired} {act}", part.name);
    if told.took > SLOW {
        tally.is_wrong(format!("{place}: took {:?}: {:?}", told.took, told.went));
    }
    let mut went = told.went;
    if went == Some(Went::Well) {
        // It was built; what it is worth shows at its first worker.
        went = bench.ask("run", None).went;
    }
    match &went {
        None => {
            tally.is_wrong(format!("{place}: the supervisor ended"));
            return bench.restart();
        }
        Some(Went::Refused { says, .. }) => {
            tally.refused += 1;
            if !has_a_name(says, &fired, act) {
                tally.is_wrong(format!("{place}: says only {says}"));
            }
            *tally.says.entry(says.clone()).or_default() += 1;
        }
        ran if bench.is_sound(ran.as_ref()) => tally.sound += 1,
        Some(ran) => match bench.difference(ran) {
            lines if (allowed.posture)(&lines) => tally.sound += 1,
            lines => tally.is_wrong(format!("{place}: {lines:?}")),
        },
    }
    if let Some(left) = bench.left_over().filter(|_| !is_of_fdopendir(&fired)) {
        tally.is_wrong(format!("{place}: leaves {left}"));
        bench.build();
    }
    if part.command == "build" {
        // The next is another.
        return;
    }
    let next = bench.ask("plain", None).went;
    if !Went::is_plain(next.as_ref()) {
        if !(allowed.later && matches!(next, Some(Went::Refused { .. }))) {
            tally.is_wrong(format!("{place}: the next run: {next:?}"));
        }
        bench.build();
    }
}

impl Tally {
    fn is_wrong(&mut self, how: String) {
        eprintln!("{how}");
        self.wrong.push(how);
    }
}

/// nix 0.31 forgets the descriptor of a directory where fdopendir(3) fails, which it can only for want of
/// memory once open(2) has seen a directory. What it calls on the way is fstat(2) and fcntl(2).
fn is_of_fdopendir(call: &Call) -> bool {
    call.role == Role::Supervisor && call.is(&["newfstatat", "fcntl"])
}

/// Whether an error says what could not be done: the step and the kernel's answer. Where it is the
/// telling that failed, or the memory to do anything with, it says that a process has ended.
fn has_a_name(says: &str, call: &Call, act: Act) -> bool {
    let (Act::Fail(errno) | Act::Deny(errno)) = act else {
        return !says.is_empty();
    };
    // An init that fails takes with it the worker that may have been forked by then.
    if call.role == Role::WorkerInit {
        return !says.is_empty();
    }
    let untold = call.is(&[
        "sendmsg", "recvmsg", "brk", "mmap", "munmap", "mremap", "madvise",
    ]);
    let names = [
        "could not ",
        " does not hold: ",
        " does not tell ",
        &format!("{errno:?}"),
    ];
    names.iter().any(|name| says.contains(name)) || (untold && says.contains(" ended "))
}
