//! Tests every rule with allowed and refused arguments.

use std::collections::{BTreeMap, BTreeSet};

use sandfork_jail::filter::without_listener;
use sandfork_jail::program::BpfProgram;

use super::super::preset::of_egress;
use super::super::{
    Arch, Errno, Preset, Surroundings, Verdict, egress_filter, syscall_number, syscalls,
};
use super::arguments::{meaning, samples};
use super::cases::{CASES, Case, Where};
use super::interpreter::{Answer, Call, answer, assert_loadable};
use super::{ARCHES, SURROUNDINGS, preset_filters};

/// Above the highest call number of either architecture.
const BEYOND: u32 = 600;

fn everywhere(mut test: impl FnMut(Arch, Surroundings)) {
    for arch in ARCHES {
        for surroundings in SURROUNDINGS {
            test(arch, surroundings);
        }
    }
}

#[test]
fn both_filters_together_implement_the_guest_table() {
    everywhere(|arch, surroundings| {
        let filters = preset_filters(arch, surroundings);
        let loaded: Vec<_> = filters.zygote.iter().chain(&filters.worker).collect();
        let guest = Preset::of(surroundings).guest;
        for (name, number) in syscalls(arch) {
            let unknown = Verdict::Refuse {
                errno: Errno::NoSys,
                grant: super::super::Grant::Never,
            };
            let verdict = guest.get(name).map_or(unknown, |rule| rule.verdict);
            for arguments in samples(&verdict) {
                assert_eq!(
                    answer(loaded.iter().copied(), &Call::new(arch, number, arguments)).to_guest(),
                    meaning(&verdict, &arguments),
                    "{name} {arguments:x?} on {arch:?} in {surroundings:?}"
                );
            }
        }
    });
}

#[test]
fn refusals_are_reported() {
    everywhere(|arch, surroundings| {
        let filters = preset_filters(arch, surroundings);
        let mut heard = BTreeSet::new();
        for (name, rule) in Preset::of(surroundings).guest {
            let Some(number) = syscall_number(arch, name) else {
                continue;
            };
            for arguments in samples(&rule.verdict) {
                let call = Call::new(arch, number, arguments);
                let with =
                    |worker: &[BpfProgram]| answer(filters.zygote.iter().chain(worker), &call);
                if with(&filters.worker) == Answer::Reported {
                    assert_eq!(
                        meaning(&rule.verdict, &arguments),
                        Answer::Errno(1),
                        "{name}"
                    );
                    heard.insert(name);
                }
                // A worker without a listener.
                let without_listener: Vec<_> =
                    filters.worker.iter().map(without_listener).collect();
                let expected = match meaning(&rule.verdict, &arguments) {
                    Answer::Ask => with(&without_listener),
                    other => other,
                };
                assert_eq!(with(&without_listener), expected, "{name} {arguments:x?}");
            }
        }
        for (name, is_heard) in [
            ("socket", surroundings != Surroundings::Loopback),
            ("ptrace", true),
            ("unshare", true),
            ("splice", true),
            ("clone", true),
            // The worker's self-check sees these refusals before the supervisor listens.
            ("socketpair", false),
            ("kcmp", false),
            ("open_tree", false),
            ("capset", false),
            // Libraries try this at each start, and take the refusal for a host without NUMA.
            ("get_mempolicy", false),
            // The supervisor decides on some of these calls.
            ("fcntl", false),
        ] {
            assert_eq!(heard.contains(name), is_heard, "{name} in {surroundings:?}");
        }
    });
}

#[test]
fn egress_filter_allows_only_its_table() {
    for arch in ARCHES {
        let filter = egress_filter(arch);
        assert_loadable(&filter);
        let table = of_egress();
        for (name, number) in syscalls(arch) {
            let Some(rule) = table.get(name) else {
                let call = Call::new(arch, number, [0; 6]);
                assert_eq!(answer([&filter], &call), Answer::Errno(38), "{name}");
                continue;
            };
            for arguments in samples(&rule.verdict) {
                let call = Call::new(arch, number, arguments);
                let expected = meaning(&rule.verdict, &arguments);
                assert_eq!(answer([&filter], &call), expected, "{name} {arguments:x?}");
            }
        }
        for name in [
            "execve", "openat", "listen", "clone", "clone3", "kill", "ptrace",
        ] {
            assert!(!table.contains_key(name), "{name}");
        }
    }
}

#[test]
fn zygote_filter_allows_the_jail_setup() {
    everywhere(|arch, surroundings| {
        let filters = preset_filters(arch, surroundings);
        for (name, rule) in Preset::of(surroundings).jail {
            let Some(number) = syscall_number(arch, name) else {
                continue;
            };
            for arguments in samples(&rule.verdict) {
                let call = Call::new(arch, number, arguments);
                assert_eq!(
                    answer(&filters.zygote, &call),
                    meaning(&rule.verdict, &arguments)
                );
            }
        }
    });
}

