//! Tests of the command: transcripts (`*.trycmd`, each a console session with its output), and tests of
//! behaviour that a transcript cannot show.
//!
//! `TRYCMD=overwrite cargo test --test cli` updates the transcripts.
#![allow(clippy::unwrap_used)]

mod behaviour;
mod complete;
mod environments;
mod killed_map;
mod learn;
mod map;
mod map_input;
mod origins;
mod program;
mod shell;
mod stop;
#[path = "../common/threads.rs"]
mod threads;
mod transfer;
mod tty;
mod uv;

use libtest_mimic::{Failed, Trial};
use sandfork::Policy;
use sandfork::internals::host;
use sandfork::internals::plan::{needs, plan};
use sandfork::internals::policy::PolicySettings as _;

fn main() {
    let mut trials = vec![transcripts("usage", "tests/cli/pure/*.trycmd")];
    let with_jail = std::iter::once(transcripts("runs", "tests/cli/jail/*.trycmd"))
        .chain(behaviour::trials())
        .chain(complete::trials())
        .chain(environments::trials())
        .chain(map::trials())
        .chain(map_input::trials())
        .chain(killed_map::trials())
        .chain(learn::trials())
        .chain(origins::trials())
        .chain(program::trials())
        .chain(shell::trials())
        .chain(stop::trials())
        .chain(transfer::trials())
        .chain(tty::trials())
        .chain(uv::trials_with_uv());
    match obstacle() {
        None => trials.extend(with_jail),
        Some(reason) => trials
            .extend(with_jail.map(|trial| trial.with_kind(reason.clone()).with_ignored_flag(true))),
    }
    libtest_mimic::run(&threads::arguments(), trials).exit();
}

fn transcripts(name: &str, files: &'static str) -> Trial {
    Trial::test(format!("transcripts::{name}"), move || {
        trycmd::TestCases::new().case(files);
        Ok(())
    })
}

/// Returns why this host cannot run guests under the default policy, if so.
fn obstacle() -> Option<String> {
    let policy = Policy::default();
    let interpreter = &policy.python().interpreter.value;
    match host::probe(interpreter, &needs(&policy)) {
        Ok(host) => plan(&policy, &host).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Makes a test of a function of a module.
fn trial(module: &str, name: &str, test: fn() -> Result<(), Failed>) -> Trial {
    let module = module.rsplit("::").next().unwrap_or_default();
    Trial::test(format!("{module}::{name}"), test)
}

/// Defines the module's `trials`, which returns these functions as tests.
macro_rules! trials {
    ($($test:ident,)+) => {
        /// Returns each function as a test.
        pub fn trials() -> impl Iterator<Item = libtest_mimic::Trial> {
            [$($crate::trial(module_path!(), stringify!($test), $test)),+].into_iter()
        }
    };
}
use trials;
