//! Compiles the preset and a policy's lists to the filters of a plan.

use std::collections::{BTreeMap, BTreeSet};

use super::assemble::{Fallback, assemble};
use super::names::{known_syscall, syscall_number};
use super::rule::{Answered, Refusals};
use super::{
    Arch, Errno, Filters, Grant, Preset, Rule, SeccompError, Surroundings, Verdict, preset,
};
use sandfork_jail::program::BpfProgram;

/// Calls that the interpreter needs for every cell after the worker's filter is loaded: to receive code, run
/// it, report, collect garbage and exit. The list also has the calls of the jail's last steps, which pass on
/// open descriptors and limit their number.
const ESSENTIAL: &[&str] = &[
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

/// Calls [`compile_with`] without stricter rules.
#[cfg(any(test, feature = "internals"))]
pub fn compile(
    arch: Arch,
    surroundings: Surroundings,
    allow: &[impl AsRef<str>],
    deny: &[impl AsRef<str>],
) -> Result<Filters, SeccompError> {
    compile_with(arch, surroundings, allow, deny, &[])
}

/// Compiles the preset of `surroundings` and a policy's lists.
///
/// `allow` adds calls that the preset does not list, or refuses only to reduce the attack surface. `deny`
/// refuses calls with `EPERM` and takes precedence over the preset and over `allow`. It affects only the
/// worker's filter, so that the jail's set-up still works. Names that only another architecture has are
/// accepted. Calls that are allowed after that, conditionally or not, get the verdicts of `stricter`.
pub fn compile_with(
    arch: Arch,
    surroundings: Surroundings,
    allow: &[impl AsRef<str>],
    deny: &[impl AsRef<str>],
    stricter: &[Rule],
) -> Result<Filters, SeccompError> {
    let preset = Preset::of(surroundings);
    let Preset { guest, jail } = &preset;
    let mut verdicts: BTreeMap<&str, Verdict> = guest
        .iter()
        .map(|(&name, rule)| (name, rule.verdict))
        .collect();
    for name in allow {
        check_allowed(guest, name.as_ref())?;
        verdicts.insert(name.as_ref(), Verdict::Allow);
    }
    for rule in stricter {
        for name in rule.names() {
            if let Some(Verdict::Allow | Verdict::AllowIf { .. }) = verdicts.get(name) {
                verdicts.insert(name, rule.verdict);
            }
        }
    }
    let mut zygote: BTreeMap<&str, Verdict> = verdicts
        .iter()
        .map(|(&name, verdict)| (name, verdict.without_asking()))
        .collect();
    zygote.extend(jail.iter().map(|(&name, rule)| (name, rule.verdict)));

    let mut reported: BTreeSet<&str> = verdicts
        .iter()
        .filter(|(name, verdict)| Preset::reports(name, **verdict))
        .map(|(&name, _)| name)
        .collect();
    let asked = verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::AskIf { .. }))
        .map(|(&name, _)| name);
    let mut worker: BTreeMap<&str, Verdict> = jail
        .keys()
        .copied()
        .chain(asked)
        .chain(reported.iter().copied())
        .filter_map(|name| Some((name, *verdicts.get(name)?)))
        .collect();
    for name in deny.iter().map(AsRef::as_ref) {
        check_denied(name)?;
        let Some(verdict) = verdicts.get(name) else {
            continue;
        };
        if !matches!(verdict, Verdict::Refuse { errno, .. } if *errno != Errno::Nothing) {
            worker.insert(name, DENIED);
            reported.extend(preset.reports_denial(name, *verdict).then_some(name));
        }
    }
    Ok(Filters {
        zygote: vec![assemble(
            arch,
            &by_number(arch, &zygote, &reported),
            Fallback::NoSys,
        )],
        worker: vec![assemble(
            arch,
            &by_number(arch, &worker, &reported),
            Fallback::Allow,
        )],
    })
}

/// Returns whether a policy may allow this call.
pub fn may_be_allowed(surroundings: Surroundings, name: &str) -> bool {
    check_allowed(&Preset::of(surroundings).guest, name).is_ok()
}

/// Returns the filter of the egress process, an allow-list.
pub fn egress_filter(arch: Arch) -> BpfProgram {
    let rules = preset::of_egress();
    let verdicts = rules.into_iter().map(|(name, rule)| (name, rule.verdict));
    let verdicts = verdicts.collect();
    assemble(
        arch,
        &by_number(arch, &verdicts, &BTreeSet::new()),
        Fallback::NoSys,
    )
}

const DENIED: Verdict = Verdict::Refuse {
    errno: Errno::Perm,
    grant: Grant::Never,
};

/// The error for the denial of an essential call.
const INDISPENSABLE: &str =
    "cannot be denied, because the interpreter needs it: remove it from `deny`";

/// Returns an error for each invalid name in a policy's lists of calls.
pub fn check<'a>(
    allow: impl IntoIterator<Item = &'a str>,
    deny: impl IntoIterator<Item = &'a str>,
) -> Vec<SeccompError> {
    let guest = Preset::of(Surroundings::Namespaces).guest;
    let allowed = allow.into_iter().map(|name| check_allowed(&guest, name));
    let denied = deny.into_iter().map(check_denied);
    allowed.chain(denied).filter_map(Result::err).collect()
}

fn check_allowed(guest: &BTreeMap<&str, &'static Rule>, name: &str) -> Result<(), SeccompError> {
    check_known(name)?;
    let Some(rule) = guest.get(name) else {
        return Ok(());
    };
    let reason = rule.reason;
    match rule.verdict {
        Verdict::Allow
        | Verdict::AskIf { checks: [], .. }
        | Verdict::Refuse {
            grant: Grant::ByPolicy,
            ..
        } => Ok(()),
        // A policy cannot widen the arguments.
        Verdict::AllowIf { .. } | Verdict::AskIf { .. } => Err(SeccompError::new(
            name,
            format!(
                "is already allowed, as far as it is harmless ({reason}): remove it from `allow`"
            ),
        )),
        Verdict::Refuse {
            grant: Grant::Never,
            ..
        } => Err(SeccompError::new(
            name,
            format!("cannot be allowed ({reason}): remove it from `allow`"),
        )),
    }
}

fn check_denied(name: &str) -> Result<(), SeccompError> {
    check_known(name)?;
    if ESSENTIAL.contains(&name) {
        return Err(SeccompError::new(name, INDISPENSABLE));
    }
    Ok(())
}

fn check_known(name: &str) -> Result<(), SeccompError> {
    if known_syscall(name) {
        Ok(())
    } else {
        Err(SeccompError::new(
            name,
            "is not a system call: names are those of syscalls(2), without `sys_`",
        ))
    }
}

fn by_number(
    arch: Arch,
    verdicts: &BTreeMap<&str, Verdict>,
    reported: &BTreeSet<&str>,
) -> BTreeMap<u32, Answered> {
    let numbered = verdicts.iter().filter_map(|(name, verdict)| {
        let answered = Answered {
            verdict: *verdict,
            refusals: if reported.contains(name) {
                Refusals::Reported
            } else {
                Refusals::Unreported
            },
        };
        Some((syscall_number(arch, name)?, answered))
    });
    numbered.collect()
}
