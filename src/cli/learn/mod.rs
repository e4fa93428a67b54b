//! Implements `sandfork learn`: runs a script, asks which of its refusals to allow, and writes the policy under which
//! it passes.
//!
//! Every run is confined by the policy learned so far. A guest's refusals are its own claims: they are shown, and
//! nothing is allowed that was not accepted.

mod accept;
mod ask;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, eaccess};

use crate::environments::directory_of;
use crate::outcome::{Denial, Ending, Outcome, exit_code};
use crate::policy::{Grant, Override, Policy, learnt};
use crate::policy_source::FileSystem;
use crate::{Cancel, Lifetime, Request, Sandbox};

use super::args::LearnArguments;
use super::denials::{Shown, line, what};
use super::failure::{Failure, say};
use super::interrupt::Interrupts;
use super::plan::plan_here;
use super::print;
use super::report::{explain, sentence};
use super::target::Target;
use super::terminal::harmless;

pub use self::accept::Accept;
use self::ask::{Answer, ask};

/// The maximum number of runs before the final run. Each run is allowed more than the previous one.
const MAX_RUNS: usize = 64;

/// The key of writable paths.
const WRITE: &str = "filesystem.write";

/// Learns a policy.
pub fn learn(arguments: &LearnArguments) -> Result<u8, Failure> {
    let is_own = |option: &str, value: &str| match option {
        // If the command's own `-o` was given, a second one is meant for the script.
        "-o" | "--output" => arguments.output.is_none(),
        "--accept" => value.split(',').all(|kind| kind.parse::<Accept>().is_ok()),
        _ => false,
    };
    let misplaced = arguments.target.misplaced(is_own);
    misplaced.as_deref().map(say);
    let asks = arguments.accept.is_empty();
    if asks && !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "stdin is not a terminal, so no one can answer: use `--accept`, such as \
             `--accept read:/srv,import`"
                .to_owned(),
        ));
    }
    // Check this before any run, because the policy could not be saved afterwards.
    if let Some(path) = &arguments.output {
        if path.symlink_metadata().is_ok() {
            return Err(Failure::Usage(format!(
                "-o: `{}` exists; remove it, or name another file",
                path.display()
            )));
        }
        check_directory(path)?;
    }
    let target = Target::load(&arguments.target)?;
    let mut given: Vec<Override> = Vec::new();
    for set in &arguments.policy.overrides {
        given.push(set.parse()?);
    }
    if let Some(project) = &target.project {
        given.push(format!("python.project={}", project.display()).parse()?);
    }
    let cancel = Cancel::new().map_err(Failure::Setup)?;
    let to_end = cancel.clone();
    let interrupts = Interrupts::take(move || to_end.cancel()).map_err(Failure::Setup)?;
    let mut learner = Learner {
        base: &arguments.policy.policy,
        given,
        script: target.script,
        request: target.request.cancel(&cancel).ask_host(),
        interrupts,
        learnt: Vec::new(),
        declined: Vec::new(),
        answers: if asks {
            Answers::FromUser
        } else {
            Answers::Given(&arguments.accept)
        },
    };
    let last = learner.learn()?;
    if !last.is_ok() {
        return Ok(learner.give_up(&last));
    }
    learner.drop_unneeded_settings()?;
    for denial in last.denied() {
        say(&format!("{}; the script passes without it", line(denial)));
    }
    let name = arguments.target.name();
    write(&learner.policy_file(&name)?, arguments.output.as_deref())
}

/// The source of decisions.
enum Answers<'a> {
    FromUser,
    Given(&'a [Accept]),
}

/// An accepted setting.
#[derive(Clone, Debug)]
struct Learnt {
    grant: Grant,
    /// Whether it was the only setting accepted between two runs, the second of which got further.
    alone: bool,
}

struct Learner<'a> {
    base: &'a str,
    given: Vec<Override>,
    script: Option<PathBuf>,
    request: Request,
    interrupts: Interrupts,
    learnt: Vec<Learnt>,
    declined: Vec<String>,
    answers: Answers<'a>,
}

