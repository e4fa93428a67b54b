//! The escape tests: every probe under `probes/` runs first without a sandbox, where it must
//! succeed, and then inside one, where it must fail for a reason that the probe allows.
//!
//! `README.md` in this directory documents how to run them and how to write a probe.

#![allow(missing_docs, clippy::expect_used, reason = "a test binary")]

mod account;
mod bait;
#[path = "../common/capabilities.rs"]
mod capabilities;
mod capture;
mod control;
mod doctor;
mod host_check;
mod left_over;
mod need;
mod one_sandbox;
mod probe;
mod quiet;
mod report;
mod sandboxed;
mod verdict;
mod world;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use account::User;
use doctor::{Skip, skip_control, skip_copies, skip_sandboxed};
use probe::{Probe, Schedule};
use report::{End, Report};
use sandboxed::Place;
use verdict::Verdict;
use world::World;

/// The policies under which a probe runs by default.
const POLICIES: [&str; 2] = ["strict", "standard"];
/// The policy of sessions that are copied or that run programs.
const COPIED: &str = "standard";
/// The number of probes, so that none is lost: 76 of the reference set, the rest of this repository.
const PROBES: usize = 211;
/// The stdin of every launcher, which its guest must not be able to read.
const BAIT_STDIN: &str = "BAIT-STDIN\n";
/// More threads than CPUs are useful: most of the time passes in waiting for limits.
const THREADS: usize = 4;

/// State that all tests share. The first test creates it.
#[derive(Default)]
struct Shared {
    world: OnceLock<Result<World, String>>,
    report: Report,
}

