//! Implements `sandfork run` and `sandfork exec`: runs one guest and returns its exit code.

use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use crate::outcome::Ending;
use crate::policy::{Policy, Stdin};
use crate::{Cancel, Lifetime, Request, Sandbox};

use super::args::{ExecArguments, GuestOptions, RunArguments};
use super::denials::Shown;
use super::env::provide;
use super::failure::{Failure, say};
use super::hint::Surroundings;
use super::interrupt::Interrupts;
use super::policy::chosen;
use super::print_json;
use super::report::{explain, sentence};
use super::streams::{Guest, Streams};
use super::target::Target;
use super::terminal::harmless;
use super::transfer::{Outputs, with_inputs};
use super::tty::Tty;

/// The override that `-i` sets.
const PASS_STDIN: &str = "stdio.stdin=pass";

/// Runs a script, a module or code.
pub fn run(arguments: RunArguments) -> Result<u8, Failure> {
    let target = Target::load(&arguments.target)?;
    arguments.target.misplaced(|_, _| false).as_deref().map(say);
    let mut options = arguments.options;
    if arguments.terminal || options.transfer.passes_stdin {
        options.policy.overrides.push(PASS_STDIN.to_owned());
    }
    let tty = arguments.terminal.then(Tty::prepare).transpose()?;
    if let Some(project) = &target.project {
        let set = format!("python.project={}", project.display());
        options.policy.overrides.push(set);
    }
    let policy = chosen(&options.policy)?;
    let project = policy.python.project.as_ref();
    let writable = policy.filesystem.write.iter();
    let around = Surroundings {
        is_shown: project.is_some_and(|project| target.beside.starts_with(&project.value)),
        writable: writable
            .filter(|_| nix::unistd::geteuid().is_root())
            .map(|path| path.value.clone())
            .collect(),
        beside: target.beside,
        stdin: policy.stdin,
        // Without a current directory, no relative path is found.
        current: std::env::current_dir().unwrap_or_default(),
        arguments: arguments.target.arguments(),
        given: options.transfer.inputs.clone(),
    };
    let policy = match target.script {
        Some(script) => policy.with_script(script),
        None => policy,
    };
    launch(
        target.request,
        &policy,
        &options,
        tty,
        "the script",
        &around,
    )
}

/// Runs a program.
pub fn exec(arguments: ExecArguments) -> Result<u8, Failure> {
    let program = arguments.argv.first().cloned().unwrap_or_default();
    let own = arguments.argv.iter().skip(1).cloned().collect();
    let request = Request::program(arguments.argv);
    let mut options = arguments.options;
    if arguments.terminal || options.transfer.passes_stdin {
        options.policy.overrides.push(PASS_STDIN.to_owned());
    }
    let tty = arguments.terminal.then(Tty::prepare).transpose()?;
    let policy = chosen(&options.policy)?;
    let current = std::env::current_dir().unwrap_or_default();
    let around = Surroundings {
        beside: current.clone(),
        current,
        is_shown: false,
        stdin: policy.stdin,
        writable: Vec::new(),
        arguments: own,
        given: options.transfer.inputs.clone(),
    };
    launch(request, &policy, &options, tty, &program, &around)
}

/// Runs the guest. Messages call it `guest`.
fn launch(
    request: Request,
    policy: &Policy,
    options: &GuestOptions,
    tty: Option<Tty>,
    guest: &str,
    around: &Surroundings,
) -> Result<u8, Failure> {
    provide(policy)?;
    let cancel = Cancel::new().map_err(Failure::Setup)?;
    let to_end = cancel.clone();
    let interrupts = Interrupts::take(move || to_end.cancel()).map_err(Failure::Setup)?;
    let outputs = Arc::new(Outputs::new(&options.transfer, policy)?);
    let request = with_inputs(request, &options.transfer.inputs, policy)?;
    let mut request = request.cancel(&cancel);
    if !options.json {
        request = request.without_value();
    }
    let denials = reported_denials(options);
    // JSON may be read by someone else, so host paths are checked only if `--explain` asks for it.
    if denials.is_some_and(|shown| shown == Shown::All || !options.json) {
        request = request.ask_host();
    }
    if !outputs.is_empty() {
        let outputs = Arc::clone(&outputs);
        request = request.collect(move |work, outcome| outputs.collect(work, outcome));
    }
    if tty.is_none() && policy.stdin == Stdin::Pass {
        request = request.stdin(copied_stdin().map_err(Failure::Setup)?);
    }
    let sandbox = Sandbox::builder()
        .policy(policy.clone())
        .lifetime(Lifetime::OneRun)
        .build()?;
    interrupts.set_running();
    if options.json {
        let outcome = sandbox.run(request)?;
        print_json(&outcome)?;
        return outputs.exit_code(&outcome);
    }
    let draws = tty.as_ref().map_or(Guest::Prints, |_| Guest::Draws);
    let mut streams = Streams::new(cancel.clone(), draws);
    let (request, raw) = match tty {
        Some(tty) => tty
            .connect(request, &cancel)
            .map(|(request, raw)| (request, Some(raw)))?,
        None => (request, None),
    };
    let outcome = sandbox.run_streaming(request, &mut streams)?;
    let traceback = match (outcome.ending(), outcome.error()) {
        (Ending::Exception | Ending::Limit(_), Some(error)) => error.traceback.as_str(),
        _ => "",
    };
    match raw {
        None => {
            streams.show_traceback(traceback);
            streams.finish()?;
        }
        Some(raw) => {
            streams.finish()?;
            // The following output is the command's own.
            drop(raw);
            _ = write!(io::stderr(), "{}", harmless(traceback));
        }
    }
    let sentence = sentence(&outcome, policy, guest);
    let hint = around.hint(&outcome);
    explain(&outcome, sentence.as_ref(), hint.as_ref(), denials);
    outputs.exit_code(&outcome)
}

/// Returns which refusals the command reports.
fn reported_denials(options: &GuestOptions) -> Option<Shown> {
    // A person at a terminal can act on them. A file should have the guest's output only.
    let first = io::stderr().is_terminal().then_some(Shown::First);
    options.explain.then_some(Shown::All).or(first)
}

/// Copies the command's stdin through a pipe. Passing the descriptor itself would give the guest the caller's terminal,
/// or a file of which the caller meant to pass only the contents.
fn copied_stdin() -> io::Result<OwnedFd> {
    let (reader, mut writer) = io::pipe()?;
    // The thread is not joined, because it may block on input that never comes.
    thread::Builder::new().spawn(move || io::copy(&mut io::stdin().lock(), &mut writer))?;
    Ok(reader.into())
}
