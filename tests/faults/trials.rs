//! The tests: calls that fail, steps that are skipped, processes that are killed, resources that are lost.

use std::cell::RefCell;
use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use nix::unistd::geteuid;
use sandfork::Level;

use crate::bench::Bench;
use crate::found::Found;
use crate::kills::{KILLS, Kill};
use crate::sabotage::LEFT_OUT;
use crate::scale::Scale;
use crate::set_up::{BUILD, FAILED, Part, RUN};
use crate::setting::Setting;
use crate::{apart, common, copies, family, kills, losses, sabotage, set_up, situation, subject};

/// Runs the tests.
pub fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some(situation::FLAG) {
        situation::main(env::args().skip(2));
    }
    if let Some(settings) = subject::requested() {
        return subject::run(&settings);
    }
    // Mounts that other processes make meanwhile must not be counted.
    if geteuid().is_root() {
        assert!(apart::have_own_mounts(), "root may have them");
    }
    // One at a time, on the thread that traces.
    let arguments = Arguments {
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    let conclusion = libtest_mimic::run(&arguments, trials(Scale::from_environment()));
    // Ends the remaining processes; `exit` would not run the destructors.
    drop(BENCH.take());
    conclusion.exit_code()
}

fn trials(scale: Scale) -> Vec<Trial> {
    let parts = BUILD.into_iter().chain(RUN);
    let fails = parts.clone().map(|part| {
        let name = format!("fails::{}::{}", part.command, part.role);
        measured(name, Setting::Best, move |bench, found| {
            fail_in_turn(bench, part, scale, found);
        })
    });
    let left_out = parts
        .filter(|part| part.role != family::Role::Supervisor)
        .map(|part| {
            let name = format!("left_out::{}::{}", part.command, part.role);
            measured(name, Setting::Best, move |bench, found| {
                leave_out(bench, part, scale, found);
            })
        });
    let killed = KILLS.map(|kill| {
        measured(kill.name(), kill.setting, move |bench, found| {
            strike(bench, kill, scale, found);
        })
    });
    let copies = copies::ROLES.map(|role| {
        let name = format!("fails::copies::{role}");
        measured(name, Setting::Best, move |bench, found| {
            copies::fail_in_turn(bench, role, scale, found);
        })
    });
    let lost = losses::LOSSES.map(|(name, loss)| {
        trial(format!("lost::{name}"), Setting::Best, move |bench| {
            loss(bench)?;
            bench.ask("close other");
            bench.settled();
            Ok(())
        })
    });
    let mut trials: Vec<Trial> = fails
        .chain(copies)
        .chain(left_out)
        .chain(killed)
        .chain(lost)
        .collect();
    if scale == Scale::Ci {
        trials.retain(|trial| is_in_ci(trial.name()));
    }
    trials
}

/// Returns whether the test runs in CI: these take seconds and cover what the others cover.
fn is_in_ci(name: &str) -> bool {
    const FAILS_AND_KILLS: [&str; 10] = [
        "fails::build::launcher",
        "fails::build::init",
        "fails::run::worker",
        "fails::copies::attendant",
        "fails::copies::worker",
        "killed::best::worker_at_worker_in_session",
        "killed::best::zygote_at_worker_in_session",
        "killed::best::supervisor_at_worker_in_session",
        "killed::best::supervisor_at_attendant_in_copies",
        "killed::no_namespaces::supervisor_at_worker_in_session",
    ];
    name.starts_with("left_out::") || name.starts_with("lost::") || FAILS_AND_KILLS.contains(&name)
}

/// Makes a test that reuses the supervisor of the previous one, as long as that one passed.
fn trial(
    name: String,
    setting: Setting,
    test: impl FnOnce(&mut Bench) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let obstacle = move || setting.obstacle();
    common::trial_unless(name, Level::Standard, obstacle, move || {
        let last = BENCH.take().filter(|bench| bench.setting() == setting);
        let mut bench = last.unwrap_or_else(|| Bench::new(setting));
        test(&mut bench)?;
        BENCH.set(Some(bench));
        Ok(())
    })
}

/// Makes a test that reports its results.
fn measured(
    name: String,
    setting: Setting,
    test: impl FnOnce(&mut Bench, &mut Found) + Send + 'static,
) -> Trial {
    let mut found = Found {
        test: name.clone(),
        ..Found::default()
    };
    trial(name, setting, move |bench| {
        test(bench, &mut found);
        found.report();
        match &found.wrong[..] {
            [] => Ok(()),
            wrong => Err(wrong.join("\n").into()),
        }
    })
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

fn fail_in_turn(bench: &mut Bench, part: Part, scale: Scale, found: &mut Found) {
    bench.ready();
    let calls = part.calls(&bench.record(part.command, part.role));
    let faults: Vec<_> = calls
        .iter()
        .flat_map(|call| set_up::acts(call).into_iter().map(move |act| (*call, act)))
        .collect();
    found.calls = calls.len();
    bench.settled();
    for (call, act) in scale.of(&faults, 4, usize::MAX) {
        set_up::put(bench, part, &call, act, FAILED, found);
    }
}

fn leave_out(bench: &mut Bench, part: Part, scale: Scale, found: &mut Found) {
    bench.ready();
    let calls = part.calls(&bench.record(part.command, part.role));
    let steps: Vec<_> = calls
        .iter()
        .filter_map(|call| Some((*call, sabotage::skipped_step(call)?)))
        .collect();
    found.calls = calls.len();
    bench.settled();
    for (call, act) in scale.of(&steps, 7, usize::MAX) {
        set_up::put(bench, part, &call, act, LEFT_OUT, found);
    }
}

fn strike(bench: &mut Bench, kill: Kill, scale: Scale, found: &mut Found) {
    bench.ready();
    found.calls = bench.record(kill.command, kill.clock).len();
    let points: Vec<usize> = (1..=found.calls).collect();
    bench.settled();
    for nth in scale.of(&points, 2, kill.most) {
        kills::strike(bench, kill, nth, found);
    }
}
