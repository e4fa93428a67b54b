//! Defines the exit codes of the `sandfork` command.
//!
//! | code | when |
//! |---|---|
//! | 0 | the code ran to its end |
//! | 1 | an uncaught exception |
//! | 0 to 255 | the guest's exit status: `sys.exit(n)`, `os._exit(n)`, or that of a program |
//! | 2 | usage: an argument, the script or the policy is wrong; nothing ran |
//! | 122 | protocol violation: the guest tampered with its link to the supervisor |
//! | 123 | a limit on processes, output or files |
//! | 124 | a limit on wall time or CPU time, as timeout(1) does |
//! | 125 | the sandbox could not be provided; no guest code ran |
//! | 126, 127 | `exec`: the program could not be started, or was not found, as in a shell |
//! | 130 | interrupted: SIGINT, SIGTERM or SIGHUP to the command; ignored SIGINT and SIGHUP stay ignored (`nohup`) |
//! | 130 | an uncaught `KeyboardInterrupt`, as a shell reports it for `python3` |
//! | 137 | the memory limit, as a shell reports the OOM killer's SIGKILL |
//! | 128 + n | signal n; 159 is SIGSYS, by which seccomp kills a process for a forbidden system call |
//!
//! The exit codes of `sandfork map` say nothing about its guests, whose exit codes are in the results:
//!
//! | code | when |
//! |---|---|
//! | 0 | every task ran, however it ended |
//! | 1 | the results could not be written |
//! | 2 | usage: an argument, the policy or a task line is wrong (earlier tasks ran), or a task was `refused` |
//! | 125 | the sandbox could not be provided, for one task or at all |
//! | 130 | interrupted; `--resume` continues |
//! | 141 | the reader of the results closed its end, as a shell reports SIGPIPE |
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
/// The command's output could not be written.
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

/// The reader of the output closed its end: 128 + SIGPIPE.
pub const BROKEN_PIPE: u8 = 141;

// Equal on every supported architecture. Spelled out, because this module does not depend on libc.
const SIGSYS: u8 = 31;
const ENOENT: i32 = 2;

/// Returns the exit code for a run that ended like this, with this uncaught exception.
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

/// Returns the exit code for a program that execve(2) could not start.
const fn of_exec_errno(errno: i32) -> u8 {
    if errno == ENOENT {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    }
}

/// Returns 128 plus the signal number, which is 1 to 64 (signal(7)).
fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(SIGNAL_BASE, |signal| SIGNAL_BASE.saturating_add(signal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{LimitHit, LimitName, Mechanism};

    #[test]
    fn endings_map_to_the_documented_codes() {
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
    fn uncaught_keyboard_interrupt_exits_with_130() {
        let interrupt = ExceptionInfo::new("KeyboardInterrupt", "", "");
        let other = ExceptionInfo::new("ValueError", "KeyboardInterrupt", "");
        assert_eq!(of(&Ending::Exception, Some(&interrupt)), 130);
        assert_eq!(of(&Ending::Exception, Some(&other)), 1);
        assert_eq!(of(&Ending::Exit(3), Some(&interrupt)), 3);
    }
}
