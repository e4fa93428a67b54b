//! Implements `sandfork env`: creates, lists, shows, exports and removes package environments.

mod args;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::Error;
use crate::environments::{
    Builds, Creation, Description, Extent, Found, Layer, Step, Wanted, cell_that_adds, create,
    description, is_missing, names_of, prune, remove,
};
use crate::host::{CallerEnvironment, EnvironmentStore, NamedEnvironment};
use crate::outcome::exit_code;
use crate::plan::bytes;
use crate::policy::{EnvironmentName, Policy, Requirement};
use crate::supervisor::Cancel;

pub use self::args::EnvCommand;
use self::args::EnvCreateArguments;
use super::failure::{Failure, say};
use super::interrupt::Interrupts;
use super::report::signal;
use super::terminal::harmless_line;
use super::{print, print_json};

/// Runs a `sandfork env` command.
pub fn env(command: EnvCommand) -> Result<u8, Failure> {
    let environment = CallerEnvironment::current();
    let store = || EnvironmentStore::of(&environment);
    match command {
        EnvCommand::Create(arguments) => run_create(&arguments, &environment),
        EnvCommand::List { json } => list(&store()?, json),
        EnvCommand::Show { name, json } => show(&store()?, &name, json),
        EnvCommand::Export { name, output } => export(&store()?, &name, output.as_deref()),
        EnvCommand::Remove { names } => {
            let store = store()?;
            let removed = names.iter().try_for_each(|name| remove(&store, name));
            removed.map_err(Error::from)?;
            Ok(exit_code::OK)
        }
        EnvCommand::Prune { packages } => {
            let extent = if packages {
                Extent::OfPackages
            } else {
                Extent::Unnamed
            };
            let store = store()?;
            let mut pruned = prune(&store, extent).map_err(Error::from)?;
            // The store of added packages has only environments with derived names.
            let added = prune(&store.added(), extent).map_err(Error::from)?;
            pruned.environments += added.environments;
            pruned.bytes += added.bytes;
            let plural = if pruned.environments == 1 { "" } else { "s" };
            print(format!(
                "removed {} environment{plural}, {}\n",
                pruned.environments,
                bytes(pruned.bytes)
            ))
        }
    }
}

fn run_create(
    arguments: &EnvCreateArguments,
    environment: &CallerEnvironment,
) -> Result<u8, Failure> {
    let creation = creation(arguments)?;
    let cancel = Cancel::new().map_err(Failure::Setup)?;
    let bar = Bar::new(arguments.quiet);
    let mut resolved_by = None;
    let made = interruptible(&cancel, || {
        create(&creation, environment, &cancel, &mut |step| {
            if let Step::Resolving(resolver) = step {
                resolved_by = Some(resolver.name().to_owned());
            }
            bar.show(step);
        })
    })?;
    bar.end();
    let made = made.map_err(|error| {
        if cancel.is_used() {
            Failure::Interrupted(Error::from(error).to_string())
        } else {
            Failure::Sandbox(error.into())
        }
    })?;
    if arguments.json {
        let found = match made.found {
            Found::Nothing => "created",
            Found::Wheels => "named",
            Found::Whole => "there",
        };
        let cell = arguments.add.then(|| cell_that_adds(&made.path));
        return print_json(&json!({
            "name": made.name.as_str(),
            "path": made.path,
            "result": found,
            "resolver": resolved_by,
            "cell": cell,
        }));
    }
    let text = match made.found {
        Found::Nothing => "is ready",
        Found::Wheels => "is ready: its wheels were installed under another name",
        Found::Whole => "exists already",
    };
    print(format!(
        "{}: {text}, in {}\n",
        made.name,
        made.path.display()
    ))
}

/// Returns the environment that the arguments describe.
fn creation(arguments: &EnvCreateArguments) -> Result<Creation, Failure> {
    let mut packages = arguments.packages.iter();
    let name = match packages.as_slice() {
        [name, ..] if !arguments.of_policies => {
            packages.next();
            Some(name.parse().map_err(Failure::Usage)?)
        }
        _ => None,
    };
    let packages: Result<Vec<Requirement>, String> =
        packages.map(|package| package.parse()).collect();
    let packages = packages.map_err(Failure::Usage)?;
    if let (Some(_), Some(package)) = (&arguments.lock, packages.first()) {
        return Err(Failure::Usage(format!(
            "`--lock` installs what the lock lists and nothing else: leave out `{package}`, or the lock"
        )));
    }
    let mut wanted = match &arguments.lock {
        Some(lock) => Wanted::of_lock(lock).map_err(Error::from)?,
        None => Wanted::packages(&packages),
    };
    for file in &arguments.requirements {
        wanted.add_file(file).map_err(Error::from)?;
    }
    let there = arguments.beside.iter().map(String::as_str);
    wanted.beside(there).map_err(Failure::Usage)?;
    let interpreter = arguments.python.clone();
    Ok(Creation {
        name,
        packages,
        wanted,
        interpreter: interpreter
            .unwrap_or_else(|| Policy::default().python.interpreter.value.clone()),
        index: arguments.index_url.clone(),
        allowed: arguments.allow_hosts.clone(),
        layer: if arguments.add {
            Layer::Added
        } else {
            Layer::Whole
        },
        builds: if arguments.allow_build {
            Builds::Allowed
        } else {
            Builds::Refused
        },
    })
}

/// Runs a closure whose work a signal cancels.
fn interruptible<T>(cancel: &Cancel, run: impl FnOnce() -> T) -> Result<T, Failure> {
    let cancel = cancel.clone();
    let interrupts = Interrupts::take(move || cancel.cancel()).map_err(Failure::Setup)?;
    interrupts.set_running();
    let ran = run();
    interrupts.set_idle();
    Ok(ran)
}

