//! The traced supervisor: this program, started again. It executes one command per line and prints the
//! result of each.

use std::env;
use std::io::BufRead;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use nix::unistd::Gid;
use sandfork::internals::plan::seccomp::{Arch, Preset, Surroundings, syscalls};
use sandfork::session::Session;
use sandfork::{Error, ErrorKind, FileSystem, Override, Policy, Sandbox};
use sandfork_jail::program::BpfProgram;
use serde::{Deserialize, Serialize};

/// The environment variable of the traced program: the policy settings, and the host's description for its guests.
const VARIABLE: &str = "SANDFORK_MUTANTS_SUBJECT";

/// A group id that no distribution allocates.
const ANOTHER_GROUP: u32 = 31_338;

/// The guests by name.
const GUESTS: [(&str, &str); 7] = [
    ("calls", include_str!("guests/calls.py")),
    ("files", include_str!("guests/files.py")),
    ("process", include_str!("guests/process.py")),
    ("network", include_str!("guests/network.py")),
    ("memory", include_str!("guests/memory.py")),
    ("tasks", include_str!("guests/tasks.py")),
    ("cores", include_str!("guests/cores.py")),
];

/// The code of a worker that another worker tries to reach.
const LISTENER: &str = "\
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind('\\0sandfork-mutants')
listener.listen()
";

/// The result of a command.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The command succeeded.
    Done,
    /// Guest code ran, or began to.
    Ran {
        /// The outcome's status.
        status: String,
        /// The guest's stdout.
        stdout: String,
        /// The guest's stderr, or its exception if it ended with one.
        stderr: String,
    },
    /// The supervisor or the worker found that the worker lacks something that the plan has.
    NotEnforced { says: String },
    /// The sandbox could not be made.
    Refused { says: String },
}

/// Returns the command that starts this program to be traced.
pub fn command(settings: &[String], header: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a program knows its path"));
    let value = (settings.join("\n"), header);
    let value = serde_json::to_string(&value).expect("valid JSON");
    command.env(VARIABLE, value);
    command
}

/// Returns the settings if this process was started to be traced.
pub fn requested() -> Option<String> {
    env::var(VARIABLE).ok()
}

/// Executes commands until EOF.
pub fn run(value: &str) -> ExitCode {
    let (settings, header): (String, String) = serde_json::from_str(value).expect("valid JSON");
    let mut subject = Subject {
        settings,
        header,
        sandbox: None,
        listener: None,
    };
    // An ordinary user needs it to load a filter; under root, the jail itself must set it.
    if !nix::unistd::geteuid().is_root() {
        nix::sys::prctl::set_no_new_privs().expect("anyone may");
    }
    if nix::unistd::geteuid().is_root() {
        // So that a jail that keeps supplementary groups is detected.
        nix::unistd::setgroups(&[Gid::from_raw(ANOTHER_GROUP)]).expect("root has the privilege");
    }
    sandfork_jail::sys::seccomp::load(&query_filter()).expect("this host has filters");
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let reply = subject
            .execute(&line)
            .unwrap_or_else(|error| failed(&error));
        println!("{}", serde_json::to_string(&reply).expect("valid JSON"));
    }
    ExitCode::SUCCESS
}

/// Returns a filter that answers calls with a mark in their sixth argument, with which `guests/calls.py` queries the
/// jail's filters. The lower bits are left to calls that have a sixth argument.
///
/// The kernel prefers `SECCOMP_RET_ERRNO` to a user notification. So calls that the jail's filter notifies about in
/// order to refuse them get the action that ranks after a notification: `SECCOMP_RET_TRACE`, which is `ENOSYS` without
/// a tracer that handles it.
fn query_filter() -> BpfProgram {
    const MARK: u32 = 0x5a5a_f000;
    const TOLD: u32 = 0x0005_0fa0; // SECCOMP_RET_ERRNO with 4000
    const TRACE: u32 = 0x7ff0_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let sixth_argument = 16 + 5 * 8;
    let guest = Preset::of(Surroundings::Namespaces).guest;
    let is_asked = |name: &str| {
        guest
            .get(name)
            .is_some_and(|rule| Preset::reports(name, rule.verdict))
    };
    let asked = syscalls(Arch::X86_64).filter(|(name, _)| is_asked(name));
    let numbers = asked.flat_map(|(_, number)| [(0x15, 0, 1, number), (0x06, 0, 0, TRACE)]);
    let marked = [(0x20, 0, 0, 0)].into_iter().chain(numbers);
    let marked: BpfProgram = marked.chain([(0x06, 0, 0, TOLD)]).collect();
    let others = u8::try_from(marked.len()).expect("fewer than 256 instructions");
    let start = [
        (0x20, 0, 0, sixth_argument),
        (0x54, 0, 0, 0xffff_f000),
        (0x15, 0, others, MARK),
    ];
    start
        .into_iter()
        .chain(marked)
        .chain([(0x06, 0, 0, ALLOW)])
        .collect()
}

fn failed(error: &Error) -> Reply {
    let says = error.to_string();
    match error.kind() {
        ErrorKind::NotEnforced => Reply::NotEnforced { says },
        _ => Reply::Refused { says },
    }
}

struct Subject {
    settings: String,
    /// Prepended to every guest.
    header: String,
    sandbox: Option<Arc<Sandbox>>,
    listener: Option<Session>,
}

impl Subject {
    fn execute(&mut self, line: &str) -> Result<Reply, Error> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "build" => self.build(rest),
            "listen" => self.listen(),
            "run" => self.run(rest),
            _ => panic!("not a command: {line}"),
        }
    }

    fn build(&mut self, more: &str) -> Result<Reply, Error> {
        self.listener = None;
        self.sandbox = None;
        let settings = self.settings.lines().chain(more.split_whitespace());
        let sets: Result<Vec<Override>, _> = settings.map(str::parse).collect();
        let policy = sets.and_then(|sets| Policy::load("standard", &sets, &FileSystem));
        let policy = policy.unwrap_or_else(|error| panic!("{error}"));
        // Without ready workers, which would be made before the command that needs them.
        let built = Sandbox::builder().policy(policy).ready(0).build()?;
        self.sandbox = Some(Arc::new(built));
        Ok(Reply::Done)
    }

    fn listen(&mut self) -> Result<Reply, Error> {
        let sandbox = self.sandbox.as_ref().expect("`build` comes first");
        let mut listener = sandbox.session()?;
        let outcome = listener.run(LISTENER)?;
        self.listener = Some(listener);
        Ok(ran(outcome.outcome()))
    }

    fn run(&self, guest: &str) -> Result<Reply, Error> {
        let sandbox = self.sandbox.as_ref().expect("`build` comes first");
        let found = GUESTS.iter().find(|(name, _)| *name == guest);
        let (_, code) = found.expect("it is one of the guests");
        Ok(ran(&sandbox.run(format!("{}{code}", self.header).as_str())?))
    }
}

fn ran(outcome: &sandfork::Outcome) -> Reply {
    Reply::Ran {
        status: outcome.status().to_string(),
        stdout: outcome.stdout().into_owned(),
        stderr: match outcome.error() {
            Some(error) => error.traceback.clone(),
            None => outcome.stderr().into_owned(),
        },
    }
}
