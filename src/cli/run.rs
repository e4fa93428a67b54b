//! `sandfork run` and `sandfork exec`: run one guest and return its exit code.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use crate::outcome::Ending;
use crate::policy::Stdin;
use crate::{Cancel, Lifetime, Request, Sandbox};

use super::args::{ExecArguments, OutputChoice, PolicyChoice, RunArguments};
use super::failure::{Failure, say};
use super::interrupt::Interrupts;
use super::policy::chosen;
use super::print_json;
use super::report::sentence;
use super::script::{Origin, Script};
use super::streams::Streams;

/// Runs a script.
pub fn run(arguments: RunArguments) -> Result<u8, Failure> {
    let origin = match (arguments.code, arguments.file) {
        (Some(code), _) => Origin::Code(code),
        (None, Some(path)) if path.as_os_str() != "-" => Origin::File(path),
        (None, _) => Origin::Stdin,
    };
    let script = Script::load(origin)?;
    let name = script.name.clone();
    let request = script.request().args(arguments.arguments);
    launch(&name, request, &arguments.policy, &arguments.output)
}

/// Runs a program.
pub fn exec(arguments: ExecArguments) -> Result<u8, Failure> {
    let program = arguments.argv.first().cloned().unwrap_or_default();
    let request = Request::program(arguments.argv);
    launch(&program, request, &arguments.policy, &arguments.output)
}

fn launch(
    guest: &str,
    request: Request,
    policy: &PolicyChoice,
    output: &OutputChoice,
) -> Result<u8, Failure> {
    let policy = chosen(policy)?;
    let cancel = Cancel::new().map_err(Failure::Setup)?;
    let to_end = cancel.clone();
    let interrupts = Interrupts::take(move || to_end.cancel()).map_err(Failure::Setup)?;
    let mut request = request.cancel(&cancel);
    if policy.stdin() == Stdin::Pass {
        request = request.stdin(copied_stdin().map_err(Failure::Setup)?);
    }
    let sandbox = Sandbox::builder()
        .policy(policy.clone())
        .lifetime(Lifetime::OneRun)
        .build()?;
    interrupts.end_what_runs();
    if output.json {
        let outcome = sandbox.run(request)?;
        print_json(&outcome)?;
        return Ok(outcome.exit_code());
    }
    let mut streams = Streams::new(cancel).map_err(Failure::Setup)?;
    let outcome = sandbox.run_streaming(request, &mut streams)?;
    if let (Ending::Exception | Ending::Limit(_), Some(error)) = (outcome.ending(), outcome.error())
    {
        streams.show_traceback(&error.traceback);
    }
    streams.finish()?;
    if let Some(sentence) = sentence(&outcome, &policy, guest) {
        say(&sentence);
    }
    Ok(outcome.exit_code())
}

/// Copies the command's stdin through a pipe. A descriptor of the caller would give the guest the
/// caller's terminal, or the whole of a file that the caller meant only to be read.
fn copied_stdin() -> io::Result<OwnedFd> {
    let (reader, mut writer) = io::pipe()?;
    // Not joined: it may wait for input from a person who types nothing more.
    thread::Builder::new().spawn(move || io::copy(&mut io::stdin().lock(), &mut writer))?;
    Ok(reader.into())
}
