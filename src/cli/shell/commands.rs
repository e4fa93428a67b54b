//! What the shell itself does: files in and out, and a new session.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::super::failure::say;
use super::super::print;
use super::super::terminal::harmless_line;
use crate::session::{Contents, Removal, Session};
use crate::supervisor::open_regular;

/// The commands, without their `%`. Any other line that begins with `%` goes to the guest.
pub const NAMES: [&str; 7] = ["put", "get", "files", "rm", "restart", "help", "quit"];

const HELP: &str = "\
%put LOCAL [NAME]    copy a file of the host into /work
%get NAME [LOCAL]    copy a file of /work to the host
%files [DIRECTORY]   list files of /work
%rm NAME             remove a file or directory of /work
%restart             begin anew: variables, imports and files are gone
%quit                leave, as Ctrl-D and exit do
Ctrl-C interrupts what runs, Tab completes. An empty line ends a block.
";

/// What the shell does after a line.
#[derive(Debug, Eq, PartialEq)]
pub enum Done {
    /// The line is not the shell's.
    Unknown,
    /// It was carried out.
    Yes,
    /// It could not be carried out.
    No,
    /// The shell ends.
    Quit,
}

/// The name and the arguments of a line that is a command of the shell.
pub fn named(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if let "exit" | "quit" | "exit()" | "quit()" = line {
        return Some(("quit", ""));
    }
    let rest = line.strip_prefix('%').filter(|rest| !rest.contains('\n'))?;
    let command = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    NAMES.contains(&command.0).then_some(command)
}

/// Carries out a line if it is a command of the shell.
pub fn execute(line: &str, session: &mut Session) -> Done {
    let Some((name, arguments)) = named(line) else {
        return Done::Unknown;
    };
    // Quotes hold a name with spaces together, as in other shells.
    let Some(words) = shlex::split(arguments) else {
        say(&format!("a quote of `%{name}` is not closed"));
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
            "`%{name}` takes other arguments: `%help` shows them"
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

/// The guest may go on writing: no more is copied than the file had.
fn get(session: &mut Session, name: &str, local: &str) -> Result<(), String> {
    let (from, size) = session.open_read(name).map_err(|error| error.to_string())?;
    let failed = |error: io::Error| format!("`{local}` cannot be written: {error}");
    let mut to = File::create(local).map_err(failed)?;
    io::copy(&mut from.take(size), &mut to)
        .map(drop)
        .map_err(failed)
}
