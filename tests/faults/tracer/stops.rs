//! Handles the stops and ends of traced processes.

use std::time::Instant;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use super::queries::call_of;
use super::{Tracer, Watch};
use crate::family::{Call, Role, role_of_child};
use crate::fault::Act;
use crate::task::{Task, role_of_thread};
use crate::traced::{
    PTRACE_EVENT_STOP, before_call, born, leave_out, next_status, parent_is, set_return_value,
    to_next_call,
};

impl Tracer {
    /// Handles all pending events.
    pub(super) fn process_events(&mut self) {
        self.release_held();
        while let Some(status) = next_status() {
            self.handle(status);
        }
    }

    fn release_held(&mut self) {
        let now = Instant::now();
        let (due, later) = self.held.drain(..).partition(|(_, until)| *until <= now);
        self.held = later;
        let due: Vec<(Pid, Instant)> = due;
        for (pid, _) in due {
            self.resume(pid, None);
        }
    }

    fn handle(&mut self, status: WaitStatus) {
        match status {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => self.on_end(pid),
            WaitStatus::PtraceSyscall(pid) => self.on_call(pid),
            WaitStatus::PtraceEvent(pid, _, PTRACE_EVENT_STOP) => {
                if self.tasks.contains_key(&pid) {
                    self.resume(pid, None);
                } else {
                    self.unclaimed.insert(pid);
                }
            }
            WaitStatus::PtraceEvent(pid, _, event) => {
                self.on_event(pid, event);
                self.resume(pid, None);
            }
            WaitStatus::Stopped(pid, signal) => self.resume(pid, Some(signal)),
            _ => {}
        }
    }

    fn on_end(&mut self, pid: Pid) {
        if self.tasks.remove(&pid).is_none() {
            self.unclaimed.remove(&pid);
            self.stillborn.insert(pid);
        }
    }

    fn resume(&self, pid: Pid, signal: Option<Signal>) {
        let task = self.tasks.get(&pid);
        if task.is_some_and(|task| task.is_followed || task.returns.is_some()) {
            to_next_call(pid, signal);
        } else {
            _ = ptrace::cont(pid, signal);
        }
    }

    fn on_event(&mut self, parent: Pid, event: i32) {
        if event == libc::PTRACE_EVENT_EXEC {
            let own = self.pid();
            if let Some(task) = self.tasks.get_mut(&parent)
                && task.role == Role::Other
                && task.children == 0
                && parent_is(parent, own)
            {
                *task = Task::new(Role::Launcher);
                self.enlist(parent);
            }
            return;
        }
        let Some(child) = born(parent) else {
            return;
        };
        let role = match self.tasks.get_mut(&parent) {
            Some(task) if event == libc::PTRACE_EVENT_CLONE => role_of_thread(task.role),
            Some(task) => {
                task.children += 1;
                let flags = call_of(parent).map_or(0, |call| call.first);
                role_of_child(self.shape, task.role, task.children, flags)
            }
            None => Role::Other,
        };
        if self.stillborn.remove(&child) {
            return;
        }
        self.tasks.insert(child, Task::new(role));
        self.enlist(child);
        if self.unclaimed.remove(&child) {
            self.resume(child, None);
        }
    }

    /// Follows a new process if its role is watched.
    fn enlist(&mut self, pid: Pid) {
        let role = self.watch.role();
        if let Some(task) = self.tasks.get_mut(&pid) {
            task.is_followed = Some(task.role) == role;
        }
    }

    fn on_call(&mut self, pid: Pid) {
        let Some(task) = self.tasks.get_mut(&pid) else {
            return;
        };
        let Some(registers) = before_call(pid) else {
            if let Some(value) = task.returns.take() {
                set_return_value(pid, value);
            }
            return self.resume(pid, None);
        };
        if !task.is_followed {
            return self.resume(pid, None);
        }
        let call = task.enters(&registers);
        self.calls.push(call);
        let act = match self.watch {
            Watch::Until(fault) => fault.for_call(&call),
            Watch::None | Watch::Calls(_) => None,
        };
        match act {
            Some(act) => self.put_in(pid, call, act, registers),
            None => self.resume(pid, None),
        }
    }

    fn put_in(&mut self, pid: Pid, call: Call, act: Act, registers: libc::user_regs_struct) {
        self.fired = Some((call, Instant::now()));
        // From here on, nothing is watched.
        self.watch = Watch::None;
        for task in self.tasks.values_mut() {
            task.is_followed = false;
        }
        let error = |errno: Errno| Some(-i64::from(errno as i32));
        let (returns, is_made) = match act {
            Act::Fail(errno) => (error(errno), false),
            Act::Deny(errno) => (error(errno), true),
            Act::Pretend(value) => (Some(value), false),
            Act::Delay(time) => {
                self.held.push((pid, Instant::now() + time));
                return;
            }
            Act::Kill(victim) => {
                let victim = self.find_concerned(victim);
                self.struck = victim.filter(|victim| kill(*victim, Signal::SIGKILL).is_ok());
                return self.resume(pid, None);
            }
        };
        if let Some(task) = self.tasks.get_mut(&pid) {
            task.returns = returns;
        }
        if !is_made {
            leave_out(pid, registers);
        }
        self.resume(pid, None);
    }
}
