//! The preset: the calls that a guest may make, as data.
//!
//! The preset was derived from the calls of CPython 3.9 to 3.14, glibc, numpy, pandas, threads, subprocess
//! and multiprocessing. The rest of the kernel stays unreachable. There is one file per topic.

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
    /// The rules for guest code. A call without a rule gets `ENOSYS`.
    pub guest: BTreeMap<&'static str, &'static Rule>,
    /// The rules for additional calls of the jail's set-up, between the loads of the zygote's filter and the worker's.
    pub jail: BTreeMap<&'static str, &'static Rule>,
}

impl Preset {
    /// Returns whether a refusal of this call, which has this verdict, is reported to the supervisor.
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

    /// Returns the calls that a program needs together with this call, including the call itself.
    pub fn family(name: &str) -> Vec<&str> {
        let families = refused::FAMILIES.iter();
        let mut families = families.map(|names| names.split_whitespace().collect::<Vec<_>>());
        let own = families.find(|names| names.contains(&name));
        own.unwrap_or_else(|| vec![name])
    }

    /// Returns whether the denial of this call by a policy is reported to the supervisor. `verdict` is the verdict
    /// without the denial.
    ///
    /// A call on which the supervisor decides in any surroundings is not reported, even if the policy allows it without
    /// asking, because the supervisor might then allow the denied call. A call that the zygote's filter refuses for
    /// some arguments is not reported either, because the kernel prefers an error of that filter to a notification.
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

    /// Returns the rules for guests in these surroundings.
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

/// Returns the tables of rules. Later tables override earlier ones.
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

/// Returns the rules of the egress process, by system call.
pub fn of_egress() -> BTreeMap<&'static str, &'static Rule> {
    by_syscall(&[egress::RULES])
}

/// Returns each table separately, for tests.
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
