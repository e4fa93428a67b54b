//! Runs real software outside and inside a sandbox, and lists every difference under its cause.
//!
//! Outside is an ordinary user with only its own loopback interface (outside.py): what fails there too is
//! not a difference. Inside is the policy `standard` with higher limits and with every key set that real software
//! needs.

mod places;
mod report;

use std::collections::BTreeMap;
use std::fs;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use xshell::cmd;

use crate::document::{here_and_now, replace};
use crate::interpreters::{self, Interpreter};
use crate::test::built;
use crate::{shell, test_envs, venv, workspace};
use places::{Place, Places};
use report::Report;

/// The workloads of packages, each below a line `# package: NAME`.
const PACKAGES: &str = include_str!("packages.py");
/// The requirements file of the packages.
const REQUIREMENTS: &str = include_str!("requirements.txt");
/// The programs, each below a line `# program: NAME`.
const PROGRAMS: &str = include_str!("programs.sh");

/// The number of tries of an item inside, if a test fails there or comes after one that does not end. So a delay on a
/// busy machine does not count as a difference.
const TRIES: usize = 3;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run only this many modules of CPython's suite, different ones each day
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// The interpreters; by default the oldest and the newest found
    #[arg(long, value_name = "PATH")]
    python: Vec<PathBuf>,
    /// `suite`, `packages`, `programs`; by default all
    #[arg(value_name = "PART")]
    parts: Vec<Part>,
    /// Run only modules, packages or programs with this in their names
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Start nothing new after this many minutes; the document lists what was not reached
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// Keep the results of earlier commands, including partial ones
    #[arg(long)]
    resume: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Part {
    Suite,
    Packages,
    Programs,
}

/// The result of each test of an item by name: `passed` or the reason.
pub type Endings = BTreeMap<String, String>;

/// The result of running an item in one place.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Found {
    /// The result of each test, or `began`.
    pub endings: Endings,
    /// Why the item itself did not end, if so.
    pub broken: Option<String>,
}

