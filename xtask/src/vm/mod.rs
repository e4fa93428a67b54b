//! Runs the tests on other kernels: a guest under qemu, with cgroups of version 2 arranged like
//! systemd's. It changes nothing on the host and does not need root.

mod boot;
mod cgroup_bench;
mod cgroups;
mod cpio;
mod guest;
mod image;
mod job;
mod judge;
mod kernel;
mod levels;
mod libraries;
mod matrix;
mod options;
mod programs;
mod situation;
mod stage;
mod suite;

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use self::boot::is_possible;
pub use self::guest::main as guest_main;

use self::boot::{Accelerator, Machine};
use self::job::{Cgroups, Job, Program, User};
use self::judge::Report;
use self::kernel::{Kernel, Line};
use self::levels::LEVELS;
use self::matrix::{Entry, Matrix};
use self::options::{Earlier, Options, Purpose};
use self::situation::{Extent, SITUATIONS, Situation};
use self::suite::{Prepared, Suite};
use crate::interpreters::Interpreter;
use crate::tally::Tally;
use crate::test::{Profile, binary, report};
use crate::test_envs::{self, TestEnv};
use crate::{Error, document, workspace};

/// The time limit of each program in a guest. Under emulation, everything takes ten times as long.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// The command that measures the cost of a cgroup.
const BENCH: &str = "cargo xtask verify vm --bench";

/// Runs `cargo xtask verify vm` with these arguments.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<ExitCode, Error> {
    let options = Options::parse(arguments)?;
    if !is_possible() {
        return Err("no qemu-system-x86_64: install it (`apt install qemu-system-x86`)".into());
    }
    let workspace = workspace();
    let profile = Profile::Emulated;
    let (subject, suites) = if options.purpose == Purpose::Bench {
        (cgroup_bench::build(&workspace)?, &[][..])
    } else {
        (binary(&workspace, profile)?, options.tests.as_slice())
    };
    let guests = Guests::prepare(&workspace, suites, subject, profile)?;
    let cache = guests.place.join("kernels");
    let mut kernels = Vec::new();
    for line in &options.kernels {
        kernels.push(Kernel::obtain(*line, &cache)?);
    }
    match &options.purpose {
        Purpose::Matrix => guests.matrix(&kernels, &options),
        Purpose::Bench => guests.bench(&kernels),
        Purpose::Tests | Purpose::Command(_) => {
            let mut tally = Tally::default();
            for kernel in &kernels {
                for user in &options.users {
                    let job = Job {
                        cgroups: options.cgroups,
                        ..guests.job(*user, guests.programs(&options, *user))
                    };
                    tally.add(counted(&guests.run(kernel, &job, "")?));
                }
            }
            Ok(report(&tally))
        }
    }
}

/// Runs the tests of how runs end on one kernel, as the most common kind of user: about a minute.
pub fn sample(line: Line) -> Result<Tally, Error> {
    let options = Options {
        kernels: vec![line],
        users: vec![User::Delegated],
        cgroups: Cgroups::V2,
        tests: vec![Suite::Kernel],
        arguments: vec!["outcomes::endings".to_owned()],
        purpose: Purpose::Tests,
        earlier: Earlier::Discard,
    };
    // Uses the existing debug build: for so few tests, a new build would take longer than it saves.
    let sandfork = binary(&workspace(), Profile::Dev)?;
    let guests = Guests::prepare(&workspace(), &options.tests, sandfork, Profile::Dev)?;
    let kernel = Kernel::obtain(line, &guests.place.join("kernels"))?;
    let job = guests.job(User::Delegated, guests.programs(&options, User::Delegated));
    Ok(counted(&guests.run(&kernel, &job, "")?))
}

/// Counts how the programs of a guest ended.
fn counted(ran: &Report) -> Tally {
    let mut sum = Tally::default();
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
    sum
}

/// The settings that all guests share.
struct Guests {
    workspace: PathBuf,
    place: PathBuf,
    image: PathBuf,
    /// The program under test: the command, or the benchmark.
    subject: PathBuf,
    tests: Vec<Prepared>,
    accelerator: OnceCell<Accelerator>,
}

impl Guests {
    fn prepare(
        workspace: &Path,
        suites: &[Suite],
        subject: PathBuf,
        profile: Profile,
    ) -> Result<Self, Error> {
        let place = workspace.join("target/vm");
        fs::create_dir_all(&place)?;
        let python = system_python(workspace)?;
        let mut tests = Vec::new();
        for suite in suites {
            tests.push(suite.prepare(workspace, &python, profile)?);
        }
        let mut programs: Vec<PathBuf> = tests.iter().map(|it| it.executable.clone()).collect();
        programs.push(subject.clone());
        let image = place.join("root.ext4");
        let contents = image::Contents {
            workspace,
            programs: &programs,
            python: &python,
            client: tests.iter().find_map(Prepared::client),
        };
        image::make(&contents, &image)?;
        Ok(Self {
            workspace: workspace.to_owned(),
            place,
            image,
            subject,
            tests,
            accelerator: OnceCell::new(),
        })
    }

