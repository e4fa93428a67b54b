//! Makes every system call of the set-up of a sandbox and of a worker fail in turn, with each error, or
//! delays it. The result is a sound run or an error that names the cause, never a weaker jail, and
//! nothing is left behind.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use crate::bench::Bench;
use crate::family::{Call, Role};
use crate::fault::{Act, Fault};
use crate::found::Found;
use crate::subject::Reply;

/// The errors with which calls fail.
pub const ERRORS: [Errno; 5] = [
    Errno::EPERM,
    Errno::ENOSYS,
    Errno::ENOMEM,
    Errno::EMFILE,
    Errno::EINTR,
];

/// The delay of a call: longer than anything takes that does not wait for the call.
const LATE: Duration = Duration::from_millis(40);

/// The longest time to a result after a single failed call.
const SLOW: Duration = Duration::from_secs(15);

/// The part of a command that sets something up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Part {
    pub name: &'static str,
    pub command: &'static str,
    pub role: Role,
}

/// The set-up when a sandbox is built.
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

/// The set-up of each worker.
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

    /// Returns the calls of the set-up among all calls of its role.
    pub fn calls(self, calls: &[Call]) -> Vec<Call> {
        calls[self.span(calls)].to_vec()
    }

    /// Returns whether the last of these calls belongs to the set-up.
    fn is_at_work(self, calls: &[Call]) -> bool {
        !calls.is_empty() && self.span(calls).contains(&(calls.len() - 1))
    }

    fn span(self, calls: &[Call]) -> Range<usize> {
        let position = |is_it: &dyn Fn(&Call) -> bool| calls.iter().position(is_it);
        let (start, end) = match (self.command, self.role) {
            // CPython starts before any jail exists; then the interpreter reports its facts.
            ("build", Role::Launcher) => {
                let first = position(&|call| call.is(&["sendmsg"]));
                (first.unwrap_or(calls.len()), None)
            }
            // The set-up ends with the result.
            ("build", Role::Supervisor) => (0, position(&is_answer)),
            // The zygote has reported that it or a worker is ready, and waits for a request.
            (_, Role::Zygote) => (0, position(&|call| call.is(&["epoll_wait"]))),
            // The worker has passed its directories and reported its jail.
            ("run", Role::Worker) => {
                let second = |call: &Call| call.is(&["sendmsg"]) && call.occurrence == 2;
                (0, position(&second).map(|last| last + 1))
            }
            // The worker has been verified, and its code is sent.
            ("run", Role::Supervisor) => (0, position(&is_code)),
            _ => (0, None),
        };
        start..end.unwrap_or(calls.len())
    }
}

fn is_answer(call: &Call) -> bool {
    call.is(&["write"]) && call.arguments[0] == 1
}

/// The first message requests a worker from the zygote.
fn is_code(call: &Call) -> bool {
    call.is(&["sendmsg"]) && call.occurrence == 2
}

/// Returns all faults that can be injected into a call.
pub fn acts(call: &Call) -> Vec<Act> {
    // These calls end the caller or return to another point, so no process can receive an error.
    if call.is(&["exit", "exit_group", "rt_sigreturn", "restart_syscall"]) {
        return Vec::new();
    }
    // These calls cannot fail. If the clock source is not a CPU counter, reading the clock is a system call.
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
    // Calls that only allocate memory or guard a stack: a Rust program must abort when its allocator gets no memory,
    // and so does a thread without a guard page.
    let is_supervisor = matches!(call.role, Role::Supervisor | Role::Attendant);
    if is_supervisor && call.is(&["brk", "mmap", "mprotect", "munmap", "mremap", "madvise"]) {
        return Vec::new();
    }
    // Reading and setting the flags of an open descriptor always succeeds (fcntl(2)).
    let flags = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];
    let is_of_flags = flags
        .iter()
        .any(|of| u64::try_from(*of) == Ok(call.arguments[1]));
    if is_supervisor && call.is(&["fcntl"]) && is_of_flags {
        return Vec::new();
    }
    // The C library starts threads and makes them wait with these calls, and aborts if they fail.
    if is_supervisor && call.is(&["futex", "rseq", "set_robust_list"]) {
        return Vec::new();
    }
    // The kernel always closes the descriptor, and can at most report EINTR (close(2)).
    if call.is(&["close"]) {
        return vec![Act::Deny(Errno::EINTR), Act::Delay(LATE)];
    }
    // Needs neither memory nor a descriptor: only an older kernel or a filter refuses it (getrandom(2)).
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

