//! What every tracer of ours does to a process (ptrace(2)).

use std::collections::HashMap;

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sandfork::plan::seccomp::{Arch, syscalls};

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

/// Lets it go on to its next system call. One that was killed meanwhile needs no leave: its end is waited
/// for all the same.
pub fn to_next_call(pid: Pid, signal: Option<Signal>) {
    _ = ptrace::syscall(pid, signal);
}

/// Names of system calls, by their numbers.
pub fn call_names() -> HashMap<u64, &'static str> {
    syscalls(Arch::X86_64)
        .map(|(name, number)| (number.into(), name))
        .collect()
}
