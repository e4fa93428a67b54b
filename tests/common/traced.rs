//! Operations that all tracers of the tests share (ptrace(2)).

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::process::ChildStdout;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use sandfork::internals::plan::seccomp::{Arch, syscalls};

/// The stop of a new process that is traced from its creation, and of one that was interrupted (ptrace(2)).
pub const PTRACE_EVENT_STOP: i32 = 128;

/// Returns a descriptor that reports when a child has stopped or ended. Standard signals are not queued: one may stand
/// for several events. Programs that are started later start with no signal blocked.
pub fn child_events() -> SignalFd {
    let mut sigchld = SigSet::empty();
    sigchld.add(Signal::SIGCHLD);
    sigchld.thread_block().expect("a signal can be blocked");
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    SignalFd::with_flags(&sigchld, flags).expect("a descriptor is available")
}

/// Attaches to a single-threaded process. Everything that it forks is traced from its creation, which no later change
/// of credentials undoes. The kernel kills the traced processes when the tracer ends.
pub fn seize(pid: Pid) {
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).expect("a child may be traced (ptrace(2))");
    ptrace::interrupt(pid).expect("the process is traced");
}

/// Returns the next pending status change of a process that this thread traces, if any.
pub fn next_status() -> Option<WaitStatus> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    match waitpid(None, Some(flags)) {
        Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => None,
        Ok(status) => Some(status),
        Err(errno) => panic!("waiting for a traced process: {errno}"),
    }
}

/// Returns whether the process has this parent.
pub fn parent_is(pid: Pid, parent: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    found.is_some_and(|found| found.trim() == parent.to_string())
}

/// Returns the registers of a process that stopped before a system call; `None` if it stopped after one or was
/// killed meanwhile.
pub fn before_call(pid: Pid) -> Option<libc::user_regs_struct> {
    let stop = ptrace::syscall_info(pid).ok()?;
    (stop.op == libc::PTRACE_SYSCALL_INFO_ENTRY).then(|| ptrace::getregs(pid).ok())?
}

/// Returns the new process or thread for which its parent has just stopped.
pub fn born(parent: Pid) -> Option<Pid> {
    let child = ptrace::getevent(parent).ok()?;
    Some(Pid::from_raw(
        i32::try_from(child).expect("a valid process id"),
    ))
}

/// Resumes a process until its next system call. A process that was killed meanwhile is ignored: the caller waits
/// for its end all the same.
pub fn to_next_call(pid: Pid, signal: Option<Signal>) {
    _ = ptrace::syscall(pid, signal);
}

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        use sandfork::internals::plan::seccomp::syscall_number;

        /// Returns the number of the call that a process is about to make, and its first two arguments.
        pub fn call(registers: &libc::user_regs_struct) -> (u64, [u64; 2]) {
            (registers.orig_rax, [registers.rdi, registers.rsi])
        }

        /// Replaces the call that a process is about to make with one that every filter allows and that does nothing.
        pub fn leave_out(pid: Pid, mut registers: libc::user_regs_struct) {
            registers.orig_rax = syscall_number(Arch::X86_64, "getpid").map_or(0, u64::from);
            _ = ptrace::setregs(pid, registers);
        }

        /// Sets the return value of a call that was made or skipped.
        pub fn set_return_value(pid: Pid, value: i64) {
            if let Ok(mut registers) = ptrace::getregs(pid) {
                registers.rax = value.cast_unsigned();
                _ = ptrace::setregs(pid, registers);
            }
        }
    } else {
        /// Returns the number of the call that a process is about to make, and its first two arguments.
        pub fn call(registers: &libc::user_regs_struct) -> (u64, [u64; 2]) {
            (registers.regs[8], [registers.regs[0], registers.regs[1]])
        }
    }
}

/// Reads more of a program's output and returns its next line, if that is complete.
pub fn next_line(stdout: &mut ChildStdout, unread: &mut Vec<u8>) -> Option<String> {
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = stdout.read(&mut chunk) {
        unread.extend_from_slice(&chunk[..length]);
    }
    let end = unread.iter().position(|byte| *byte == b'\n')?;
    let line: Vec<u8> = unread.drain(..=end).collect();
    Some(String::from_utf8_lossy(&line[..end]).into_owned())
}

/// Returns the names of the system calls by number.
pub fn call_names() -> HashMap<u64, &'static str> {
    syscalls(Arch::X86_64)
        .map(|(name, number)| (number.into(), name))
        .collect()
}