impl Learner<'_> {
    /// Runs the script until it passes, or nothing more is accepted. Returns the last outcome.
    fn learn(&mut self) -> Result<Outcome, Failure> {
        for number in 1..=MAX_RUNS {
            let outcome = self.run(&self.policy(&self.learnt)?)?;
            say(&format!("run {number} ended with `{}`", outcome.status()));
            if outcome.is_ok() || !self.accept_some(&outcome)? {
                return Ok(outcome);
            }
        }
        self.run(&self.policy(&self.learnt)?)
    }

    fn policy(&self, learnt: &[Learnt]) -> Result<Policy, Failure> {
        let learnt = learnt.iter().map(|learnt| learnt.grant.set.clone());
        let sets: Vec<Override> = self.given.iter().cloned().chain(learnt).collect();
        let policy = Policy::load(self.base, &sets, &FileSystem)?;
        Ok(match &self.script {
            Some(script) => policy.with_script(script.clone()),
            None => policy,
        })
    }

    fn run(&self, policy: &Policy) -> Result<Outcome, Failure> {
        let sandbox = Sandbox::builder()
            .policy(policy.clone())
            .lifetime(Lifetime::OneRun)
            .build()?;
        self.interrupts.set_running();
        let outcome = sandbox.run(&self.request);
        self.interrupts.set_idle();
        let outcome = outcome?;
        // An interrupted run does not show what it needs, and later runs would be interrupted too.
        if *outcome.ending() == Ending::Interrupted {
            let ended = "interrupted: no policy was written";
            return Err(Failure::Interrupted(ended.to_owned()));
        }
        Ok(outcome)
    }

    /// Returns whether any refusal of this outcome is allowed from now on.
    fn accept_some(&mut self, outcome: &Outcome) -> Result<bool, Failure> {
        let before = self.learnt.clone();
        for denial in outcome.denied() {
            if !self.consider(denial)? {
                return Ok(false);
            }
        }
        let is_new =
            |learnt: &&mut Learnt| before.iter().all(|it| it.grant.set != learnt.grant.set);
        let mut accepted: Vec<&mut Learnt> = self.learnt.iter_mut().filter(is_new).collect();
        if let [only] = accepted.as_mut_slice() {
            only.alone = true;
        }
        Ok(!accepted.is_empty())
    }

    /// Returns the readable path that covers the denied write. That entry must move to `filesystem.write`, because no
    /// policy has a path in both lists.
    fn covering_read_path(&self, denial: &Denial) -> Option<PathBuf> {
        if denial.set.is_some() || denial.key.as_deref() != Some(WRITE) {
            return None;
        }
        let target = Path::new(denial.target.as_deref()?);
        let learnt = self.learnt.iter().map(|learnt| &learnt.grant.set);
        let shown = self.given.iter().chain(learnt).filter_map(readable_path);
        shown
            .filter(|path| target.starts_with(path))
            .max_by_key(|path| path.components().count())
    }

    /// Accepts or declines the setting that would allow a denial. Returns `false` to stop.
    fn consider(&mut self, denial: &Denial) -> Result<bool, Failure> {
        let instead = self.covering_read_path(denial);
        let set = match &instead {
            Some(path) => Some(format!("{WRITE}={}", path.display())),
            None => denial.set.clone(),
        };
        let (Some(set), Some(key)) = (&set, &denial.key) else {
            return Ok(true);
        };
        let is_known = self.declined.contains(set)
            || self
                .learnt
                .iter()
                .any(|learnt| learnt.grant.set.to_string() == *set);
        if is_known {
            return Ok(true);
        }
        let accepted = match self.answers {
            Answers::Given(accept) => {
                let setting: Override = set.parse()?;
                accept
                    .iter()
                    .any(|accept| accept.covers(key, &setting))
                    .then(|| set.clone())
            }
            Answers::FromUser => {
                let answer = ask(denial, set, &mut io::stdin().lock(), &mut io::stderr())?;
                match answer {
                    Answer::Yes(set) => Some(set),
                    Answer::No => None,
                    Answer::Quit => return Ok(false),
                }
            }
        };
        let Some(accepted) = accepted else {
            self.declined.push(set.clone());
            return Ok(true);
        };
        let grant = Grant {
            set: accepted.parse()?,
            why: what(denial),
        };
        let learnt = Learnt {
            grant,
            alone: false,
        };
        let before = (self.given.clone(), self.learnt.clone());
        if let Some(path) = instead {
            let stays = |set: &Override| readable_path(set).is_none_or(|it| it != path);
            self.given.retain(stays);
            self.learnt.retain(|learnt| stays(&learnt.grant.set));
        }
        self.learnt.push(learnt);
        // The setting may conflict with the others, or may not work on this host.
        match self
            .policy(&self.learnt)
            .and_then(|policy| Ok(plan_here(&policy)?))
        {
            Ok(_) => say(&format!("allowed: {accepted}")),
            Err(error) => {
                say(&format!("not allowed: {accepted}: {error}"));
                (self.given, self.learnt) = before;
                self.declined.push(set.clone());
            }
        }
        Ok(true)
    }

    /// Removes each setting without which the script passes too.
    fn drop_unneeded_settings(&mut self) -> Result<(), Failure> {
        let mut number = 0;
        while number < self.learnt.len() {
            let mut without = self.learnt.clone();
            let left_out = without.remove(number);
            let is_unneeded = !left_out.alone && self.run(&self.policy(&without)?)?.is_ok();
            if is_unneeded {
                say(&format!("not needed: {}", left_out.grant.set));
                self.learnt = without;
            } else {
                number += 1;
            }
        }
        Ok(())
    }

    /// Explains why the script does not pass. Returns the exit code.
    fn give_up(&self, outcome: &Outcome) -> u8 {
        if let Some(error) = outcome.error() {
            // If stderr is closed, the traceback is lost.
            _ = io::stderr().write_all(harmless(&error.traceback).as_bytes());
        }
        let policy = self.policy(&self.learnt).ok();
        let sentence = policy.and_then(|policy| sentence(outcome, &policy, "the script"));
        explain(outcome, sentence.as_ref(), None, Some(Shown::All));
        say("the script does not pass with what was allowed: no policy was written");
        outcome.exit_code()
    }

    fn policy_file(&self, name: &str) -> Result<String, Failure> {
        let about = format!(
            "Learnt by `sandfork learn` from {name}: the settings with which it runs to its end, and why."
        );
        let given = self.given.iter().map(|set| Grant {
            set: set.clone(),
            why: "given with `--set`".to_owned(),
        });
        let grants: Vec<Grant> = given
            .chain(self.learnt.iter().map(|learnt| learnt.grant.clone()))
            .collect();
        let base = match Policy::builtin(self.base) {
            Some(_) => self.base.to_owned(),
            None => std::path::absolute(self.base)?.display().to_string(),
        };
        let current = std::env::current_dir().ok();
        Ok(learnt(&about, &base, &grants, current.as_deref())?)
    }
}

