//! The preset: the calls that a guest may make, as data.
//!
//! It comes from the calls of CPython 3.9 to 3.14, glibc, numpy, pandas, threads, subprocess and
//! multiprocessing. The rest of the kernel stays unreachable. There is one file for each concept.

mod egress;
mod files;
mod jail;
mod loopback;
mod memory;
mod processes;
mod refused;
mod shared_host;
mod sockets;
mod system;

pub use files::HOST_WRITES;
pub use memory::UNCOUNTED;

use std::collections::BTreeMap;

use super::Surroundings;
use super::rule::{Errno, Rule, Verdict};

/// The Landlock ABI that handles truncation (Linux 6.2).
const ABI_TRUNCATE: u32 = 3;
/// The Landlock ABI that scopes signals (Linux 6.12).
const ABI_SCOPE: u32 = 6;

/// The rules for one kind of surroundings, by system call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Preset {
    /// Calls for guest code. A call that is not here gets `ENOSYS`.
    pub guest: BTreeMap<&'static str, &'static Rule>,
    /// Additional calls for the jail's set-up, between the two loads.
    pub jail: BTreeMap<&'static str, &'static Rule>,
}

impl Preset {
    /// Whether the supervisor hears of a refusal of this call, which gets the verdict.
    pub fn reports(name: &str, verdict: Verdict) -> bool {
        let mut reported = refused::REPORTED
            .iter()
            .flat_map(|names| names.split_whitespace());
        let is_refusal = matches!(
            verdict,
            Verdict::Refuse {
                errno: Errno::Perm,
                ..
            } | Verdict::AllowIf {
                otherwise: Errno::Perm,
                ..
            }
        );
        is_refusal && reported.any(|other| other == name)
    }

    /// The calls that a program needs together with this one, which is among them.
    pub fn family(name: &str) -> Vec<&str> {
        let families = refused::FAMILIES.iter();
        let mut families = families.map(|names| names.split_whitespace().collect::<Vec<_>>());
        let own = families.find(|names| names.contains(&name));
        own.unwrap_or_else(|| vec![name])
    }

    /// Whether the supervisor hears that a policy denies this call, which would get the verdict otherwise. It does not of
    /// a call that the preset asks it about in any surroundings, even if the policy has that allowed without asking: it
    /// would take a denied call for one that it may allow. Nor of a call that the zygote's filter answers with some
    /// arguments, because the kernel takes that answer before a question.
    pub fn reports_denial(&self, name: &str, verdict: Verdict) -> bool {
        let elsewhere = || {
            let rules = shared_host::SIGNALS_OPEN.iter();
            rules.filter(|rule| rule.names().any(|other| other == name))
        };
        let rules = self.guest.get(name).copied().into_iter();
        let is_asked = rules
            .chain(elsewhere())
            .any(|rule| matches!(rule.verdict, Verdict::AskIf { .. }));
        verdict == Verdict::Allow && !is_asked && !refused::WITNESSES.contains(&name)
    }

    /// The rules for guests in these surroundings.
    pub fn of(surroundings: Surroundings) -> Self {
        let tables = guest_tables(surroundings);
        Self {
            guest: by_syscall(&tables),
            jail: by_syscall(&match surroundings {
                Surroundings::Namespaces => vec![jail::ALWAYS, jail::NAMESPACES],
                Surroundings::Loopback => vec![jail::ALWAYS, jail::NAMESPACES, jail::LOOPBACK],
                Surroundings::SharedHost { landlock_abi } if landlock_abi < ABI_SCOPE => {
                    vec![jail::ALWAYS, jail::SIGNALS]
                }
                Surroundings::SharedHost { .. } => vec![jail::ALWAYS],
            }),
        }
    }
}

/// Later tables replace the rules of earlier ones.
fn guest_tables(surroundings: Surroundings) -> Vec<&'static [Rule]> {
    let mut tables = vec![
        files::RULES,
        memory::RULES,
        processes::RULES,
        system::RULES,
        sockets::RULES,
        refused::RULES,
    ];
    match surroundings {
        Surroundings::Namespaces => {}
        Surroundings::Loopback => tables.push(loopback::RULES),
        Surroundings::SharedHost { landlock_abi } => {
            tables.push(shared_host::ALWAYS);
            if landlock_abi < ABI_TRUNCATE {
                tables.push(shared_host::TRUNCATION_OPEN);
            }
            if landlock_abi < ABI_SCOPE {
                tables.push(shared_host::SIGNALS_OPEN);
            }
        }
    }
    tables
}

fn by_syscall(tables: &[&'static [Rule]]) -> BTreeMap<&'static str, &'static Rule> {
    tables
        .iter()
        .flat_map(|table| table.iter())
        .flat_map(|rule| rule.names().map(move |name| (name, rule)))
        .collect()
}

/// The calls of the egress process, by system call.
pub fn of_egress() -> BTreeMap<&'static str, &'static Rule> {
    by_syscall(&[egress::RULES])
}

/// Each table separately, for the tests.
#[cfg(test)]
pub(super) fn tables() -> Vec<Vec<Rule>> {
    let preset = guest_tables(Surroundings::Namespaces);
    let replacing = [
        loopback::RULES,
        shared_host::ALWAYS,
        shared_host::TRUNCATION_OPEN,
        shared_host::SIGNALS_OPEN,
    ];
    let jail = [
        jail::ALWAYS,
        jail::NAMESPACES,
        jail::LOOPBACK,
        jail::SIGNALS,
    ]
    .concat();
    [
        vec![preset.concat()],
        replacing.map(<[Rule]>::to_vec).to_vec(),
        vec![jail, egress::RULES.to_vec()],
    ]
    .concat()
}
