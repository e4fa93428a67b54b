//! The exit codes of the `sandfork` command: the one place that decides them.
//!
//! | code | when |
//! |---|---|
//! | 0 | the code ran to its end |
//! | 1 | an uncaught exception |
//! | 0 to 255 | the guest's own: `sys.exit(n)`, `os._exit(n)`, a program's exit status |
//! | 2 | usage: an argument, the script or the policy is wrong; nothing ran |
//! | 122 | protocol violation: the guest tampered with its link to the supervisor |
//! | 123 | a limit on processes, output or files |
//! | 124 | a limit on time, wall or cpu, as timeout(1) does |
//! | 125 | the sandbox could not be provided; nothing of the guest ran |
//! | 126, 127 | `exec`: the program could not be started, was not found, as a shell does |
//! | 130 | interrupted: SIGINT, SIGTERM or SIGHUP to the command; SIGINT and SIGHUP stay ignored if they were (`nohup`) |
//! | 130 | an uncaught `KeyboardInterrupt`, as a shell shows how `python3` ends |
//! | 137 | the memory limit, as a shell shows the OOM killer's SIGKILL |
//! | 128 + n | a signal; 159 is SIGSYS, a system call that the policy refuses by death |
//!
//! Those of `sandfork map` are not about its guests, whose own are in the results:
//!
//! | code | when |
//! |---|---|
//! | 0 | every task has had its run, however it ended |
//! | 1 | the results could not be written |
//! | 2 | usage: an argument, the policy or a line of the tasks is wrong; those before it were run. Or a task was `refused` |
//! | 125 | a task got no sandbox, or none could be provided at all |
//! | 130 | interrupted; `--resume` goes on |
//! | 141 | the reader of the results has left, as a shell shows SIGPIPE |
//!
//! A guest may exit with any code, so a code alone does not prove what happened; `status` of
//! `--json` does.

use super::{Ending, ExceptionInfo, Status};

/// The code ran to its end.
pub const OK: u8 = 0;
/// An uncaught exception.
pub const EXCEPTION: u8 = 1;
/// Two policies differ.
pub const DIFFERENT: u8 = 1;
/// What the command has to say could not be written.
pub const NOT_WRITTEN: u8 = 1;
/// An argument, the script or the policy is wrong.
pub const USAGE: u8 = 2;
/// The guest tampered with its link to the supervisor.
pub const PROTOCOL_VIOLATION: u8 = 122;
/// A limit on processes, output or files.
pub const OTHER_LIMIT: u8 = 123;
/// A limit on time.
pub const TIME_LIMIT: u8 = 124;
/// The sandbox could not be provided.
pub const SANDBOX_UNAVAILABLE: u8 = 125;
/// The program of `exec` could not be started.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program of `exec` was not found.
pub const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended the guest.
pub const SIGNAL_BASE: u8 = 128;
/// Interrupted: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;
/// The memory limit: 128 + SIGKILL.
pub const MEMORY_LIMIT: u8 = 137;

/// The reader of the output has gone: 128 + SIGPIPE.
pub const BROKEN_PIPE: u8 = 141;

// The same on every architecture that Sandfork runs on; this module stays free of libc.
const SIGSYS: u8 = 31;
const ENOENT: i32 = 2;

/// The exit code for the end of a run with this uncaught exception.
pub fn of(ending: &Ending, exception: Option<&ExceptionInfo>) -> u8 {
    match ending {
        Ending::Ok => OK,
        Ending::Exception if exception.is_some_and(|it| it.name == "KeyboardInterrupt") => {
            INTERRUPTED
        }
        Ending::Exception => EXCEPTION,
        Ending::NotStarted(errno) => of_exec_errno(*errno),
        Ending::Exit(code) => *code,
        Ending::Limit(hit) => match hit.name.spec().status {
            Status::Timeout | Status::CpuLimit => TIME_LIMIT,
            Status::MemoryLimit => MEMORY_LIMIT,
            _ => OTHER_LIMIT,
        },
        Ending::Denied => SIGNAL_BASE + SIGSYS,
        Ending::Signal(signal) => of_signal(*signal),
        Ending::ProtocolViolation(_) => PROTOCOL_VIOLATION,
        Ending::Interrupted => INTERRUPTED,
    }
}

/// The exit code for a program that execve(2) could not start.
const fn of_exec_errno(errno: i32) -> u8 {
    if errno == ENOENT {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    }
}

/// 128 plus the signal's number, which is 1 to 64 (signal(7)).
fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(SIGNAL_BASE, |signal| SIGNAL_BASE.saturating_add(signal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{LimitHit, LimitName, Mechanism};

    #[test]
    fn codes_are_those_of_the_table() {
        let limit = |name| {
            Ending::Limit(LimitHit {
                name,
                by: Mechanism::Supervisor,
            })
        };
        let table = [
            (Ending::Ok, 0),
            (Ending::Exception, 1),
            (Ending::Exit(0), 0),
            (Ending::Exit(3), 3),
            (Ending::Exit(255), 255),
            (Ending::NotStarted(ENOENT), 127),
            (Ending::NotStarted(13), 126),
            (Ending::ProtocolViolation(String::new()), 122),
            (limit(LimitName::Pids), 123),
            (limit(LimitName::Output), 123),
            (limit(LimitName::WorkInodes), 123),
            (limit(LimitName::Wall), 124),
            (limit(LimitName::Cpu), 124),
            (limit(LimitName::Memory), 137),
            (Ending::Interrupted, 130),
            (Ending::Signal(11), 139),
            (Ending::Signal(64), 192),
            (Ending::Signal(-1), 128),
            (Ending::Signal(i32::MAX), 128),
            (Ending::Denied, 159),
        ];
        for (ending, code) in table {
            assert_eq!(of(&ending, None), code, "{ending:?}");
        }
    }

    #[test]
    fn only_an_interrupt_that_no_one_sent_has_the_code_of_one() {
        let interrupt = ExceptionInfo::new("KeyboardInterrupt", "", "");
        let other = ExceptionInfo::new("ValueError", "KeyboardInterrupt", "");
        assert_eq!(of(&Ending::Exception, Some(&interrupt)), 130);
        assert_eq!(of(&Ending::Exception, Some(&other)), 1);
        assert_eq!(of(&Ending::Exit(3), Some(&interrupt)), 3);
    }
}
