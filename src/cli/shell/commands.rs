//! Implements the shell's own commands: files in and out, and a new session.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::super::failure::say;
use super::super::print;
use super::super::terminal::harmless_line;
use crate::session::{Contents, Removal, Session};
use crate::supervisor::open_regular;

/// The commands without their `%`. Any other line that starts with `%` is sent to the guest.
pub const NAMES: [&str; 7] = ["put", "get", "files", "rm", "restart", "help", "quit"];

const HELP: &str = "\
%put LOCAL [NAME]    copy a file of the host into /work
%get NAME [LOCAL]    copy a file of /work to the host
%files [DIRECTORY]   list files of /work
%rm NAME             remove a file or directory of /work
%restart             start over: variables, imports and files are lost
%quit                quit, like Ctrl-D and exit
Ctrl-C interrupts the running code, Tab completes. An empty line ends a block.
";

/// The result of a line.
#[derive(Debug, Eq, PartialEq)]
pub enum Done {
    /// The line is not a shell command.
    Unknown,
    /// The command succeeded.
    Yes,
    /// The command failed.
    No,
    /// The shell should exit.
    Quit,
}

/// Returns the name and the arguments of a line that is a shell command.
pub fn named(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if let "exit" | "quit" | "exit()" | "quit()" = line {
        return Some(("quit", ""));
    }
    let rest = line.strip_prefix('%').filter(|rest| !rest.contains('\n'))?;
    let command = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    NAMES.contains(&command.0).then_some(command)
}

/// Runs a line if it is a shell command.
pub fn execute(line: &str, session: &mut Session) -> Done {
    let Some((name, arguments)) = named(line) else {
        return Done::Unknown;
    };
    // Quotes group words, as in other shells.
    let Some(words) = shlex::split(arguments) else {
        say(&format!("`%{name}` has an unclosed quote"));
        return Done::No;
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match (name, words.as_slice()) {
        ("quit", []) => return Done::Quit,
        ("help", []) => print(HELP).map(drop).map_err(|error| error.to_string()),
        ("restart", []) => session.restart().map_err(|error| error.to_string()),
        ("files", []) => files(session, "."),
        ("files", [directory]) => files(session, directory),
        ("rm", [name]) => {
            let removed = session.remove(name, Removal::Tree);
            removed.map_err(|error| error.to_string())
        }
        ("put", [local]) => put(session, local, file_name(local)),
        ("put", [local, name]) => put(session, local, name),
        ("get", [name]) => get(session, name, file_name(name)),
        ("get", [name, local]) => get(session, name, local),
        _ => Err(format!(
            "`%{name}` was given the wrong arguments: `%help` shows the right ones"
        )),
    };
    match done {
        Ok(()) => Done::Yes,
        Err(why) => {
            say(&why);
            Done::No
        }
    }
}

fn file_name(path: &str) -> &str {
    let name = Path::new(path).file_name().and_then(|name| name.to_str());
    name.unwrap_or(path)
}

fn files(session: &mut Session, directory: &str) -> Result<(), String> {
    let entries = session.list(directory).map_err(|error| error.to_string())?;
    let line = |entry: &crate::session::FileEntry| {
        let mark = if entry.kind == "dir" { "/" } else { "" };
        format!("{:>12}  {}{mark}\n", entry.size, harmless_line(&entry.name))
    };
    let text: String = entries.iter().map(line).collect();
    print(text).map(drop).map_err(|error| error.to_string())
}

fn put(session: &mut Session, local: &str, name: &str) -> Result<(), String> {
    let failed = |error: io::Error| format!("`{local}` cannot be copied: {error}");
    let mut from = open_regular(Path::new(local)).map_err(failed)?;
    let to = session.open_write(name, Contents::Replaced);
    let mut to = to.map_err(|error| error.to_string())?;
    io::copy(&mut from, &mut to).map(drop).map_err(failed)
}

/// Copies a file out, up to its size at opening, because the guest may keep appending.
fn get(session: &mut Session, name: &str, local: &str) -> Result<(), String> {
    let (from, size) = session.open_read(name).map_err(|error| error.to_string())?;
    let failed = |error: io::Error| format!("`{local}` cannot be written: {error}");
    let mut to = File::create(local).map_err(failed)?;
    io::copy(&mut from.take(size), &mut to)
        .map(drop)
        .map_err(failed)
}
