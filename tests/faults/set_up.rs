//! Every system call of a sandbox's and a worker's set-up fails in turn, in every way that calls do,
//! or is late. What comes of it is a run as sound as any, or an error with a name; never a weaker
//! jail, and nothing is left.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use crate::bench::Bench;
use crate::family::{Call, Role};
use crate::fault::{Act, Fault};
use crate::found::Found;
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

    /// The calls of the set-up, among all of its role.
    pub fn calls(self, calls: &[Call]) -> Vec<Call> {
        calls[self.span(calls)].to_vec()
    }

    /// Whether the last of some calls is one of the set-up.
    fn is_at_work(self, calls: &[Call]) -> bool {
        !calls.is_empty() && self.span(calls).contains(&(calls.len() - 1))
    }

    fn span(self, calls: &[Call]) -> Range<usize> {
        let position = |is_it: &dyn Fn(&Call) -> bool| calls.iter().position(is_it);
        let (start, end) = match (self.command, self.role) {
            // CPython's own startup is before any jail; then it reports its facts.
            ("build", Role::Launcher) => {
                let told = position(&|call| call.is(&["sendmsg"]));
                (told.unwrap_or(calls.len()), None)
            }
            // It answers.
            ("build", Role::Supervisor) => (0, position(&is_answer)),
            // It has said that it is ready, or that a worker is there, and waits for a request.
            (_, Role::Zygote) => (0, position(&|call| call.is(&["epoll_wait"]))),
            // It has said that the jail stands, after it handed over its directories.
            ("run", Role::Worker) => {
                let second = |call: &Call| call.is(&["sendmsg"]) && call.occurrence == 2;
                (0, position(&second).map(|last| last + 1))
            }
            // The worker was looked at, and its code is sent.
            ("run", Role::Supervisor) => (0, position(&is_code)),
            _ => (0, None),
        };
        start..end.unwrap_or(calls.len())
    }
}

fn is_answer(call: &Call) -> bool {
    call.is(&["write"]) && call.arguments[0] == 1
}

/// The first message asks the zygote for a worker.
fn is_code(call: &Call) -> bool {
    call.is(&["sendmsg"]) && call.occurrence == 2
}

/// All that can be done to a call.
pub fn acts(call: &Call) -> Vec<Act> {
    // These end the caller, or are where it returns to, so no process can receive an error.
    if call.is(&["exit", "exit_group", "rt_sigreturn", "restart_syscall"]) {
        return Vec::new();
    }
    // These never fail. Where the clock is not a counter of the processor's, reading it is a system call.
    if call.is(&[
        "geteuid",
        "getegid",
        "getuid",
        "getgid",
        "getpid",
        "getppid",
        "umask",
        "clock_gettime",
    ]) {
        return Vec::new();
    }
    // What asks for nothing but memory, or guards a stack: an allocator that gets none ends a Rust program, as it
    // must, and so does a thread without a guard.
    let is_supervisor = matches!(call.role, Role::Supervisor | Role::Attendant);
    if is_supervisor && call.is(&["brk", "mmap", "mprotect", "munmap", "mremap", "madvise"]) {
        return Vec::new();
    }
    // What reads and sets the flags of a descriptor that is open succeeds (fcntl(2)).
    let flags = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];
    let is_of_flags = flags
        .iter()
        .any(|of| u64::try_from(*of) == Ok(call.arguments[1]));
    if is_supervisor && call.is(&["fcntl"]) && is_of_flags {
        return Vec::new();
    }
    // By these the C library begins threads and has them wait: if they fail, it ends the program.
    if is_supervisor && call.is(&["futex", "rseq", "set_robust_list"]) {
        return Vec::new();
    }
    // The kernel closes what it was asked to, and can only say that it was disturbed (close(2)).
    if call.is(&["close"]) {
        return vec![Act::Deny(Errno::EINTR), Act::Delay(LATE)];
    }
    // It takes neither memory nor a descriptor: an older kernel or a filter may refuse it (getrandom(2)).
    if call.is(&["getrandom"]) {
        let refused = [Errno::EPERM, Errno::ENOSYS, Errno::EINTR].map(Act::Fail);
        return refused.into_iter().chain([Act::Delay(LATE)]).collect();
    }
    let fail = if call.is(&["munmap"]) {
        Act::Deny
    } else {
        Act::Fail
    };
    let errors = ERRORS.map(fail);
    errors.into_iter().chain([Act::Delay(LATE)]).collect()
}

