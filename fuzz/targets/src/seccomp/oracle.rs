//! Derives the actions that filters must return from the rules and a policy's lists, without compiling a
//! program.

use std::collections::BTreeMap;

use sandfork::internals::plan::seccomp::{
    Arch, Check, Errno, Grant, Preset, Surroundings, Verdict, syscall_number, syscalls,
};

use super::interpreter::{Answer, Call};

/// Calls that a policy may not deny, because an interpreter cannot run a cell without them.
const ESSENTIAL: [&str; 17] = [
    "read",
    "write",
    "close",
    "mmap",
    "munmap",
    "brk",
    "futex",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "exit",
    "exit_group",
    "prlimit64",
    "sendmsg",
    "recvfrom",
    "newfstatat",
    "sched_yield",
];

/// Returns every name of a system call, and some invalid names.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = [Arch::X86_64, Arch::Aarch64]
        .into_iter()
        .flat_map(syscalls)
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names.extend(["", "sys_read", "READ", "read "]);
    names
}

pub(super) struct Oracle {
    arch: Arch,
    preset: Preset,
    names: BTreeMap<u32, &'static str>,
}

impl Oracle {
    pub(super) fn new(arch: Arch, surroundings: Surroundings) -> Self {
        let preset = Preset::of(surroundings);
        let names = syscalls(arch).map(|(name, number)| (number, name));
        Self {
            arch,
            preset,
            names: names.collect(),
        }
    }

    /// Returns whether a policy may have these lists.
    pub(super) fn accepts(&self, allow: &[&str], deny: &[&str]) -> bool {
        let known = |name: &&str| {
            [Arch::X86_64, Arch::Aarch64]
                .iter()
                .any(|arch| syscall_number(*arch, name).is_some())
        };
        let allowable = |name: &&str| match self.preset.guest.get(*name).map(|rule| rule.verdict) {
            None | Some(Verdict::Allow | Verdict::AskIf { checks: [], .. }) => true,
            Some(Verdict::AllowIf { .. } | Verdict::AskIf { .. }) => false,
            Some(Verdict::Refuse { grant, .. }) => grant == Grant::ByPolicy,
        };
        allow.iter().all(|name| known(name) && allowable(name))
            && deny
                .iter()
                .all(|name| known(name) && !ESSENTIAL.contains(name))
    }

    /// Returns the action for a guest's call, with both filters loaded.
    pub(super) fn guest(&self, allow: &[&str], deny: &[&str], call: &Call) -> Answer {
        self.answer(call, |name| {
            let usual = self.guests_rule(allow, name, call);
            // A deny list removes allowed calls; a call that is refused anyway keeps its own error.
            let refused_anyway = match self.preset.guest.get(name).map(|rule| rule.verdict) {
                Some(
                    Verdict::Allow
                    | Verdict::AllowIf { .. }
                    | Verdict::AskIf { .. }
                    | Verdict::Refuse {
                        errno: Errno::Nothing,
                        ..
                    },
                ) => false,
                Some(Verdict::Refuse { .. }) | None => !allow.contains(&name),
            };
            if !deny.contains(&name) || refused_anyway {
                usual
            } else if self
                .guests_verdict(allow, name)
                .is_some_and(|verdict| self.preset.reports_denial(name, verdict))
            {
                Answer::Reported
            } else {
                Answer::Errno(1)
            }
        })
    }

    /// Returns the action for a call of the jail's set-up, with only the first filter loaded.
    pub(super) fn zygote(&self, allow: &[&str], call: &Call) -> Answer {
        self.answer(call, |name| match self.preset.jail.get(name) {
            Some(rule) => meaning(&rule.verdict, call),
            // No supervisor exists yet that could be notified.
            None => match self.guests_rule(allow, name, call) {
                Answer::Ask => Answer::Allow,
                other => other,
            },
        })
    }

    fn guests_rule(&self, allow: &[&str], name: &str, call: &Call) -> Answer {
        let Some(verdict) = self.guests_verdict(allow, name) else {
            return Answer::Errno(38);
        };
        match meaning(&verdict, call) {
            Answer::Errno(1) if Preset::reports(name, verdict) => Answer::Reported,
            answer => answer,
        }
    }

    fn guests_verdict(&self, allow: &[&str], name: &str) -> Option<Verdict> {
        if allow.contains(&name) {
            return Some(Verdict::Allow);
        }
        Some(self.preset.guest.get(name)?.verdict)
    }

    fn answer(&self, call: &Call, of_name: impl Fn(&str) -> Answer) -> Answer {
        if call.audit_arch != Call::new(self.arch, 0, [0; 6]).audit_arch {
            return Answer::KillProcess;
        }
        match self.names.get(&call.number) {
            Some(name) => of_name(name),
            // The call does not exist; neither do those of x32.
            None => Answer::Errno(38),
        }
    }
}

fn meaning(verdict: &Verdict, call: &Call) -> Answer {
    let refused = |errno: Errno| Answer::Errno(errno as u16);
    match *verdict {
        Verdict::Allow => Answer::Allow,
        Verdict::Refuse { errno, .. } => refused(errno),
        Verdict::AskIf { asked, .. } if holds(asked, call) => Answer::Ask,
        Verdict::AllowIf { ignored, .. }
            if !ignored.is_empty() && ignored.iter().all(|check| holds(*check, call)) =>
        {
            refused(Errno::Nothing)
        }
        Verdict::AllowIf {
            checks, otherwise, ..
        }
        | Verdict::AskIf {
            checks, otherwise, ..
        } => {
            if checks.iter().all(|check| holds(*check, call)) {
                Answer::Allow
            } else {
                refused(otherwise)
            }
        }
    }
}

/// The kernel uses the low half of a numeric argument.
fn holds(check: Check, call: &Call) -> bool {
    let low = |argument: u8| call.arguments[usize::from(argument)] % (1 << 32);
    match check {
        Check::OneOf {
            argument,
            mask,
            values,
        } => values
            .iter()
            .any(|value| low(argument) & u64::from(mask) == u64::from(*value)),
        Check::NoneOf {
            argument,
            mask,
            values,
        } => values
            .iter()
            .all(|value| low(argument) & u64::from(mask) != u64::from(*value)),
        Check::When {
            argument,
            values,
            then,
        } => {
            let is_there = |value: &u32| low(argument) == u64::from(*value);
            !values.iter().any(is_there) || holds(*then, call)
        }
    }
}