/// What may follow from a fault besides a sound run.
#[derive(Clone, Copy)]
pub struct Allowed {
    /// Returns whether a guest with these differing lines in its posture is confined as well as any.
    pub posture: fn(&[String]) -> bool,
    /// Whether the next run may be refused too: a skipped step is noticed only when its effect is missing.
    pub later: bool,
}

/// A failed call is known to have failed.
pub const FAILED: Allowed = Allowed {
    posture: shows_no_more,
    later: false,
};

/// Returns whether a guest merely sees less of the host: a system directory that could not be inspected is not
/// shown, and what the interpreter needs of it is shown separately, in the same way.
///
/// The signals that a new program ignores restrict nothing, and posix_spawn(3) does not report whether it could set
/// them.
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

/// Injects one fault into a part.
pub fn put(
    bench: &mut Bench,
    part: Part,
    call: &Call,
    act: Act,
    allowed: Allowed,
    found: &mut Found,
) {
    bench.before(part.command);
    let report = bench.ask_with(part.command, Fault::at(call, act));
    // The scheduler determines how often a process waits or reads a clock: the call may not be made this time,
    // or only after the set-up.
    let Some(fired) = report.fired.filter(|_| part.is_at_work(&report.calls)) else {
        return bench.ready();
    };
    found.points += 1;
    let place = format!("{}: {fired} {act}", part.name);
    if report.took > SLOW {
        found.record_wrong(format!(
            "{place}: took {:?}: {:?}",
            report.took, report.reply
        ));
    }
    let mut reply = report.reply;
    if reply == Some(Reply::Done) {
        // The sandbox was built; whether it is sound shows with its first worker.
        reply = bench.ask("run").reply;
    }
    match &reply {
        None => {
            found.record_wrong(format!("{place}: the supervisor ended"));
            bench.restart();
            return;
        }
        Some(Reply::Refused { says, .. }) => {
            found.refused += 1;
            if !has_a_name(says, &fired, act) {
                found.record_wrong(format!("{place}: says only {says}"));
            }
            found.record_message(says);
        }
        ran if *ran == bench.sound().posture => found.sound += 1,
        Some(ran) => match bench.sound().difference(ran) {
            lines if (allowed.posture)(&lines) => found.sound += 1,
            // An init that fails ends its worker too, possibly when the guest already runs.
            lines if part.role == Role::WorkerInit && lines == ["signal"] => {
                found.refused += 1;
                found.record_message("signal");
            }
            lines => found.record_wrong(format!("{place}: {lines:?}")),
        },
    }
    if is_reaping(&fired, act) {
        bench.restart();
    } else if let Some(left) = bench.left_over().filter(|_| !is_of_fdopendir(&fired)) {
        found.record_wrong(format!("{place}: leaves {left}"));
        bench.build();
    }
    if part.command == "build" {
        // The next fault builds another sandbox.
        return;
    }
    let next = bench.ask("plain").reply;
    if !Reply::is_plain(next.as_ref()) {
        if !(allowed.later && matches!(next, Some(Reply::Refused { .. }))) {
            found.record_wrong(format!("{place}: the next run: {next:?}"));
        }
        bench.build();
    }
}

/// If the call that reaps processes fails, zombies stay until the supervisor ends.
fn is_reaping(call: &Call, act: Act) -> bool {
    let fails = matches!(act, Act::Fail(_) | Act::Deny(_));
    fails && call.role == Role::Supervisor && call.is(&["wait4", "waitid"])
}

/// nix 0.31 leaks the descriptor of a directory if fdopendir(3) fails. After open(2) of a directory, it can fail only
/// for lack of memory. It calls fstat(2) and fcntl(2).
fn is_of_fdopendir(call: &Call) -> bool {
    call.role == Role::Supervisor && call.is(&["newfstatat", "fcntl"])
}

/// Returns whether an error names what could not be done: the step and the kernel's error. If reporting itself
/// failed, or memory is exhausted, the error says that a process has ended.
fn has_a_name(says: &str, call: &Call, act: Act) -> bool {
    let (Act::Fail(errno) | Act::Deny(errno)) = act else {
        return !says.is_empty();
    };
    // An init that fails also ends the worker that may have been forked by then.
    if call.role == Role::WorkerInit {
        return !says.is_empty();
    }
    let untold = call.is(&[
        "sendmsg", "recvmsg", "brk", "mmap", "munmap", "mremap", "madvise",
    ]);
    let names = [
        "could not ",
        // A layer, before any jail was made.
        " cannot be enforced: ",
        " does not hold: ",
        " does not report ",
        &format!("{errno:?}"),
        &std::io::Error::from(errno).to_string(),
    ];
    names.iter().any(|name| says.contains(name)) || (untold && says.contains(" ended "))
}
