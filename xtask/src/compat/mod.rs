//! Runs real software outside and inside a sandbox, and lists every difference under its cause.
//!
//! Outside is an ordinary user with nothing but its own loopback (outside.py): what fails there too is
//! no difference. Inside is the policy `standard` with room, and with every key on that real software
//! asks for.

mod places;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use xshell::cmd;

use crate::document::replace;
use crate::interpreters::{self, Interpreter};
use crate::test::built;
use crate::{shell, test_envs, venv};
use places::{Place, Places};
use report::Report;

/// The workloads of packages, each under a line `# package: NAME`.
const PACKAGES: &str = include_str!("packages.py");
/// What is installed for them.
const REQUIREMENTS: &str = include_str!("requirements.txt");
/// The programs, each under a line `# program: NAME`.
const PROGRAMS: &str = include_str!("programs.sh");

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only so many modules of CPython's suite, others each day
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// The interpreters; the oldest and the newest that are found, if none is named
    #[arg(long, value_name = "PATH")]
    python: Vec<PathBuf>,
    /// `suite`, `packages`, `programs`; all of them, if none is named
    #[arg(value_name = "PART")]
    parts: Vec<Part>,
    /// Only modules, packages or programs with this in their names
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Part {
    Suite,
    Packages,
    Programs,
}

/// How each test of one item ended: its name, and `passed` or the reason.
pub type Endings = BTreeMap<String, String>;

/// Compares the chosen parts, and puts the tables into the document if nothing was left out.
pub fn run(options: &Options) -> Result<()> {
    let places = Places::new(built(
        "sandfork",
        &["build", "--release", "--bin", "sandfork"],
    )?)?;
    let is_chosen = |part| options.parts.is_empty() || options.parts.contains(&part);
    let mut texts = Vec::new();
    if is_chosen(Part::Suite) {
        for interpreter in chosen(&options.python)? {
            texts.push(suite(&places, &interpreter, options)?);
        }
    }
    if is_chosen(Part::Packages) {
        texts.push(packages(&places, options)?);
    }
    if is_chosen(Part::Programs) {
        texts.push(programs(&places, options));
    }
    let text = texts.join("\n");
    print!("\n{text}");
    if options.parts.is_empty() && options.only.is_none() {
        replace("compatibility.md", "cargo xtask compat", &text)?;
    }
    Ok(())
}

fn chosen(named: &[PathBuf]) -> Result<Vec<Interpreter>> {
    if named.is_empty() {
        let found = interpreters::find().supported;
        let with_suite: Vec<Interpreter> = found.into_iter().filter(has_suite).collect();
        return Ok(match with_suite.as_slice() {
            [oldest, .., newest] => vec![oldest.clone(), newest.clone()],
            _ => with_suite,
        });
    }
    let ask = |path: &PathBuf| {
        Interpreter::ask(path).with_context(|| format!("{} is no CPython", path.display()))
    };
    named.iter().map(ask).collect()
}

/// Whether the interpreter has CPython's tests, which distributions package apart.
fn has_suite(interpreter: &Interpreter) -> bool {
    modules(interpreter).is_ok_and(|modules| modules.len() > 100)
}

fn modules(interpreter: &Interpreter) -> Result<Vec<String>> {
    let (sh, python) = (shell()?, &interpreter.executable);
    let listed = cmd!(sh, "{python} -m test --list-tests");
    let listed = listed.quiet().ignore_stderr().read()?;
    Ok(listed.lines().map(str::to_owned).collect())
}

fn suite(places: &Places, interpreter: &Interpreter, options: &Options) -> Result<String> {
    let mut modules = modules(interpreter)?;
    modules.retain(|module| is_asked(options, module));
    if let Some(size) = options.sample {
        modules = sample(modules, size);
    }
    let at = [Place::Outside, Place::Run, Place::Exec];
    let report = compare(&modules, &at, |place, module| {
        places.suite(place, &interpreter.executable, module)
    });
    let title = format!(
        "### CPython {}'s own tests\n\n{} modules.",
        interpreter.version_text(),
        modules.len()
    );
    Ok(report.in_words(&title, "tests"))
}

fn packages(places: &Places, options: &Options) -> Result<String> {
    let found = interpreters::find().supported;
    let newest = found.last().context("no CPython 3.9 or later was found")?;
    let directory = test_envs::place("compat-env")?;
    let python = venv::make(newest, &directory, REQUIREMENTS)?;
    let workloads = sections(PACKAGES, "# package: ");
    let names = names(&workloads, options);
    let at = [Place::Outside, Place::Run, Place::Preloaded];
    let report = compare(&names, &at, |place, name| {
        places.package(place, &python, name, &workloads[name])
    });
    let title = format!(
        "### Packages\n\nCPython {}: {}.",
        newest.version_text(),
        names.join(", ")
    );
    Ok(report.in_words(&title, "workloads"))
}

fn programs(places: &Places, options: &Options) -> String {
    let scripts = sections(PROGRAMS, "# program: ");
    let names = names(&scripts, options);
    let report = compare(&names, &[Place::Outside, Place::Exec], |place, name| {
        places.program(place, name, &scripts[name])
    });
    let title = format!("### Programs\n\n{}.", names.join(", "));
    report.in_words(&title, "scripts")
}

fn names(sections: &BTreeMap<String, String>, options: &Options) -> Vec<String> {
    let asked = sections.keys().filter(|name| is_asked(options, name));
    asked.cloned().collect()
}

fn is_asked(options: &Options, name: &str) -> bool {
    let part = options.only.as_deref().unwrap_or_default();
    name.contains(part)
}

/// Runs each item at each place, two items at a time.
fn compare(
    items: &[String],
    at: &[Place],
    run: impl Fn(Place, &str) -> Result<Endings> + Sync,
) -> Report {
    let report = Mutex::new(Report::new(at));
    let waiting = Mutex::new(items.iter());
    let next = || {
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    };
    let work = || {
        while let Some(item) = next() {
            let found: Vec<_> = at
                .iter()
                .map(|place| match run(*place, item) {
                    Ok(endings) => (endings, None),
                    Err(error) => (Endings::new(), Some(format!("{error:#}"))),
                })
                .collect();
            let line = report
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .add(item, &found);
            println!("{line}");
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    report.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Texts by the name in the line above each.
fn sections(text: &str, mark: &str) -> BTreeMap<String, String> {
    let sections = text.split(mark).skip(1);
    sections
        .filter_map(|section| section.split_once('\n'))
        .map(|(name, body)| (name.trim().to_owned(), body.to_owned()))
        .collect()
}

/// Some of the items, in turn: the next ones each day.
fn sample(items: Vec<String>, size: usize) -> Vec<String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let day = since.unwrap_or_default().as_secs() / 86_400;
    let day = usize::try_from(day).unwrap_or_default();
    let first = day * size % items.len().max(1);
    items.into_iter().cycle().skip(first).take(size).collect()
}
