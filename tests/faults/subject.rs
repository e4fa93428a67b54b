//! The traced supervisor: this program, started again. It executes one command per line and prints the
//! result of each.

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use sandfork::session::{Contents, OutgoingValue, Session, ToolArguments};
use sandfork::{Error, FileSystem, Outcome, Override, Policy, Sandbox, Value};
use serde::{Deserialize, Serialize};

/// The environment variable that marks the traced program.
const VARIABLE: &str = "SANDFORK_FAULTS_SUBJECT";

/// The guest of `run`, which reports on its jail.
const POSTURE: &str = include_str!("posture.py");

/// The cell of `session`: uses files, tools and output, in more system calls than there are kill
/// points.
const CELL: &str = "\
import os
for number in range(80):
    with open(str(number % 7), 'w') as file:
        file.write(str(double(number)))
    os.stat(str(number % 7))
    print(number, flush=True)
print(open('given').read())
";

/// The cell of a copied session.
const COPIED: &str = "file.seek(0); print(x * int(file.read())); x = 0";

/// The result of a command.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The command succeeded.
    Done,
    /// Guest code ran, or began to.
    Ran {
        /// The enforced level and layers.
        enforced: String,
        /// The outcome's status.
        status: String,
        /// The guest's stdout.
        stdout: String,
    },
    /// No sandbox could be provided.
    Refused {
        /// The [`sandfork::ErrorKind`].
        kind: String,
        /// The error message.
        says: String,
    },
}

/// Turns the command into one that starts the traced program, with its own directory for temporary files.
pub fn prepare(command: &mut Command, temporary: &Path, settings: &[&str]) {
    command.env(VARIABLE, settings.join("\n"));
    command.env("TMPDIR", temporary);
}

/// Returns the settings if this process was started to be traced.
pub fn requested() -> Option<String> {
    env::var(VARIABLE).ok()
}

/// Executes commands until EOF.
pub fn run(settings: &str) -> ExitCode {
    let mut subject = Subject::new(settings);
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let reply = subject.execute(&line);
        println!("{}", serde_json::to_string(&reply).expect("valid JSON"));
    }
    ExitCode::SUCCESS
}

struct Subject {
    policy: Policy,
    sandbox: Option<Arc<Sandbox>>,
    sessions: HashMap<String, Session>,
}

impl Subject {
    fn new(settings: &str) -> Self {
        let sets: Result<Vec<Override>, _> = settings.lines().map(str::parse).collect();
        let policy = sets.and_then(|sets| Policy::load("standard", &sets, &FileSystem));
        Self {
            policy: policy.unwrap_or_else(|error| panic!("{error}")),
            sandbox: None,
            sessions: HashMap::new(),
        }
    }

    fn execute(&mut self, line: &str) -> Reply {
        let (word, name) = line.split_once(' ').unwrap_or((line, ""));
        let reply = match word {
            // The previous sandbox ends first, so that only one family exists at a time.
            "build" => self.build(),
            "drop" => {
                self.sessions.clear();
                self.sandbox = None;
                Ok(Reply::Done)
            }
            "run" => self.run(POSTURE),
            "plain" => self.run("print(6 * 7)"),
            "session" => self.session(),
            "copies" => self.copies(),
            "open" => self.open(name),
            "ask" => self.ask(name),
            "close" => {
                self.sessions.remove(name);
                Ok(Reply::Done)
            }
            _ => panic!("not a command: {line}"),
        };
        reply.unwrap_or_else(|error| Reply::Refused {
            kind: format!("{:?}", error.kind()),
            says: error.to_string(),
        })
    }

    fn build(&mut self) -> Result<Reply, Error> {
        self.sessions.clear();
        self.sandbox = None;
        let policy = self.policy.clone();
        // Without ready workers, which would join the family at unpredictable times.
        let built = Sandbox::builder().policy(policy).ready(0).build()?;
        self.sandbox = Some(Arc::new(built));
        Ok(Reply::Done)
    }

    fn run(&self, code: &str) -> Result<Reply, Error> {
        let sandbox = self.sandbox.as_ref().expect("`build` comes first");
        Ok(Reply::ran(&sandbox.run(code)?))
    }

    /// Runs a whole session with a tool and files.
    fn session(&self) -> Result<Reply, Error> {
        let sandbox = self.sandbox.as_ref().expect("`build` comes first");
        let mut session = sandbox.session()?;
        session.tool("double", |arguments: ToolArguments| {
            let number = arguments.args.first().and_then(Value::as_i64);
            Ok(OutgoingValue::from(number.unwrap_or(0) * 2))
        })?;
        let mut given = session.open_write("given", Contents::Replaced)?;
        // A worker that has been killed takes its files along.
        _ = given.write_all(b"given");
        let report = session.run(CELL)?;
        let mut text = String::new();
        if report.outcome().is_ok() {
            let (mut made, _) = session.open_read("3")?;
            _ = made.read_to_string(&mut text);
        }
        Ok(Reply::ran(report.outcome()))
    }

    /// Copies a session and rolls it back.
    fn copies(&self) -> Result<Reply, Error> {
        let sandbox = self.sandbox.as_ref().expect("`build` comes first");
        let mut session = sandbox.session()?;
        let made =
            session.run("x = 6; file = open('kept', 'w+'); _ = file.write('7'), file.flush()")?;
        if !made.outcome().is_ok() {
            return Ok(Reply::ran(made.outcome()));
        }
        let snapshot = session.snapshot()?;
        let forked = snapshot.fork()?.run(COPIED)?;
        if !forked.outcome().is_ok() {
            return Ok(Reply::ran(forked.outcome()));
        }
        session.rollback(&snapshot)?;
        Ok(Reply::ran(session.run(COPIED)?.outcome()))
    }

    fn open(&mut self, name: &str) -> Result<Reply, Error> {
        let sandbox = self.sandbox.as_ref().expect("`build` comes first");
        self.sessions.insert(name.to_owned(), sandbox.session()?);
        Ok(Reply::Done)
    }

    fn ask(&mut self, name: &str) -> Result<Reply, Error> {
        let session = self.sessions.get_mut(name).expect("`open` comes first");
        Ok(Reply::ran(session.run("print(6 * 7)")?.outcome()))
    }
}

impl Reply {
    /// Returns whether this is the sound result of `plain` or `ask`.
    pub fn is_plain(reply: Option<&Self>) -> bool {
        matches!(reply, Some(Self::Ran { stdout, .. }) if stdout == "42\n")
    }

    /// Returns whether a guest succeeded.
    pub fn is_ok(reply: Option<&Self>) -> bool {
        matches!(reply, Some(Self::Ran { status, .. }) if status == "ok")
    }

    fn ran(outcome: &Outcome) -> Self {
        Self::Ran {
            enforced: outcome.enforced().to_string(),
            status: outcome.status().to_string(),
            stdout: outcome.stdout().into_owned(),
        }
    }
}
