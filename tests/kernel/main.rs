//! Tests that need the kernel: real guests in real sandboxes, as the current user.
//!
//! `cargo xtask test` creates the environments that some of them need and runs them as root and as an
//! ordinary user. To run one test, give part of its name: `cargo test --test kernel -- oom_kill`.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test program"
)]

#[path = "../common/census/mod.rs"]
#[allow(dead_code, reason = "what other tests count is there too")]
mod census;
#[path = "../common/guests.rs"]
mod guests;
#[path = "../common/hidden.rs"]
mod hidden;

mod apart;
mod bad_input;
mod batch;
mod cgroups;
mod check;
mod compat;
mod concurrency;
mod cost;
mod egress;
mod environment;
mod fonts;
mod humaneval;
mod kept;
mod leftovers;
mod long_policies;
mod loopback;
mod machine;
mod need;
mod openings;
mod ordinary;
mod outcomes;
mod packages;
mod pool;
mod precedence;
#[path = "../common/programs.rs"]
mod programs;
mod recipe;
mod sessions;
mod starts;
mod test;
#[path = "../common/threads.rs"]
mod threads;
#[path = "../common/traced.rs"]
#[allow(dead_code, reason = "what other tracers do is there too")]
mod traced;
mod turnover;
mod world;
mod write_signals;

use std::process::ExitCode;
use std::sync::Arc;

use world::World;

fn main() -> ExitCode {
    // One line for each panic; the summary repeats the failures.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    if let Some(part) = apart::requested() {
        return apart::run_part(&part);
    }
    let arguments = threads::arguments();
    let world = match World::probe() {
        Ok(world) => Arc::new(world),
        Err(error) => {
            eprintln!("kernel tests: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The longest test starts first.
    let mut tests = bad_input::interpreters::waiting();
    tests.extend(outcomes::tests());
    tests.extend(bad_input::tests(&world));
    tests.extend(batch::tests());
    tests.extend(cgroups::tests());
    tests.extend(compat::tests(&world));
    tests.extend(concurrency::tests());
    tests.extend(cost::tests());
    tests.extend(egress::tests(&world));
    tests.extend(environment::tests());
    tests.extend(fonts::tests());
    tests.extend(ordinary::tests());
    tests.extend(humaneval::tests());
    tests.extend(leftovers::tests());
    tests.extend(long_policies::tests());
    tests.extend(loopback::tests(&world));
    tests.extend(machine::tests());
    tests.extend(packages::tests());
    tests.extend(pool::tests());
    tests.extend(openings::tests());
    tests.extend(precedence::tests());
    tests.extend(sessions::tests());
    tests.extend(kept::tests());
    tests.extend(starts::tests());
    tests.extend(turnover::tests());
    tests.extend(write_signals::tests());
    // Repeats the outcome tests with the Python implementation of the worker loop only.
    let by_python = Arc::new(world.by_python());
    let again = outcomes::tests().into_iter().map(|test| {
        let test = test.named(|name| name.replacen("outcomes", "outcomes_by_python", 1));
        test.into_trial(&by_python)
    });
    let trials = tests.into_iter().map(|test| test.into_trial(&world));
    let trials = trials.chain(again).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Drops the shared sandboxes; `exit` would not run the destructors.
    drop((world, by_python));
    conclusion.exit_code()
}