#[test]
fn worker_filter_revokes_every_setup_call() {
    everywhere(|arch, surroundings| {
        let filters = preset_filters(arch, surroundings);
        for (name, rule) in Preset::of(surroundings).jail {
            let Some(number) = syscall_number(arch, name) else {
                continue;
            };
            // Arguments that are no id, process or option of the guest.
            let arguments = [u64::MAX - 1; 6];
            let call = Call::new(arch, number, arguments);
            let refused = match name {
                "kill" | "tgkill" => Answer::Ask,
                "sched_setaffinity" => Answer::Errno(Errno::Nothing as u16),
                "socket" if surroundings == Surroundings::Loopback => {
                    Answer::Errno(Errno::NotSupported as u16)
                }
                _ => Answer::Errno(Errno::Perm as u16),
            };
            assert_eq!(meaning(&rule.verdict, &arguments), Answer::Allow, "{name}");
            let answered = answer(&filters.worker, &call).to_guest();
            assert_eq!(answered, refused, "{name}");
        }
    });
}

#[test]
fn unassigned_numbers_return_enosys() {
    everywhere(|arch, surroundings| {
        let filters = preset_filters(arch, surroundings);
        let known: Vec<u32> = syscalls(arch).map(|(_, number)| number).collect();
        let beyond = [0x3fff_ffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];
        for number in (0..BEYOND)
            .filter(|number| !known.contains(number))
            .chain(beyond)
        {
            let call = Call::new(arch, number, [0; 6]);
            let loaded = filters.zygote.iter().chain(&filters.worker);
            assert_eq!(answer(loaded, &call), Answer::Errno(38), "number {number}");
        }
    });
}

#[test]
fn x32_numbers_return_enosys() {
    let filters = preset_filters(Arch::X86_64, Surroundings::Namespaces);
    for number in 0..BEYOND {
        let call = Call::new(Arch::X86_64, number | 0x4000_0000, [0; 6]);
        assert_eq!(
            answer(&filters.zygote, &call),
            Answer::Errno(38),
            "number {number}"
        );
    }
}

#[test]
fn foreign_architecture_is_killed_by_each_program() {
    const I386: u32 = 0x4000_0003;
    const ARM: u32 = 0x4000_0028;
    everywhere(|arch, surroundings| {
        let filters = preset_filters(arch, surroundings);
        let other = ARCHES.into_iter().find(|other| *other != arch).unwrap();
        let foreign = [I386, ARM, Call::new(other, 0, [0; 6]).audit_arch];
        for program in filters.zygote.iter().chain(&filters.worker) {
            for audit_arch in foreign {
                for number in 0..BEYOND {
                    let call = Call {
                        audit_arch,
                        number,
                        arguments: [0; 6],
                    };
                    assert_eq!(answer([program], &call), Answer::KillProcess);
                }
            }
        }
    });
}

#[test]
fn handwritten_cases_hold() {
    for arch in ARCHES {
        for case in CASES {
            let Some(number) = syscall_number(arch, case.syscall) else {
                continue;
            };
            for surroundings in surroundings_of(case) {
                let filters = preset_filters(arch, surroundings);
                let loaded = filters.zygote.iter().chain(&filters.worker);
                let expected = case.errno.map_or(Answer::Allow, |errno| {
                    Answer::Errno(u16::try_from(errno).unwrap())
                });
                let call = Call::new(arch, number, case.arguments);
                let answered = match answer(loaded, &call).to_guest() {
                    // The kernel's answer if no supervisor listens.
                    Answer::Ask => Answer::Errno(Errno::NoSys as u16),
                    other => other,
                };
                assert_eq!(answered, expected, "{case:?} in {surroundings:?}");
            }
        }
    }
}

fn surroundings_of(case: &Case) -> Vec<Surroundings> {
    match case.surroundings {
        Where::Anywhere => SURROUNDINGS.to_vec(),
        Where::Namespaces => vec![Surroundings::Namespaces, Surroundings::Loopback],
        Where::NoNetwork => vec![Surroundings::Namespaces],
        Where::Loopback => vec![Surroundings::Loopback],
        Where::SharedHost { landlock_abi } => vec![Surroundings::SharedHost { landlock_abi }],
    }
}

#[test]
fn argument_rules_have_allowed_and_denied_cases() {
    for surroundings in SURROUNDINGS {
        let mut cases: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
        for case in CASES
            .iter()
            .filter(|case| surroundings_of(case).contains(&surroundings))
        {
            let (allowed, denied) = cases.entry(case.syscall).or_default();
            *allowed |= case.errno.is_none();
            *denied |= case.errno.is_some();
        }
        for (name, rule) in Preset::of(surroundings).guest {
            let of_arguments = match rule.verdict {
                Verdict::AllowIf { .. } => true,
                Verdict::AskIf { checks, .. } => !checks.is_empty(),
                Verdict::Allow | Verdict::Refuse { .. } => false,
            };
            if of_arguments {
                assert_eq!(
                    cases.get(name),
                    Some(&(true, true)),
                    "{name} in {surroundings:?}"
                );
            }
        }
    }
}