/// Compares the selected parts, and puts their tables into the document if no item was excluded by name.
pub fn run(options: &Options) -> Result<()> {
    let sandfork = built("sandfork", &["build", "--release", "--bin", "sandfork"])?;
    let compat = Compat {
        places: Places::new(sandfork)?,
        options,
        until: options
            .minutes
            .map(|minutes| Instant::now() + Duration::from_secs(60 * minutes)),
    };
    for part in [Part::Suite, Part::Packages, Part::Programs] {
        if !options.parts.is_empty() && !options.parts.contains(&part) {
            continue;
        }
        let (name, text) = match part {
            Part::Suite => {
                let chosen = chosen(&options.python)?;
                let texts = chosen.iter().map(|interpreter| compat.suite(interpreter));
                ("suite", texts.collect::<Result<Vec<_>>>()?.join("\n"))
            }
            Part::Packages => ("packages", compat.packages()?),
            Part::Programs => ("programs", compat.programs()?),
        };
        println!("\n{text}");
        if options.only.is_none() && options.sample.is_none() {
            let text = format!("Made {}.\n\n{text}", here_and_now()?);
            replace(
                "compatibility.md",
                &format!("cargo xtask compat {name}"),
                &text,
            )?;
        }
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

/// Returns whether the interpreter has CPython's tests, which distributions package separately.
fn has_suite(interpreter: &Interpreter) -> bool {
    modules(interpreter).is_ok_and(|modules| modules.len() > 100)
}

fn modules(interpreter: &Interpreter) -> Result<Vec<String>> {
    let (sh, python) = (shell()?, &interpreter.executable);
    let listed = cmd!(sh, "{python} -m test --list-tests");
    let listed = listed.quiet().ignore_stderr().read()?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// State that all parts share.
struct Compat<'o> {
    places: Places,
    options: &'o Options,
    until: Option<Instant>,
}

impl Compat<'_> {
    fn suite(&self, interpreter: &Interpreter) -> Result<String> {
        let mut modules = modules(interpreter)?;
        modules.retain(|module| self.is_selected(module));
        if let Some(size) = self.options.sample {
            modules = sample(modules, size);
        }
        let version = interpreter.version_text();
        let at = [Place::Outside, Place::Run, Place::Exec];
        let kept = format!("suite-{version}");
        let report = self.compare(&kept, &modules, &at, |place, module, only| {
            self.places
                .suite(place, &interpreter.executable, module, only)
        })?;
        Ok(report.markdown(
            &format!("CPython {version}'s own tests"),
            "modules",
            "tests",
        ))
    }

    fn packages(&self) -> Result<String> {
        let found = interpreters::find().supported;
        let newest = found.last().context("no CPython 3.9 or later was found")?;
        let directory = test_envs::place("compat-env")?;
        let python = venv::make(newest, &directory, REQUIREMENTS)?;
        let workloads = sections(PACKAGES, "# package: ");
        let names = self.names(&workloads);
        let at = [Place::Outside, Place::Run, Place::Preloaded];
        let report = self.compare("packages", &names, &at, |place, name, _| {
            self.places.package(place, &python, name, &workloads[name])
        })?;
        let title = format!("Packages with CPython {}", newest.version_text());
        Ok(report.markdown(&title, "packages", "workloads"))
    }

    fn programs(&self) -> Result<String> {
        let scripts = sections(PROGRAMS, "# program: ");
        let names = self.names(&scripts);
        let at = [Place::Outside, Place::Exec];
        let report = self.compare("programs", &names, &at, |place, name, _| {
            self.places.program(place, name, &scripts[name])
        })?;
        Ok(report.markdown("Programs", "programs", "scripts"))
    }

    fn names(&self, sections: &BTreeMap<String, String>) -> Vec<String> {
        let asked = sections.keys().filter(|name| self.is_selected(name));
        asked.cloned().collect()
    }

    fn is_selected(&self, name: &str) -> bool {
        let part = self.options.only.as_deref().unwrap_or_default();
        name.contains(part)
    }

    /// Runs each item in all places concurrently, two items at a time, and keeps the results in a
    /// directory below the target directory.
    fn compare(
        &self,
        kept: &str,
        items: &[String],
        at: &[Place],
        run: impl Fn(Place, &str, &[String]) -> Result<Found> + Sync,
    ) -> Result<Report> {
        let kept = workspace().join("target/compat").join(kept);
        fs::create_dir_all(&kept)?;
        let report = Mutex::new(Report::new(at));
        let waiting = Mutex::new(items.iter());
        let next = || locked(&waiting).next();
        let work = || -> Result<()> {
            while let Some(item) = next() {
                let file = kept.join(format!("{}.json", item.replace('/', "_")));
                let earlier = fs::read(&file).ok().filter(|_| self.options.resume);
                if let Some(found) = earlier {
                    let found: Vec<Found> = serde_json::from_slice(&found)?;
                    locked(&report).add(item, &found);
                } else if self.until.is_some_and(|until| until < Instant::now()) {
                    locked(&report).leave_out(item);
                } else {
                    let since = Instant::now();
                    let found = in_all_places(at, item, &run);
                    fs::write(&file, serde_json::to_vec(&found)?)?;
                    let line = locked(&report).add(item, &found);
                    println!("{line}; {} s", since.elapsed().as_secs());
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let other = scope.spawn(work);
            work()?;
            // A panicked item is in no count, so the tables must not be made.
            other.join().unwrap_or_else(|panic| resume_unwind(panic))
        })?;
        Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an item in all places at once, and again inside for the tests that were lost there.
fn in_all_places(
    at: &[Place],
    item: &str,
    run: &(impl Fn(Place, &str, &[String]) -> Result<Found> + Sync),
) -> Vec<Found> {
    let run = |place: Place, only: &[String]| {
        run(place, item, only).unwrap_or_else(|error| Found {
            endings: Endings::new(),
            broken: Some(format!("{error:#}")),
        })
    };
    let mut found: Vec<Found> = thread::scope(|scope| {
        let running: Vec<_> = at
            .iter()
            .map(|place| scope.spawn(|| run(*place, &[])))
            .collect();
        let ended = running
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect()
    });
    let Some((outside, inside)) = found.split_first_mut() else {
        return found;
    };
    thread::scope(|scope| {
        for (found, place) in inside.iter_mut().zip(at.iter().skip(1)) {
            let (outside, run) = (&*outside, &run);
            scope.spawn(move || {
                for _ in 1..TRIES {
                    let lost = worth_another_try(outside, found);
                    if lost.is_empty() {
                        break;
                    }
                    let again = run(*place, &lost);
                    found.endings.extend(again.endings);
                    found.broken = again.broken;
                }
            });
        }
    });
    found
}

/// Returns the tests that pass outside but were not reached inside, or failed there although all tests were reached. A
/// test that did not end would not end the next time either.
fn worth_another_try(outside: &Found, inside: &Found) -> Vec<String> {
    let passed = outside.endings.iter().filter(|(_, how)| *how == "passed");
    let lost = passed.filter(|(test, _)| match inside.endings.get(*test) {
        None => true,
        Some(how) => inside.broken.is_none() && how.starts_with("failed"),
    });
    lost.map(|(test, _)| test.clone()).collect()
}

/// Splits a text into sections, by the name in the line above each.
fn sections(text: &str, mark: &str) -> BTreeMap<String, String> {
    let sections = text.split(mark).skip(1);
    sections
        .filter_map(|section| section.split_once('\n'))
        .map(|(name, body)| (name.trim().to_owned(), body.to_owned()))
        .collect()
}

/// Selects some of the items: the next ones each day.
fn sample(items: Vec<String>, size: usize) -> Vec<String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let day = since.unwrap_or_default().as_secs() / 86_400;
    let day = usize::try_from(day).unwrap_or_default();
    let first = day * size % items.len().max(1);
    items.into_iter().cycle().skip(first).take(size).collect()
}
