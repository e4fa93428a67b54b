//! Runs the tests on other kernels in qemu guests, with cgroups of version 2 arranged as
//! systemd does. Changes nothing on the host and does not need root.

mod boot;
mod cgroup_bench;
mod cgroups;
mod guest;
mod image;
mod job;
mod judge;
mod kernel;
mod levels;
mod libraries;
mod matrix;
mod programs;
mod situation;
mod stage;
mod suite;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;

pub use self::boot::is_possible;
pub use self::guest::main as guest_main;

use self::boot::{Accelerator, Machine};
use self::job::{Cgroups, Job, Program, User};
use self::judge::Report;
use self::kernel::{Kernel, Line};
use self::levels::LEVELS;
use self::matrix::Matrix;
use self::situation::{Extent, SITUATIONS, Situation};
use self::suite::{Prepared, Suite};
use crate::interpreters::Interpreter;
use crate::tally::Tally;
use crate::test::{binary, built};
use crate::test_envs::{self, TestEnv};
use crate::{document, workspace};

/// The time limit of each program in a guest. Under emulation, everything takes ten times as long.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// The command that measures the cost of a cgroup.
const BENCH: &str = "cargo xtask verify vm --bench";
/// The command that determines the levels of each kind of host.
const MATRIX: &str = "cargo xtask verify vm --matrix";

#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The kernels; each is booted once per user
    #[arg(long = "kernel", value_enum, default_values = ["6.1", "6.12"])]
    kernels: Vec<Line>,
    /// The users who run the tests; the remaining ones differ only in their cgroup
    #[arg(long = "user", value_enum, default_values = ["root", "delegated", "plain"])]
    users: Vec<User>,
    /// The cgroup version
    #[arg(long, value_enum, default_value = "v2")]
    cgroups: Cgroups,
    /// The tests; by default all
    #[arg(long = "test", value_enum)]
    tests: Vec<Suite>,
    /// Set a kernel parameter under /proc/sys, such as kernel/yama/ptrace_scope=2
    #[arg(long = "setting", value_parser = setting, conflicts_with_all = ["bench", "matrix"])]
    settings: Vec<(String, String)>,
    /// Run this shell command instead of tests
    #[arg(long)]
    command: Option<String>,
    /// Measure the cost of a cgroup, for the documentation
    #[arg(long, conflicts_with = "command")]
    bench: bool,
    /// Determine the levels of each kind of host, for the documentation
    #[arg(long, conflicts_with_all = ["command", "bench"])]
    matrix: bool,
    /// Keep the suites of earlier matrices that did not fail, including those not selected now
    #[arg(long, requires = "matrix")]
    resume: bool,
    /// Arguments for each test
    #[arg(last = true)]
    arguments: Vec<String>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').ok_or("NAME=VALUE is missing")?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

/// Returns the name of a value on the command line, in files and in tables.
fn name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Runs `cargo xtask verify vm`.
pub fn run(mut options: Options) -> Result<()> {
    ensure!(
        is_possible(),
        "no qemu-system-x86_64: install it (`apt install qemu-system-x86`)"
    );
    if options.tests.is_empty() {
        options.tests = Suite::value_variants().to_vec();
    }
    let subject = if options.bench {
        options.tests.clear();
        built("spawn", &["bench", "--no-run", "--bench", "spawn"])?
    } else {
        binary("emulated")?
    };
    let guests = Guests::prepare(options, subject, "emulated")?;
    if guests.options.bench {
        guests.bench()
    } else if guests.options.matrix {
        guests.matrix()
    } else {
        guests.test()?.report()
    }
}