/// A progress bar on a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar on stderr. It is hidden if `quiet` is set or stderr is not a terminal.
    pub fn new(quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let style = ProgressStyle::with_template("[{bar:16}] {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(ProgressBar::with_draw_target(Some(1), target).with_style(style.progress_chars("##-")))
    }

    /// Shows a step.
    pub fn show(&self, step: Step) {
        match step {
            Step::Waiting => self.0.set_message("another process is creating it"),
            Step::Resolving(resolver) => {
                self.0.set_message(format!(
                    "{} queries the index",
                    harmless_line(resolver.name())
                ));
            }
            Step::Installing {
                file,
                number,
                count,
            } => {
                self.0.set_length(count as u64);
                self.0.set_position(number as u64);
                // The file name comes from an index, and has been validated.
                self.0
                    .set_message(format!("{}/{count} {}", number + 1, harmless_line(file)));
            }
        }
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}

fn list(store: &EnvironmentStore, json: bool) -> Result<u8, Failure> {
    let all = names_of(store).map_err(Error::from)?;
    if json {
        let entry = |(name, named): &(EnvironmentName, NamedEnvironment)| {
            let description = description(store, &named.environment);
            description.map_or_else(
                |error| {
                    json!({
                        "name": name.as_str(),
                        "path": store.path_of(&named.environment),
                        "requirements": named.requirements,
                        "error": error.to_string(),
                    })
                },
                |it| as_json(store, name, named, &it),
            )
        };
        return print_json(&all.iter().map(entry).collect::<Vec<_>>());
    }
    let width = all
        .iter()
        .map(|(name, _)| name.as_str().len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (name, named) in &all {
        let what = match description(store, &named.environment) {
            Ok(it) => format!(
                "CPython {:8} {:>9}  {}",
                it.version,
                bytes(it.bytes),
                without_hashes(&named.requirements)
            ),
            Err(error) => error.to_string(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:width$}  {}", harmless_line(&what));
    }
    print(text)
}

fn as_json(
    store: &EnvironmentStore,
    name: &EnvironmentName,
    named: &NamedEnvironment,
    description: &Description,
) -> serde_json::Value {
    let packages: BTreeMap<&str, &str> = description
        .lock
        .wheels()
        .iter()
        .map(|wheel| (&*wheel.name, &*wheel.version))
        .collect();
    json!({
        "name": name.as_str(),
        "path": store.path_of(&named.environment),
        "requirements": named.requirements,
        "packages": packages,
        "interpreter": description.interpreter,
        "version": description.version,
        "bytes": description.bytes,
        "created": description.created,
    })
}

fn one(
    store: &EnvironmentStore,
    name: &EnvironmentName,
) -> Result<(NamedEnvironment, Description), Failure> {
    let named = store.existing(name)?;
    let (_, _held) = store.find(name)?;
    let description = description(store, &named.environment).map_err(Error::from)?;
    Ok((named, description))
}

/// Formats the requirements for a person, without the hashes that requirements from a lock have. `--json` and
/// `env export` show the hashes.
fn without_hashes(requirements: &[String]) -> String {
    let shown = requirements
        .iter()
        .map(|one| one.split(" --hash=").next().unwrap_or(one));
    shown.collect::<Vec<_>>().join(", ")
}

fn show(store: &EnvironmentStore, name: &EnvironmentName, json: bool) -> Result<u8, Failure> {
    let (named, description) = one(store, name)?;
    if json {
        return print_json(&as_json(store, name, &named, &description));
    }
    let mut text = format!(
        "name          {name}\npath          {}\ninterpreter   {}, CPython {}\nsize          {}\nrequirements  {}\npackages\n",
        store.path_of(&named.environment).display(),
        description.interpreter.display(),
        description.version,
        bytes(description.bytes),
        without_hashes(&named.requirements),
    );
    for wheel in description.lock.wheels() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {} {}", wheel.name, wheel.version);
    }
    print(text)
}

fn export(
    store: &EnvironmentStore,
    name: &EnvironmentName,
    output: Option<&Path>,
) -> Result<u8, Failure> {
    let (_, description) = one(store, name)?;
    let text = description.lock.to_pylock();
    match output {
        None => print(text),
        Some(path) => {
            fs::write(path, text)?;
            Ok(exit_code::OK)
        }
    }
}

/// Creates the environment for a policy's packages, if it is missing and the policy allows creating it at first use.
/// Runs `sandfork env create` as a child process, which handles signals and shows progress.
pub fn provide(policy: &Policy) -> Result<(), Failure> {
    if !is_missing(policy, &CallerEnvironment::current()) {
        return Ok(());
    }
    let python = &policy.python;
    let packages = python
        .packages
        .iter()
        .map(|package| package.value.to_string());
    let packages: Vec<String> = packages.collect();
    say(&format!(
        "installing {} at the first use",
        packages.join(", ")
    ));
    let program = std::env::current_exe().map_err(Failure::Setup)?;
    let mut command = Command::new(program);
    command.args([
        "env",
        "create",
        "--packages",
        "--python",
        &python.interpreter.value,
    ]);
    command
        .arg("--")
        .args(packages)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = command.status().map_err(Failure::Setup)?;
    if status.success() {
        return Ok(());
    }
    if let Some(number) = status.signal() {
        say(&format!(
            "`sandfork env create` was ended by {}, and the packages are not installed: is enough memory free?",
            signal(number)
        ));
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(Failure::Reported(
        code.unwrap_or(exit_code::SANDBOX_UNAVAILABLE),
    ))
}