    fn programs(&self, options: &Options, user: User) -> Vec<Program> {
        if let Purpose::Command(command) = &options.purpose {
            let words = ["sh", "-c", command].map(str::to_owned);
            return vec![Program {
                name: "command".to_owned(),
                words: words.into(),
            }];
        }
        let program =
            |test: &Prepared| test.program(&self.workspace, &self.subject, &options.arguments);
        let tests = self.tests.iter().filter(|test| test.suite.is_for(user));
        tests.map(program).collect()
    }

    fn job(&self, user: User, programs: Vec<Program>) -> Job {
        Job {
            user,
            cgroups: Cgroups::V2,
            settings: Vec::new(),
            programs,
            directory: self.workspace.clone(),
            deadline: DEADLINE,
        }
    }

    fn run(&self, kernel: &Kernel, job: &Job, boot_options: &str) -> Result<Report, Error> {
        let machine = Machine {
            kernel,
            image: &self.image,
            directory: &self.place,
            boot_options,
        };
        let accelerator = match self.accelerator.get() {
            Some(known) => *known,
            None => *self.accelerator.get_or_init({
                let found = boot::best_accelerator(&machine)?;
                move || found
            }),
        };
        println!(
            "\nLinux {} by {}: {} {boot_options}",
            kernel.version,
            accelerator.name(),
            job.user.name()
        );
        let since = Instant::now();
        let report = boot::run(&machine, job, accelerator)?;
        println!("{} s", since.elapsed().as_secs());
        Ok(report)
    }

    /// Measures on every kernel with every kind of cgroup, and updates the document.
    fn bench(&self, kernels: &[Kernel]) -> Result<ExitCode, Error> {
        let mut found = Vec::new();
        for kernel in kernels {
            for cgroups in Cgroups::ALL {
                let measure = cgroup_bench::program(&self.subject, &self.workspace);
                let job = Job {
                    cgroups,
                    ..self.job(User::Root, vec![measure])
                };
                found.push((cgroups, self.run(kernel, &job, "")?));
            }
        }
        let table = cgroup_bench::table(&found)?;
        println!("\n{table}");
        let text = format!("Made {}.\n\n{table}", self.made(BENCH)?);
        let document = self.workspace.join("docs/performance.md");
        document::replace(&document, BENCH, &text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The command, the date and the machine of a result.
    fn made(&self, command: &str) -> Result<String, Error> {
        let accelerator = self.accelerator.get().map_or("nothing", |it| it.name());
        let today = document::today()?;
        Ok(format!(
            "on {today} by `{command}`; guests ran by {accelerator}"
        ))
    }

    /// Runs every situation on every kernel, and puts the results of each into the document.
    fn matrix(&self, kernels: &[Kernel], options: &Options) -> Result<ExitCode, Error> {
        let mut defects = Vec::new();
        for kernel in kernels {
            let mut matrix = Matrix::default();
            for (number, situation) in SITUATIONS.into_iter().enumerate() {
                let kept = format!("matrix-{}-{number}.json", kernel.line.name());
                let kept = self.place.join(kept);
                if options.earlier == Earlier::Discard && kept.exists() {
                    fs::remove_file(&kept)?;
                }
                let report: Report = match fs::read(&kept) {
                    Ok(report) => serde_json::from_slice(&report)?,
                    Err(_) => self.situation(kernel, situation, options)?,
                };
                if report.is_success() {
                    fs::write(&kept, serde_json::to_vec(&report)?)?;
                }
                matrix.entries.push(Entry { situation, report });
            }
            let command = format!(
                "cargo xtask verify vm --matrix --kernel {}",
                kernel.line.name()
            );
            let words: Vec<&str> = options.arguments.iter().map(String::as_str).collect();
            let only = match words.as_slice() {
                [] => String::new(),
                some => format!(" -- {}", some.join(" ")),
            };
            let tables = matrix.render(&self.made(&format!("{command}{only}"))?);
            println!("\n{tables}");
            document::replace(&self.workspace.join("docs/hosts.md"), &command, &tables)?;
            defects.extend(matrix.defects());
        }
        for defect in &defects {
            println!("{defect}");
        }
        Ok(ExitCode::from(u8::from(!defects.is_empty())))
    }

    fn situation(
        &self,
        kernel: &Kernel,
        situation: Situation,
        options: &Options,
    ) -> Result<Report, Error> {
        let subject = self.subject.display().to_string();
        let levels = LEVELS.map(|level| levels::program(level, &subject));
        let mut programs: Vec<Program> = levels.into();
        let is_asked_for = options.users.contains(&situation.user);
        if situation.extent == Extent::Tests && is_asked_for {
            programs.extend(self.programs(options, situation.user));
        }
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let job = Job {
            settings: situation.settings.iter().map(owned).collect(),
            ..self.job(situation.user, programs)
        };
        self.run(kernel, &job, situation.boot_options)
    }
}

/// The environment of the interpreter that every user can run.
fn system_python(workspace: &Path) -> Result<TestEnv, Error> {
    let system = Path::new(image::SYSTEM_PYTHON);
    let interpreter = Interpreter::ask(system).filter(Interpreter::is_supported);
    let interpreter =
        interpreter.ok_or_else(|| format!("{} is no CPython 3.9 or later", system.display()))?;
    test_envs::make_for(workspace, &interpreter)
}
