//! What every tracer of ours does to a process (ptrace(2)).

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

/// The stop of a new process that is traced from its birth, and of one that was interrupted (ptrace(2)).
pub const PTRACE_EVENT_STOP: i32 = 128;

/// Tells that a child has stopped or ended, by a descriptor, beside the other descriptors that are waited for. Standard
/// signals do not queue: one may stand for several. What is started later starts with none blocked.
pub fn child_events() -> SignalFd {
    let mut sigchld = SigSet::empty();
    sigchld.add(Signal::SIGCHLD);
    sigchld.thread_block().expect("a signal can be blocked");
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    SignalFd::with_flags(&sigchld, flags).expect("a descriptor is left")
}

/// Begins to trace a process of one thread, with all that it starts: from its birth, which no later change
/// of its rights undoes. What is left of them ends with the tracer.
pub fn seize(pid: Pid) {
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).expect("a child may be traced (ptrace(2))");
    ptrace::interrupt(pid).expect("it is traced");
}

/// What has become of one of those that this thread traces, if something has.
pub fn next_status() -> Option<WaitStatus> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    match waitpid(None, Some(flags)) {
        Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => None,
        Ok(status) => Some(status),
        Err(errno) => panic!("waiting for a traced process: {errno}"),
    }
}

/// Whether the second started the first.
pub fn parent_is(pid: Pid, parent: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    found.is_some_and(|found| found.trim() == parent.to_string())
}

/// The registers of a process that stopped before a system call: `None` behind one, and of a process that
/// was killed meanwhile.
pub fn before_call(pid: Pid) -> Option<libc::user_regs_struct> {
    let stop = ptrace::syscall_info(pid).ok()?;
    (stop.op == libc::PTRACE_SYSCALL_INFO_ENTRY).then(|| ptrace::getregs(pid).ok())?
}

/// The process or thread that a parent which has just stopped for it has made.
pub fn born(parent: Pid) -> Option<Pid> {
    let child = ptrace::getevent(parent).ok()?;
    Some(Pid::from_raw(
        i32::try_from(child).expect("it is a process number"),
    ))
}

/// Resumes a process until its next system call. One that was killed meanwhile needs no resuming: the caller waits
/// for its end all the same.
pub fn to_next_call(pid: Pid, signal: Option<Signal>) {
    _ = ptrace::syscall(pid, signal);
}

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        use sandfork::internals::plan::seccomp::syscall_number;

        /// The number of the call before which a process stands, and its first two arguments.
        pub fn call(registers: &libc::user_regs_struct) -> (u64, [u64; 2]) {
            (registers.orig_rax, [registers.rdi, registers.rsi])
        }

        /// Replaces the call before which a process stands with one that every filter lets through and that does nothing.
        pub fn leave_out(pid: Pid, mut registers: libc::user_regs_struct) {
            registers.orig_rax = syscall_number(Arch::X86_64, "getpid").map_or(0, u64::from);
            _ = ptrace::setregs(pid, registers);
        }

        /// Sets what a call returns that was made or left out.
        pub fn give_back(pid: Pid, value: i64) {
            if let Ok(mut registers) = ptrace::getregs(pid) {
                registers.rax = value.cast_unsigned();
                _ = ptrace::setregs(pid, registers);
            }
        }
    } else {
        /// The number of the call before which a process stands, and its first two arguments.
        pub fn call(registers: &libc::user_regs_struct) -> (u64, [u64; 2]) {
            (registers.regs[8], [registers.regs[0], registers.regs[1]])
        }
    }
}

/// The next line of a program that was `heard` so far and has said more, if it is whole.
pub fn next_line(stdout: &mut ChildStdout, heard: &mut Vec<u8>) -> Option<String> {
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = stdout.read(&mut chunk) {
        heard.extend_from_slice(&chunk[..length]);
    }
    let end = heard.iter().position(|byte| *byte == b'\n')?;
    let line: Vec<u8> = heard.drain(..=end).collect();
    Some(String::from_utf8_lossy(&line[..end]).into_owned())
}

/// Names of system calls, by their numbers.
pub fn call_names() -> HashMap<u64, &'static str> {
    syscalls(Arch::X86_64)
        .map(|(name, number)| (number.into(), name))
        .collect()
}
