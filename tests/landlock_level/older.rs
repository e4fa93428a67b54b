//! Runs a sandbox as on an older kernel: with a lower Landlock ABI than this kernel supports.

use std::process::exit;
use std::sync::Arc;

use sandfork::internals::host::{
    CgroupSupport, HostWithoutInterpreter, Interpreter, LandlockSupport,
};
use sandfork::internals::plan::{Grants, PRELOAD_ONLY, Plan, needs, plan};
use sandfork::internals::supervisor::session_dir::SessionRoot;
use sandfork::internals::supervisor::{
    AskHost, Entering, Launched, RunContext, Shelf, StartCache, run,
};
use sandfork::{CallerEnvironment, FileSystem, Override, Policy, PolicyIdentity, Request};
use sandfork_jail::control::PythonSetup;
use sandfork_jail::sys::support::landlock_abi;

use crate::runs::PYTHON;

/// The first argument of the helper. The ABI, the code and settings follow.
pub const FLAG: &str = "--with-landlock-abi";

/// The last ABI without a signal scope.
const ABI: u32 = 5;

/// Returns that ABI, or this kernel's if it is older.
pub fn abi() -> u32 {
    landlock_abi().map_or(ABI, |own| own.min(ABI))
}

/// Runs the code without a cgroup and prints the outcome.
pub fn main(mut arguments: impl Iterator<Item = String>) -> ! {
    let abi = arguments
        .next()
        .and_then(|abi| abi.parse().ok())
        .expect("an ABI");
    let code = arguments.next().expect("code");
    let settings: Vec<Override> = arguments
        .map(|setting| setting.parse().expect("a setting"))
        .collect();
    let outcome = run_under(abi, &code, &settings).unwrap_or_else(|error| {
        eprintln!("{error}");
        exit(125)
    });
    println!("{outcome}");
    exit(0)
}

fn run_under(
    abi: u32,
    code: &str,
    settings: &[Override],
) -> Result<String, Box<dyn std::error::Error>> {
    let policy = Policy::load("standard", settings, &FileSystem)?;
    let launched = Launched::start(PYTHON.as_ref())?;
    let interpreter = Interpreter::from_facts(&launched.facts, PYTHON.as_ref())?;
    let environment = CallerEnvironment::current();
    let cgroup = CgroupSupport::probe();
    let host = HostWithoutInterpreter::probe(cgroup, &needs(&policy), &environment)?;
    let mut host = host.with(interpreter);
    host.machine.landlock = LandlockSupport::Abi(abi);
    let plan = Plan {
        cgroup: None,
        ..plan(&policy, &host)?
    };
    let sessions = Arc::new(SessionRoot::create(&plan.jail)?);
    let python = PythonSetup {
        imports: plan.interpreter.imports.clone(),
        preload_env: PRELOAD_ONLY
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..PythonSetup::default()
    };
    let start = StartCache::in_memory();
    let entering = Entering::begin(launched, plan.jail.clone(), python, &start, None)?;
    let zygote = Arc::new(entering.serves(&start)?);
    let place = RunContext {
        zygote: &zygote,
        jail: &plan.jail,
        cgroups: None,
        egress: None,
        sessions: Some(&sessions),
        limits: plan.supervision.limits,
        policy: &PolicyIdentity::default(),
        first_core: 0,
        grants: &Grants::new(&policy, &plan),
        ask_host: AskHost::No,
        snapshots: &Shelf::default(),
        session: 0,
    };
    let outcome = run(&place, &Request::python(code), &mut ())?;
    Ok(serde_json::to_string(&outcome)?)
}
