//! Implements the command line: parses arguments, calls the library, and prints the result.

mod args;
mod complete;
mod denials;
mod drawing;
mod env;
mod failure;
mod hint;
mod interrupt;
mod learn;
mod log;
mod map;
mod plan;
mod policy;
mod report;
mod run;
mod script;
mod server;
mod shell;
mod streams;
mod target;
mod terminal;
mod tip;
mod transfer;
mod tty;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use crate::outcome::exit_code;
use args::{Arguments, Command};
use failure::Failure;
use sandfork_jail::sys::memory::keep_little;
use sandfork_jail::sys::process::{keep_exit_statuses, survive_file_size_limit};
use terminal::{HarmlessJson, harmless};

/// Runs the command line of this process.
pub fn command() -> ExitCode {
    complete::answer_shell();
    keep_little();
    // Neither call fails: both signals can be handled.
    _ = survive_file_size_limit();
    _ = keep_exit_statuses();
    match execute(Arguments::read()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

/// Runs the arguments' command, and returns the exit code.
fn execute(arguments: Arguments) -> Result<u8, Failure> {
    log::begin()?;
    match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Exec(arguments) => run::exec(arguments),
        Command::Learn(arguments) => learn::learn(&arguments),
        Command::Shell(arguments) => shell::shell(&arguments),
        Command::Map(arguments) => map::map(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Doctor(arguments) => plan::doctor(&arguments),
        Command::Policy(command) => policy::policy(command),
        Command::Env(command) => env::env(command),
        Command::Server(given) => server::server(None, &given.arguments),
        Command::Mcp(given) => server::server(Some("mcp"), &given.arguments),
        Command::Serve { control_fd } => serve(control_fd),
        Command::Completions { shell } => write(&complete::script(&shell.to_string())?),
    }
}

/// Serves another process until it closes its end of the socket.
fn serve(control_fd: i32) -> Result<u8, Failure> {
    let control = crate::serve::control_socket(control_fd);
    crate::serve::serve(&control).map_err(Failure::Setup)?;
    Ok(exit_code::OK)
}

/// Prints a command's result to stdout, and returns success. The text may quote file and policy names.
fn print(text: impl AsRef<str>) -> Result<u8, Failure> {
    if io::stdout().is_terminal() {
        write(harmless(text.as_ref()).as_bytes())
    } else {
        write(text.as_ref().as_bytes())
    }
}

fn write(bytes: &[u8]) -> Result<u8, Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()?;
    Ok(exit_code::OK)
}

/// Prints one JSON object and a newline.
fn print_json(value: &impl serde::Serialize) -> Result<u8, Failure> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer_pretty(HarmlessJson(&mut stdout), value);
    written.map_err(io::Error::from)?;
    stdout.write_all(b"\n")?;
    stdout.flush()?;
    Ok(exit_code::OK)
}
