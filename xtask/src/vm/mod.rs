//! The tests on other kernels: a guest under qemu, with cgroups of version 2 as systemd arranges
//! them. Nothing of the host is changed, and root is not needed.

mod boot;
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

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use self::boot::is_possible;
pub use self::guest::main as guest_main;

use self::boot::{Accelerator, Machine};
use self::job::{Job, Program, User};
use self::judge::Report;
use self::kernel::{Kernel, Line};
use self::levels::LEVELS;
use self::matrix::{COUNTED, Entry, Matrix};
use self::options::{Options, Purpose};
use self::situation::{Extent, SITUATIONS};
use crate::tally::Tally;
use crate::test::{binary, report, test_program};
use crate::test_envs::{self, TestEnv};
use crate::{Error, document, workspace};

/// For all programs of one guest. Emulated, everything takes ten times as long.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// Tests that say little about the kernel and take very long, or need a fast machine.
const NOT_HERE: [&str; 5] = [
    "humaneval",
    "mixed_runs",
    "sessions::stress",
    "cgroups::processor_time_is_each_runs_own",
    "cgroups::what_a_heavy_run_counted",
];

/// Runs `cargo xtask vm` with these arguments.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<ExitCode, Error> {
    let options = Options::parse(arguments)?;
    if !is_possible() {
        return Err("no qemu-system-x86_64: install it (`apt install qemu-system-x86`)".into());
    }
    let workspace = workspace();
    let guests = Guests::prepare(&workspace)?;
    let cache = guests.place.join("kernels");
    let mut kernels = Vec::new();
    for line in &options.kernels {
        kernels.push(Kernel::obtain(*line, &cache)?);
    }
    match &options.purpose {
        Purpose::Matrix => guests.matrix(&kernels, &options),
        Purpose::Tests | Purpose::Command(_) => {
            let mut tally = Tally::default();
            for kernel in &kernels {
                for user in &options.users {
                    let job = guests.job(*user, guests.programs(&options));
                    tally.add(counted(&guests.run(kernel, &job, "")?));
                }
            }
            Ok(report(&tally))
        }
    }
}

/// Runs the endings of runs on one kernel, as the user that most have: about a minute.
pub fn sample(line: Line) -> Result<Tally, Error> {
    let options = Options {
        kernels: vec![line],
        users: vec![User::Delegated],
        tests: vec!["kernel".to_owned()],
        arguments: vec!["outcomes::endings".to_owned()],
        purpose: Purpose::Tests,
    };
    let guests = Guests::prepare(&workspace())?;
    let kernel = Kernel::obtain(line, &guests.place.join("kernels"))?;
    let job = guests.job(User::Delegated, guests.programs(&options));
    Ok(counted(&guests.run(&kernel, &job, "")?))
}

/// Says how the programs of a guest ended.
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

/// What all guests have in common.
struct Guests {
    workspace: PathBuf,
    place: PathBuf,
    image: PathBuf,
    sandfork: PathBuf,
    tests: Vec<(&'static str, PathBuf)>,
    accelerator: OnceCell<Accelerator>,
}

impl Guests {
    fn prepare(workspace: &Path) -> Result<Self, Error> {
        let place = workspace.join("target/vm");
        fs::create_dir_all(&place)?;
        let python = system_python(workspace)?;
        let sandfork = binary(workspace)?;
        let mut tests = Vec::new();
        for name in COUNTED {
            tests.push((name, test_program(workspace, name)?));
        }
        let mut programs: Vec<PathBuf> = tests.iter().map(|(_, path)| path.clone()).collect();
        programs.push(sandfork.clone());
        let image = place.join("root.ext4");
        let contents = image::Contents {
            workspace,
            programs: &programs,
            python: &python,
        };
        image::make(&contents, &image)?;
        Ok(Self {
            workspace: workspace.to_owned(),
            place,
            image,
            sandfork,
            tests,
            accelerator: OnceCell::new(),
        })
    }

    fn programs(&self, options: &Options) -> Vec<Program> {
        if let Purpose::Command(command) = &options.purpose {
            let words = ["sh", "-c", command].map(str::to_owned);
            return vec![Program {
                name: "command".to_owned(),
                words: words.into(),
            }];
        }
        let is_wanted = |name: &str| {
            let named = options.tests.iter().any(|it| it == name);
            options.tests.is_empty() || named
        };
        let wanted = self.tests.iter().filter(|(name, _)| is_wanted(name));
        let program = |(name, path): &(&str, PathBuf)| {
            let mut words = vec![path.display().to_string()];
            words.extend(options.arguments.iter().cloned());
            let skipped = NOT_HERE.iter().flat_map(|name| ["--skip", name]);
            words.extend(skipped.map(str::to_owned));
            Program {
                name: (*name).to_owned(),
                words,
            }
        };
        wanted.map(program).collect()
    }

    fn job(&self, user: User, programs: Vec<Program>) -> Job {
        Job {
            user,
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

    /// Runs every situation on every kernel, and writes the document.
    fn matrix(&self, kernels: &[Kernel], options: &Options) -> Result<ExitCode, Error> {
        let mut matrix = Matrix::default();
        for kernel in kernels {
            for situation in SITUATIONS {
                let mut programs: Vec<Program> = LEVELS
                    .map(|level| levels::program(level, &self.sandfork.display().to_string()))
                    .into();
                let is_asked_for = options.users.contains(&situation.user);
                if situation.extent == Extent::Tests && is_asked_for {
                    programs.extend(self.programs(options));
                }
                let mut job = self.job(situation.user, programs);
                let owned =
                    |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
                job.settings = situation.settings.iter().map(owned).collect();
                let report = self.run(kernel, &job, situation.boot_options)?;
                matrix.entries.push(Entry { situation, report });
            }
        }
        let accelerator = self.accelerator.get().map_or("nothing", |it| it.name());
        let words: Vec<String> = std::env::args().skip(1).collect();
        let tables = matrix.render(&format!(
            "on {} by `cargo xtask {}`; guests ran by {accelerator}",
            document::today()?,
            words.join(" ")
        ));
        println!("\n{tables}");
        let hosts = self.workspace.join("docs/hosts.md");
        document::replace(&hosts, "cargo xtask vm --matrix", &tables)?;
        let defects = matrix.defects();
        for defect in &defects {
            println!("{defect}");
        }
        Ok(ExitCode::from(u8::from(!defects.is_empty())))
    }
}

/// The environment of the interpreter that every user can run.
fn system_python(workspace: &Path) -> Result<TestEnv, Error> {
    let system = fs::canonicalize(image::SYSTEM_PYTHON)
        .map_err(|error| format!("{}: {error}", image::SYSTEM_PYTHON))?;
    let envs = test_envs::make(workspace)?.envs;
    let mut envs = envs.into_iter();
    envs.find(|env| env.interpreter.executable == system)
        .ok_or_else(|| format!("no environment was made of {}", system.display()).into())
}
