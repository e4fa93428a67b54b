//! From the preset and a policy's lists to the filters of a plan.

use std::collections::BTreeMap;

use super::assemble::{Fallback, assemble};
use super::names::{known_syscall, syscall_number};
use super::{Arch, Errno, Filters, Grant, Preset, Rule, SeccompError, Surroundings, Verdict};

/// Calls of the interpreter's every cell, after the worker's filter is loaded: take up code, run it,
/// report, collect garbage, end.
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
];

/// Compiles the preset of `surroundings` and a policy's own lists.
///
/// `allow` adds to the preset: calls that it refuses for economy, or does not know. `deny` takes
/// away with `EPERM` and wins over the preset and over `allow`; it is put into the worker's filter,
/// so that the jail's set-up is not hindered. A name that another architecture has is accepted.
pub fn compile(
    arch: Arch,
    surroundings: Surroundings,
    allow: &[impl AsRef<str>],
    deny: &[impl AsRef<str>],
) -> Result<Filters, SeccompError> {
    let Preset { guest, jail } = Preset::of(surroundings);
    let mut verdicts: BTreeMap<&str, Verdict> = guest
        .iter()
        .map(|(&name, rule)| (name, rule.verdict))
        .collect();
    for name in allow {
        check_allowed(&guest, name.as_ref())?;
        verdicts.insert(name.as_ref(), Verdict::Allow);
    }
    let mut zygote = verdicts.clone();
    zygote.extend(jail.iter().map(|(&name, rule)| (name, rule.verdict)));

    let mut worker: BTreeMap<&str, Verdict> = jail
        .keys()
        .filter_map(|&name| Some((name, *verdicts.get(name)?)))
        .collect();
    for name in deny {
        check_denied(name.as_ref())?;
        if let Some(Verdict::Allow | Verdict::AllowIf { .. }) = verdicts.get(name.as_ref()) {
            worker.insert(name.as_ref(), DENIED);
        }
    }
    Ok(Filters {
        zygote: vec![assemble(arch, &by_number(arch, &zygote), Fallback::NoSys)],
        worker: vec![assemble(arch, &by_number(arch, &worker), Fallback::Allow)],
    })
}

const DENIED: Verdict = Verdict::Refuse {
    errno: Errno::Perm,
    grant: Grant::Never,
};

fn check_allowed(guest: &BTreeMap<&str, &'static Rule>, name: &str) -> Result<(), SeccompError> {
    check_known(name)?;
    let Some(rule) = guest.get(name) else {
        return Ok(());
    };
    let (name, reason) = (name.to_owned(), rule.reason);
    match rule.verdict {
        Verdict::Allow
        | Verdict::Refuse {
            grant: Grant::ByPolicy,
            ..
        } => Ok(()),
        Verdict::AllowIf { .. } => Err(SeccompError::Conditional { name, reason }),
        Verdict::Refuse {
            grant: Grant::Never,
            ..
        } => Err(SeccompError::Never { name, reason }),
    }
}

fn check_denied(name: &str) -> Result<(), SeccompError> {
    check_known(name)?;
    if ESSENTIAL.contains(&name) {
        return Err(SeccompError::Essential {
            name: name.to_owned(),
        });
    }
    Ok(())
}

fn check_known(name: &str) -> Result<(), SeccompError> {
    if known_syscall(name) {
        Ok(())
    } else {
        Err(SeccompError::Unknown {
            name: name.to_owned(),
        })
    }
}

fn by_number(arch: Arch, verdicts: &BTreeMap<&str, Verdict>) -> BTreeMap<u32, Verdict> {
    verdicts
        .iter()
        .filter_map(|(name, verdict)| Some((syscall_number(arch, name)?, *verdict)))
        .collect()
}