fn main() -> ExitCode {
    let mut own = std::env::args_os().skip(1).peekable();
    if own.peek().is_some_and(one_sandbox::is_selected) {
        return one_sandbox::main(own);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(THREADS));
    let probes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/escape/probes");
    let probes = match probe::load(&probes) {
        Ok(probes) if probes.len() == PROBES => probes,
        Ok(probes) => return fail(&format!("{} probes instead of {PROBES}", probes.len())),
        Err(error) => return fail(&error),
    };
    if let Err(error) = left_over::adopt() {
        return fail(&error);
    }
    let shared = Arc::new(Shared::default());
    let conclusion = libtest_mimic::run(&arguments, trials(probes, &shared));
    if !shared.report.is_empty() {
        print!("{}", shared.report);
    }
    let left = left_over::none();
    // Stops the bait and removes the directories; `exit` would not run the destructors.
    drop(shared);
    match left {
        Err(left) => fail(&left),
        Ok(()) => conclusion.exit_code(),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("escape tests: {message}");
    ExitCode::FAILURE
}

fn trials(probes: Vec<Probe>, shared: &Arc<Shared>) -> Vec<Trial> {
    let mut trials: Vec<Trial> = verdict::self_tests()
        .into_iter()
        .map(|(name, test)| Trial::test(format!("judge::{name}"), move || Ok(test()?)))
        .collect();
    for probe in probes.into_iter().map(Arc::new) {
        for user in User::all() {
            if control::control_user(&probe, user) == user {
                trials.push(control_trial(&probe, user, shared));
            }
            for policy in &probe.header.policies {
                trials.push(sandboxed_trial(&probe, policy, user, Place::Worker, shared));
            }
            if probe.runs_in_copies(COPIED) {
                trials.push(sandboxed_trial(&probe, COPIED, user, Place::Copy, shared));
            }
            if probe.runs_as_program(COPIED) {
                trials.push(sandboxed_trial(
                    &probe,
                    COPIED,
                    user,
                    Place::Program,
                    shared,
                ));
            }
        }
    }
    trials
}

fn control_trial(probe: &Arc<Probe>, user: User, shared: &Arc<Shared>) -> Trial {
    let name = format!("{}::{}::{}", probe.class, probe.name, user.name());
    let (probe, shared) = (Arc::clone(probe), Arc::clone(shared));
    let run = move || {
        let world = shared.world()?;
        match skip_control(&probe, user, world.party(user)) {
            Some(skip) => ignore(skip),
            None => quietly(world, &probe, || {
                Ok(world.controls.check(world, &probe, user)?)
            }),
        }
    };
    Trial::ignorable_test(name, run).with_kind("open")
}

fn sandboxed_trial(
    probe: &Arc<Probe>,
    policy: &str,
    user: User,
    place: Place,
    shared: &Arc<Shared>,
) -> Trial {
    let name = format!("{}::{}::{}", probe.class, probe.name, user.name());
    let (probe, shared, policy) = (Arc::clone(probe), Arc::clone(shared), policy.to_owned());
    let kind = match place {
        Place::Worker => policy.clone(),
        Place::Copy => format!("{policy}, in copies"),
        Place::Program => format!("{policy}, as a program"),
    };
    let run = move || {
        let world = shared.world()?;
        let party = world.party(user).ok_or("no such user")?;
        let skip = skip_control(&probe, user, Some(party))
            .or_else(|| skip_sandboxed(party))
            .or_else(|| skip_copies(place));
        if let Some(skip) = skip {
            shared.report.count(&probe.class, End::Ignored);
            return ignore(skip);
        }
        quietly(world, &probe, || {
            let (end, result) = attempt(world, &probe, &policy, user, place);
            shared.report.count(&probe.class, end);
            Ok(result?)
        })
    };
    Trial::ignorable_test(name, run).with_kind(kind)
}

fn attempt(
    world: &World,
    probe: &Probe,
    policy: &str,
    user: User,
    place: Place,
) -> (End, Result<(), String>) {
    if let Err(error) = world.controls.check(world, probe, user) {
        return (End::ControlFailed, Err(format!("open control: {error}")));
    }
    if probe.header.schedule == Schedule::Alone {
        quiet::wait();
    }
    let header = &probe.header;
    let open = header.not_promised.is_some() && header.promised_of != Some(user);
    match sandboxed::run(world, probe, policy, user, place) {
        Ok(Verdict::Contained) if open => (
            End::Unexplained,
            Err("it is held: let SECURITY.md promise that".to_owned()),
        ),
        Ok(Verdict::Contained) => (End::Contained, Ok(())),
        Ok(Verdict::Escaped(_)) if open => (End::NotPromised, Ok(())),
        Ok(Verdict::Escaped(how)) => (End::Escaped, Err(how)),
        Ok(Verdict::Unexplained(what)) => (
            End::Unexplained,
            Err(format!("held, but for no reason that it allows: {what}")),
        ),
        Err(error) => (End::Unexplained, Err(error)),
    }
}

/// Runs `test` beside other tests, or alone if the probe measures the CPUs.
fn quietly(
    world: &World,
    probe: &Probe,
    test: impl FnOnce() -> Result<(), Failed>,
) -> Result<Completion, Failed> {
    let poisoned = "another test panicked";
    match probe.header.schedule {
        Schedule::Shared => {
            let _others = world.quiet.read().map_err(|_| poisoned)?;
            test()?;
        }
        Schedule::Alone => {
            let _alone = world.quiet.write().map_err(|_| poisoned)?;
            test()?;
        }
    }
    Ok(Completion::Completed)
}

/// Skips the test with the reason. Fails instead if the skip is mendable and the caller forbids such skips.
fn ignore(skip: Skip) -> Result<Completion, Failed> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match skip {
        Skip::Mendable(reason) if is_set("CI") && is_set("SANDFORK_FORBID_SKIPS") => {
            Err(format!("may not be skipped here: {reason}").into())
        }
        Skip::Mendable(reason) | Skip::Forced(reason) => Ok(Completion::ignored_with(reason)),
    }
}

impl Shared {
    fn world(&self) -> Result<&World, Failed> {
        self.world
            .get_or_init(World::new)
            .as_ref()
            .map_err(Failed::from)
    }
}
