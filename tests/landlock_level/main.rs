//! Tests of level `landlock`, as root and as an ordinary user, on a host without namespaces.

// All tests have the same signature.
#![allow(clippy::unnecessary_wraps)]

#[path = "../common/apart.rs"]
mod apart;
#[path = "../common/capabilities.rs"]
mod capabilities;
#[path = "../common/hidden.rs"]
mod hidden;

mod death;
mod endings;
mod files;
mod older;
mod processes;
mod reach;
mod runs;
mod sessions;
mod situation;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::unistd::geteuid;
use sandfork_jail::sys::support::landlock_abi;

use situation::Who;

type Test = fn(Who) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("hello", endings::hello),
    (
        "higher_levels_are_refused",
        endings::higher_levels_are_refused,
    ),
    ("ordinary_programs_work", endings::ordinary_programs_work),
    ("a_program_runs", endings::a_program_runs),
    ("endings", endings::endings),
    (
        "limits_hold_for_all_processes_together",
        endings::limits_hold_for_all_processes_together,
    ),
    ("page_tables_count", endings::page_tables_count),
    ("shared_memory_counts", endings::shared_memory_counts),
    (
        "landlock_rules_are_counted_or_refused",
        endings::landlock_rules_are_counted_or_refused,
    ),
    (
        "a_daemon_is_gone_after_the_run",
        death::a_daemon_is_gone_after_the_run,
    ),
    (
        "a_daemon_is_gone_after_a_timeout",
        death::a_daemon_is_gone_after_a_timeout,
    ),
    ("a_fork_bomb_is_ended", death::a_fork_bomb_is_ended),
    (
        "files_are_limited_and_removed",
        files::files_are_limited_and_removed,
    ),
    (
        "files_of_the_guest_are_removed",
        files::files_of_the_guest_are_removed,
    ),
    ("tasks_have_their_files", files::tasks_have_their_files),
    (
        "files_are_reached_from_outside",
        sessions::files_are_reached_from_outside,
    ),
    (
        "a_killed_supervisor_leaves_nothing",
        death::a_killed_supervisor_leaves_nothing,
    ),
    (
        "a_killed_helper_leaves_nothing",
        death::a_killed_helper_leaves_nothing,
    ),
    (
        "older_kernel_confines_too",
        death::older_kernel_confines_too,
    ),
    ("acts_are_refused", reach::acts_are_refused),
    (
        "the_guest_is_unprivileged",
        reach::the_guest_is_unprivileged,
    ),
    ("shown_tmpdir_is_rejected", reach::shown_tmpdir_is_rejected),
];

/// Tests that only root can prepare.
const PREPARED_BY_ROOT: &[(&str, Test)] = &[(
    "full_disk_is_reported_as_the_hosts",
    files::full_disk_is_reported_as_the_hosts,
)];

/// The bit of CAP_SYS_ADMIN in a capability set (linux/capability.h).
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Tests that must not depend on what the host's `/proc` shows. Only root can mount another.
const OTHER_PROCS: &[(Who, &str, Test)] = &[
    (Who::UserOfBareProc, "hello", endings::hello),
    (
        Who::UserOfHiddenProc,
        "limits_hold_for_all_processes_together",
        endings::limits_hold_for_all_processes_together,
    ),
    (
        Who::UserOfHiddenProcWithNamespaces,
        "the_memory_of_orphans_counts",
        endings::the_memory_of_orphans_counts,
    ),
    (
        Who::UserOfHiddenProcWithNamespaces,
        "shared_memory_counts",
        endings::shared_memory_counts,
    ),
];

fn main() {
    let mut arguments = std::env::args();
    match arguments.nth(1).as_deref() {
        Some(situation::FLAG) => situation::main(arguments),
        Some(older::FLAG) => older::main(arguments),
        Some(sessions::FLAG) => sessions::main(),
        _ => {}
    }
    // Only root can act as both users.
    let (users, prepared, others): (&[Who], _, _) = if geteuid().is_root() {
        (&[Who::Root, Who::User], PREPARED_BY_ROOT, OTHER_PROCS)
    } else {
        (&[Who::User], &[][..], &[][..])
    };
    let of_users = users.iter().flat_map(|who| {
        let tests = TESTS.iter().chain(prepared);
        tests.map(|(name, test)| (*who, *name, *test))
    });
    let trials = of_users
        .chain(others.iter().copied())
        .map(|(who, name, test)| {
            let name = format!("{name} as {}", who.name());
            Trial::ignorable_test(name, move || run(who, test))
        });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

/// Runs a test. It is skipped only if the machine lacks something, never because a run failed.
fn run(who: Who, test: Test) -> Result<Completion, Failed> {
    match landlock_abi() {
        Ok(_) if who.proc().is_some() && capabilities::effective() & CAP_SYS_ADMIN == 0 => {
            let reason = "root without CAP_SYS_ADMIN mounts no /proc";
            Ok(Completion::ignored_with(reason))
        }
        Ok(_) => test(who).map(|()| Completion::Completed),
        Err(errno) => Ok(Completion::ignored_with(format!("no Landlock: {errno}"))),
    }
}