/// Returns the path that a setting makes readable.
fn readable_path(set: &Override) -> Option<PathBuf> {
    let set = set.to_string();
    let path = set.strip_prefix("filesystem.read=")?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// Checks that a file can be created at a path.
fn check_directory(path: &Path) -> Result<(), Failure> {
    let directory = directory_of(path);
    let may_write = eaccess(directory, AccessFlags::W_OK | AccessFlags::X_OK);
    let cause = match may_write {
        Err(errno) => errno.into(),
        Ok(()) if directory.is_dir() => return Ok(()),
        Ok(()) => io::ErrorKind::NotADirectory.into(),
    };
    Err(unwritable(path, &cause))
}

fn unwritable(path: &Path, cause: &io::Error) -> Failure {
    let path = path.display();
    Failure::NotWritten(format!("-o: `{path}` cannot be written: {cause}"))
}

fn write(policy: &str, output: Option<&Path>) -> Result<u8, Failure> {
    let Some(path) = output else {
        return print(policy);
    };
    let written = fs::File::create_new(path).and_then(|mut file| {
        file.write_all(policy.as_bytes())?;
        file.sync_all()
    });
    if let Err(cause) = written {
        // Do not lose the policy, which took all these runs.
        print(policy)?;
        return Err(unwritable(path, &cause));
    }
    say(&format!("{} lets the script pass", path.display()));
    Ok(exit_code::OK)
}
