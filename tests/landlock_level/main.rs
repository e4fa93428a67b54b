//! Level `landlock` in the kernel, as root and as an ordinary user, on a host without namespaces.

mod life;
mod older;
mod reach;
mod runs;
mod situation;

use libtest_mimic::{Arguments, Failed, Trial};
use sandfork::sys::support::landlock_abi;

use situation::Who;

type Test = fn(Who) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("hello", life::hello),
    ("the_default_is_refused", life::the_default_is_refused),
    ("ordinary_programs_work", life::ordinary_programs_work),
    ("a_program_runs", life::a_program_runs),
    ("endings", life::endings),
    (
        "limits_hold_for_all_processes_together",
        life::limits_hold_for_all_processes_together,
    ),
    (
        "a_daemon_is_gone_after_the_run",
        life::a_daemon_is_gone_after_the_run,
    ),
    (
        "a_daemon_is_gone_after_a_timeout",
        life::a_daemon_is_gone_after_a_timeout,
    ),
    ("a_fork_bomb_is_ended", life::a_fork_bomb_is_ended),
    (
        "files_are_limited_and_removed",
        life::files_are_limited_and_removed,
    ),
    (
        "nothing_that_a_guest_made_is_left",
        life::nothing_that_a_guest_made_is_left,
    ),
    (
        "a_killed_supervisor_leaves_nothing",
        life::a_killed_supervisor_leaves_nothing,
    ),
    (
        "a_killed_helper_leaves_nothing",
        life::a_killed_helper_leaves_nothing,
    ),
    ("an_older_kernel_holds_too", life::an_older_kernel_holds_too),
    ("acts_are_refused", reach::acts_are_refused),
    (
        "the_guest_is_unprivileged",
        reach::the_guest_is_unprivileged,
    ),
    ("a_shown_place_is_refused", reach::a_shown_place_is_refused),
];

fn main() {
    let mut arguments = std::env::args();
    match arguments.nth(1).as_deref() {
        Some(situation::FLAG) => situation::main(arguments),
        Some(older::FLAG) => older::main(arguments),
        _ => {}
    }
    let ignored = reason_to_ignore();
    let trials = [Who::Root, Who::User]
        .into_iter()
        .flat_map(|who| {
            TESTS.iter().map(move |(name, test)| {
                Trial::test(format!("{name} as {}", who.name()), move || test(who))
                    .with_ignored_flag(ignored.is_some())
                    .with_kind(ignored.unwrap_or(""))
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// From what the machine is, never from a run that failed.
fn reason_to_ignore() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root can be both users");
    }
    landlock_abi()
        .is_err()
        .then_some("this kernel has no Landlock")
}
