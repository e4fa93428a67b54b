//! The open controls: each runs an attempt without a sandbox, where it must succeed. A probe whose
//! attempt fails without a sandbox proves nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::account::User;
use crate::capture::capture;
use crate::one_sandbox::PREVIOUS;
use crate::probe::{HostCheck, Judge, OpenMode, Probe, ProvenOpen, Schedule};
use crate::verdict::escapes;
use crate::world::{Party, RunDirectory, World, value_of};
use crate::{BAIT_STDIN, quiet};

/// Attempts of a probe that measures CPU time: other processes may disturb a measurement.
const MEASUREMENTS: usize = 5;

/// The prefix that runs a command as the first process of a pid namespace.
const PROCESS_ONE: [&str; 6] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--mount-proc",
];

type Results = Arc<Mutex<HashMap<User, Result<(), String>>>>;

/// Results by probe and user. The controls of one probe run one user at a time, because some of
/// them use names that are global to the machine.
#[derive(Default)]
pub struct Controls {
    results: Mutex<HashMap<String, Results>>,
}

impl Controls {
    /// Checks that the attempt succeeds without a sandbox. The result is computed once and cached.
    pub fn check(&self, world: &World, probe: &Probe, user: User) -> Result<(), String> {
        let user = control_user(probe, user);
        let results = {
            let mut all = self.results.lock().expect("no control panics");
            Arc::clone(all.entry(probe.header.id.clone()).or_default())
        };
        let mut results = results.lock().expect("no control panics");
        results
            .entry(user)
            .or_insert_with(|| run(world, probe, user))
            .clone()
    }
}

/// Returns the user whose open control is valid for `user`.
pub fn control_user(probe: &Probe, user: User) -> User {
    match probe.header.proven_open {
        ProvenOpen::Root => User::Root,
        ProvenOpen::User => user,
    }
}

fn run(world: &World, probe: &Probe, user: User) -> Result<(), String> {
    let party = world.party(user).ok_or("its open control needs root")?;
    let alone = probe.header.schedule == Schedule::Alone;
    let mut left = if alone { MEASUREMENTS } else { 1 };
    let printed = loop {
        if alone {
            // Even a busy machine may have two idle CPUs for a moment.
            quiet::wait();
        }
        let printed = output(world, probe, party)?;
        if escapes(&printed).next().is_some() {
            return Ok(());
        }
        left -= 1;
        if left == 0 {
            break printed;
        }
    };
    Err(format!(
        "the attempt fails without a sandbox, so it proves nothing: {}",
        printed.trim()
    ))
}

fn output(world: &World, probe: &Probe, party: &Party) -> Result<String, String> {
    let directory = world.run_directory(&party.account)?;
    if probe.header.judge == Judge::Host {
        return naive_host(world, probe, party, &directory);
    }
    match probe.header.open_mode {
        OpenMode::Zygote => naive_runner(world, probe, party, &directory, "zygote"),
        OpenMode::Inproc => naive_runner(world, probe, party, &directory, "inproc"),
        OpenMode::Tools => naive_runner(world, probe, party, &directory, "tools"),
        OpenMode::ZygoteTwins => naive_runner(world, probe, party, &directory, "zygote-twins"),
        OpenMode::TwoTenants => naive_tenants(world, probe, party, &directory),
        OpenMode::User => processes(probe, party, &directory, &[]),
        OpenMode::Pty => {
            let pty = world.script("pty.py");
            processes(probe, party, &directory, &[&party.account.python, &pty])
        }
        OpenMode::Pid1 => processes(probe, party, &directory, &PROCESS_ONE.map(Path::new)),
        OpenMode::NestedUserns => {
            let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
            processes(probe, party, &directory, &unshare.map(Path::new))
        }
    }
}

/// Runs each run of the probe in its own process, which the command `prefix` starts.
fn processes(
    probe: &Probe,
    party: &Party,
    directory: &RunDirectory,
    prefix: &[&Path],
) -> Result<String, String> {
    let mut output = String::new();
    for run in 1..=probe.header.runs {
        let program = directory.program(probe, party, run, &value_of(&output))?;
        let mut arguments = prefix.to_vec();
        arguments.extend([&*party.account.python, &*program]);
        output = execute(probe, party, directory, &arguments)?;
    }
    Ok(output)
}

/// Executes all runs of the probe in one naive service.
fn naive_runner(
    world: &World,
    probe: &Probe,
    party: &Party,
    directory: &RunDirectory,
    mode: &str,
) -> Result<String, String> {
    let script = world.script("naive_runner.py");
    let mut arguments = Vec::new();
    if probe.header.open_mode == OpenMode::ZygoteTwins {
        arguments.extend(PROCESS_ONE.map(PathBuf::from));
    }
    arguments.extend([party.account.python.clone(), script, PathBuf::from(mode)]);
    arguments.extend(programs(probe, party, directory)?);
    execute(probe, party, directory, &arguments)
}

/// Executes the runs in two processes at the same time.
fn naive_tenants(
    world: &World,
    probe: &Probe,
    party: &Party,
    directory: &RunDirectory,
) -> Result<String, String> {
    let script = world.script("naive_tenants.py");
    let mut arguments = vec![party.account.python.clone(), script];
    arguments.extend(programs(probe, party, directory)?);
    execute(probe, party, directory, &arguments)
}

/// Writes the program of every run. Each run receives the `VALUE` of the previous one.
fn programs(
    probe: &Probe,
    party: &Party,
    directory: &RunDirectory,
) -> Result<Vec<PathBuf>, String> {
    let program = |run| {
        let previous = if run == 1 { "" } else { PREVIOUS };
        directory.program(probe, party, run, previous)
    };
    (1..=probe.header.runs).map(program).collect()
}

fn naive_host(
    world: &World,
    probe: &Probe,
    party: &Party,
    directory: &RunDirectory,
) -> Result<String, String> {
    let check = match probe.header.host_check {
        Some(HostCheck::NextRunServed) => "parse",
        Some(HostCheck::OutputDecoded) => "decode",
        Some(HostCheck::NoCanaryCollected) => "collect",
        Some(HostCheck::UploadStaysInside) => "upload",
        Some(HostCheck::FrameRefused) => "frame",
        Some(HostCheck::TerminalUnmoved) => "terminal",
        Some(HostCheck::LogUnforged) => "log",
        Some(HostCheck::NothingSurvives) | None => return Err("no naive host for it".to_owned()),
    };
    let program = directory.program(probe, party, 1, "")?;
    let python = party.account.python.as_path();
    let script = world.script("naive_host.py");
    let bait = |name| Path::new(&party.bait.variables[name]);
    let check = Path::new(check);
    let arguments = [
        python,
        &script,
        check,
        bait("CANARY"),
        bait("MARKER_DIR"),
        python,
        &program,
    ];
    execute(probe, party, directory, &arguments)
}

fn execute<P: AsRef<Path>>(
    probe: &Probe,
    party: &Party,
    directory: &RunDirectory,
    arguments: &[P],
) -> Result<String, String> {
    let arguments: Vec<_> = arguments
        .iter()
        .map(|path| path.as_ref().as_os_str())
        .collect();
    let mut command = party.account.command(probe.header.launch, &arguments);
    command.current_dir(&directory.work);
    Ok(capture(command, BAIT_STDIN)?.output())
}