/// Runs the tests of how runs end on one kernel, as the most common kind of user: about a minute.
pub fn sample(line: &str) -> Result<Tally> {
    let options = Options {
        kernels: vec![Line::from_str(line, false).map_err(|error| anyhow!("{line}: {error}"))?],
        users: vec![User::Delegated],
        cgroups: Cgroups::V2,
        tests: vec![Suite::Kernel],
        settings: Vec::new(),
        command: None,
        bench: false,
        matrix: false,
        resume: false,
        arguments: vec!["outcomes::endings".to_owned()],
    };
    // Uses the existing debug build: for so few tests, a new build would take longer than it saves.
    Guests::prepare(options, binary("dev")?, "dev")?.test()
}

/// State that all guests share.
struct Guests {
    options: Options,
    workspace: PathBuf,
    place: PathBuf,
    image: PathBuf,
    /// The program under test: the command, or the benchmark.
    subject: PathBuf,
    tests: Vec<Prepared>,
    kernels: Vec<Kernel>,
    accelerator: Accelerator,
}

impl Guests {
    /// Builds everything with a profile of Cargo.toml.
    fn prepare(options: Options, subject: PathBuf, profile: &str) -> Result<Self> {
        let workspace = workspace();
        let place = workspace.join("target/vm");
        fs::create_dir_all(&place)?;
        let python = system_python()?;
        let tests = options
            .tests
            .iter()
            .map(|suite| suite.prepare(&python, profile));
        let tests: Vec<Prepared> = tests.collect::<Result<_>>()?;
        let mut programs: Vec<PathBuf> = tests.iter().map(|it| it.executable.clone()).collect();
        programs.push(subject.clone());
        let image = place.join("root.ext4");
        let contents = image::Contents {
            workspace: &workspace,
            programs: &programs,
            python: &python,
            client: tests.iter().find_map(Prepared::client),
        };
        image::make(&contents, &image)?;
        let cache = place.join("kernels");
        let kernels = options
            .kernels
            .iter()
            .map(|line| Kernel::obtain(*line, &cache));
        let kernels: Vec<Kernel> = kernels.collect::<Result<_>>()?;
        let accelerator = boot::best_accelerator(&Machine {
            kernel: kernels.first().context("no kernel")?,
            image: &image,
            directory: &place,
            boot_options: "",
        })?;
        Ok(Self {
            options,
            workspace,
            place,
            image,
            subject,
            tests,
            kernels,
            accelerator,
        })
    }

    /// Runs the tests, or the command, as each user on each kernel.
    fn test(&self) -> Result<Tally> {
        let mut sum = Tally::default();
        for kernel in &self.kernels {
            for user in &self.options.users {
                let job = Job {
                    cgroups: self.options.cgroups,
                    ..self.job(*user, self.programs(*user))
                };
                let ran = self.run(kernel, &job, "")?;
                println!();
                for program in &ran.programs {
                    let tally = program.tally();
                    println!("  {}: {}", program.name, tally.counts());
                    sum.add(tally);
                }
                if let Some(why) = ran.failure() {
                    println!("  {why}");
                    sum.fail_if_successful();
                }
            }
        }
        Ok(sum)
    }

    fn programs(&self, user: User) -> Vec<Program> {
        if let Some(command) = &self.options.command {
            return vec![Program {
                name: "command".to_owned(),
                words: ["sh", "-c", command].map(str::to_owned).into(),
            }];
        }
        let arguments = &self.options.arguments;
        let program = |test: &Prepared| test.program(&self.workspace, &self.subject, arguments);
        let tests = self.tests.iter().filter(|test| test.suite.is_for(user));
        tests.map(program).collect()
    }

    fn job(&self, user: User, programs: Vec<Program>) -> Job {
        Job {
            user,
            cgroups: Cgroups::V2,
            settings: self.options.settings.clone(),
            programs,
            directory: self.workspace.clone(),
            deadline: DEADLINE,
        }
    }