/// What may come of a fault besides a sound run.
#[derive(Clone, Copy)]
pub struct Allowed {
    /// Whether a guest that finds these lines in its posture is held as well as any.
    pub posture: fn(&[String]) -> bool,
    /// Whether the next run may be refused too: a skipped step is noticed only when its effect is missing.
    pub later: bool,
}

/// A call that fails is known to have failed.
pub const FAILED: Allowed = Allowed {
    posture: shows_no_more,
    later: false,
};

/// Whether a guest only sees less of the host: a directory of the system's that could not be looked at is not
/// shown, and what the interpreter needs of it is shown by itself, in the same way.
///
/// Which signals a new program ignores is no wall, and posix_spawn(3) does not tell whether it could set it.
fn shows_no_more(differing: &[String]) -> bool {
    let lost: Vec<&str> = differing
        .iter()
        .filter_map(|line| line.strip_prefix("no more: mount "))
        .collect();
    let is_within_lost = |line: &str| {
        let [_, point, how @ ..] = &line.split(' ').collect::<Vec<_>>()[..] else {
            return false;
        };
        lost.iter().any(|lost| {
            let lost: Vec<&str> = lost.split(' ').collect();
            Path::new(point).starts_with(lost[1]) && lost[2..] == *how
        })
    };
    differing.iter().all(|line| {
        let same = line.trim_start_matches("no more: ");
        same.starts_with("SigIgn ")
            || line.starts_with("no more: mount ")
            || line.strip_prefix("mount ").is_some_and(is_within_lost)
    })
}

/// Puts one fault into a part.
pub fn put(
    bench: &mut Bench,
    part: Part,
    call: &Call,
    act: Act,
    allowed: Allowed,
    found: &mut Found,
) {
    bench.before(part.command);
    let told = bench.ask_with(part.command, Fault::at(call, act));
    // The scheduler determines how often a process waits or reads a clock: the call may not be made this time,
    // or only after the set-up.
    let Some(fired) = told.fired.filter(|_| part.is_at_work(&told.calls)) else {
        return bench.ready();
    };
    found.points += 1;
    let place = format!("{}: {fired} {act}", part.name);
    if told.took > SLOW {
        found.is_wrong(format!("{place}: took {:?}: {:?}", told.took, told.went));
    }
    let mut went = told.went;
    if went == Some(Went::Well) {
        // It was built; what it is worth shows at its first worker.
        went = bench.ask("run").went;
    }
    match &went {
        None => {
            found.is_wrong(format!("{place}: the supervisor ended"));
            bench.restart();
            return;
        }
        Some(Went::Refused { says, .. }) => {
            found.refused += 1;
            if !has_a_name(says, &fired, act) {
                found.is_wrong(format!("{place}: says only {says}"));
            }
            found.said(says);
        }
        ran if *ran == bench.sound().posture => found.sound += 1,
        Some(ran) => match bench.sound().difference(ran) {
            lines if (allowed.posture)(&lines) => found.sound += 1,
            // An init that fails takes its worker along, and may come to it when the guest runs already.
            lines if part.role == Role::WorkerInit && lines == ["signal"] => {
                found.refused += 1;
                found.said("signal");
            }
            lines => found.is_wrong(format!("{place}: {lines:?}")),
        },
    }
    if is_reaping(&fired, act) {
        bench.restart();
    } else if let Some(left) = bench.left_over().filter(|_| !is_of_fdopendir(&fired)) {
        found.is_wrong(format!("{place}: leaves {left}"));
        bench.build();
    }
    if part.command == "build" {
        // The next is another.
        return;
    }
    let next = bench.ask("plain").went;
    if !Went::is_plain(next.as_ref()) {
        if !(allowed.later && matches!(next, Some(Went::Refused { .. }))) {
            found.is_wrong(format!("{place}: the next run: {next:?}"));
        }
        bench.build();
    }
}

/// Where it is the call that reaps which fails, what had ended is reaped when the supervisor ends.
fn is_reaping(call: &Call, act: Act) -> bool {
    let fails = matches!(act, Act::Fail(_) | Act::Deny(_));
    fails && call.role == Role::Supervisor && call.is(&["wait4", "waitid"])
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
        // A layer, before anything was made.
        " cannot be enforced: ",
        " does not hold: ",
        " does not tell ",
        &format!("{errno:?}"),
        &std::io::Error::from(errno).to_string(),
    ];
    names.iter().any(|name| says.contains(name)) || (untold && says.contains(" ended "))
}