    fn run(&self, kernel: &Kernel, job: &Job, boot_options: &str) -> Result<Report> {
        let machine = Machine {
            kernel,
            image: &self.image,
            directory: &self.place,
            boot_options,
        };
        let (version, by, user) = (&kernel.version, self.accelerator.name(), name(&job.user));
        println!("\nLinux {version} by {by}: {user} {boot_options}");
        let since = Instant::now();
        let report = boot::run(&machine, job, self.accelerator)?;
        println!("{} s", since.elapsed().as_secs());
        Ok(report)
    }

    /// Measures on every kernel with every kind of cgroup, and updates the document.
    fn bench(&self) -> Result<()> {
        let mut found = Vec::new();
        for kernel in &self.kernels {
            for cgroups in Cgroups::value_variants() {
                let measure = cgroup_bench::program(&self.subject, &self.workspace);
                let job = Job {
                    cgroups: *cgroups,
                    ..self.job(User::Root, vec![measure])
                };
                found.push((*cgroups, self.run(kernel, &job, "")?));
            }
        }
        let table = cgroup_bench::table(&found)?;
        println!("\n{table}");
        let text = format!("Made {}.\n\n{table}", self.made(BENCH)?);
        document::replace("performance.md", BENCH, &text)
    }

    /// Returns the command, the date and the machine of a result.
    fn made(&self, command: &str) -> Result<String> {
        let (today, accelerator) = (document::today()?, self.accelerator.name());
        Ok(format!(
            "on {today} by `{command}`; guests ran by {accelerator}"
        ))
    }

    /// Runs every situation on the kernels, and puts the results into the document if no kernel was left out.
    fn matrix(&self) -> Result<()> {
        let mut matrix = Matrix::default();
        for kernel in &self.kernels {
            let line = name(&kernel.line);
            for (number, situation) in SITUATIONS.into_iter().enumerate() {
                let kept = self.place.join(format!("matrix-{line}-{number}.json"));
                let mut report = match fs::read(&kept) {
                    Ok(report) if self.options.resume => serde_json::from_slice(&report)?,
                    _ => Report::default(),
                };
                if let Some(later) = self.situation(kernel, situation, &report)? {
                    report.update(later);
                    fs::write(&kept, serde_json::to_vec(&report)?)?;
                }
                matrix.entries.push((situation, report));
            }
        }
        let only = match self.options.arguments.as_slice() {
            [] => String::new(),
            some => format!(" -- {}", some.join(" ")),
        };
        let tables = matrix.render(&self.made(&format!("{MATRIX}{only}"))?);
        println!("\n{tables}");
        if self.kernels.len() == Line::value_variants().len() {
            document::replace("hosts.md", MATRIX, &tables)?;
        }
        let defects = matrix.defects();
        ensure!(defects.is_empty(), "{}", defects.join("\n"));
        Ok(())
    }

    /// Runs in a situation what has no result yet. Returns `None` if nothing is left to run.
    fn situation(
        &self,
        kernel: &Kernel,
        situation: Situation,
        known: &Report,
    ) -> Result<Option<Report>> {
        let subject = self.subject.display().to_string();
        let levels = LEVELS.map(|level| levels::program(level, &subject));
        let mut programs: Vec<Program> = levels.into();
        let is_selected = self.options.users.contains(&situation.user);
        if situation.extent == Extent::Tests && is_selected {
            programs.extend(self.programs(situation.user));
        }
        programs.retain(|program| !known.is_done(&program.name));
        if programs.is_empty() {
            return Ok(None);
        }
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let job = Job {
            settings: situation.settings.iter().map(owned).collect(),
            ..self.job(situation.user, programs)
        };
        self.run(kernel, &job, situation.boot_options).map(Some)
    }
}

/// Returns the environment of the interpreter that every user can execute.
fn system_python() -> Result<TestEnv> {
    let system = image::SYSTEM_PYTHON;
    let interpreter = Interpreter::ask(Path::new(system)).filter(Interpreter::is_supported);
    let interpreter =
        interpreter.with_context(|| format!("{system} is no CPython 3.9 or later"))?;
    test_envs::make_for(&interpreter)
}
