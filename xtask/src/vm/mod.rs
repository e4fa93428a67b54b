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
mod libraries;
mod options;
mod programs;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use self::guest::main as guest_main;

use self::boot::Machine;
use self::job::{Job, Program, User};
use self::judge::Report;
use self::kernel::Kernel;
use self::options::Options;
use crate::tally::Tally;
use crate::test::{binary, report, test_program};
use crate::test_envs::{self, TestEnv};
use crate::{Error, workspace};

/// The programs whose tests depend on the kernel.
const TESTS: [&str; 4] = ["kernel", "landlock_level", "seccomp_kernel", "escape"];

/// For all programs of one guest. Emulated, everything takes ten times as long.
const DEADLINE: Duration = Duration::from_secs(45 * 60);

/// Runs `cargo xtask vm` with these arguments.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<ExitCode, Error> {
    let options = Options::parse(arguments)?;
    if !boot::is_possible() {
        return Err("no qemu-system-x86_64: install it (`apt install qemu-system-x86`)".into());
    }
    let workspace = workspace();
    let place = workspace.join("target/vm");
    fs::create_dir_all(&place)?;
    let guests = Guests::prepare(&workspace, &place)?;
    let mut tally = Tally::default();
    for line in &options.kernels {
        let kernel = Kernel::obtain(*line, &place.join("kernels"))?;
        for user in &options.users {
            let since = Instant::now();
            let job = guests.tests(*user, &options);
            let ran = guests.run(&kernel, &job)?;
            println!(
                "\nLinux {}, {}: {} s",
                ran.release,
                user.name(),
                since.elapsed().as_secs()
            );
            tally.add(judged(&ran));
        }
    }
    Ok(report(&tally))
}

fn judged(ran: &Report) -> Tally {
    let mut sum = Tally::default();
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
    programs: Vec<(&'static str, PathBuf)>,
}

impl Guests {
    fn prepare(workspace: &Path, place: &Path) -> Result<Self, Error> {
        let python = system_python(workspace)?;
        let sandfork = binary(workspace)?;
        let mut programs = Vec::new();
        for name in TESTS {
            programs.push((name, test_program(workspace, name)?));
        }
        let mut files: Vec<PathBuf> = programs.iter().map(|(_, path)| path.clone()).collect();
        files.push(sandfork);
        let image = place.join("root.ext4");
        let contents = image::Contents {
            workspace,
            programs: &files,
            python: &python,
        };
        image::make(&contents, &image)?;
        Ok(Self {
            workspace: workspace.to_owned(),
            place: place.to_owned(),
            image,
            programs,
        })
    }

    fn tests(&self, user: User, options: &Options) -> Job {
        let wanted = self
            .programs
            .iter()
            .filter(|(name, _)| options.tests.is_empty() || options.tests.iter().any(|it| it == name));
        let program = |(name, path): &(&str, PathBuf)| {
            let mut words = vec![path.display().to_string()];
            words.extend(options.arguments.iter().cloned());
            Program {
                name: (*name).to_owned(),
                words,
            }
        };
        Job {
            user,
            settings: Vec::new(),
            programs: wanted.map(program).collect(),
            directory: self.workspace.clone(),
            deadline: DEADLINE,
        }
    }

    fn run(&self, kernel: &Kernel, job: &Job) -> Result<Report, Error> {
        let machine = Machine {
            kernel,
            image: &self.image,
            directory: &self.place,
            boot_options: "",
        };
        let accelerator = boot::best_accelerator(&machine)?;
        println!(
            "\nbooting Linux {} by {}, for {}",
            kernel.version,
            accelerator.name(),
            job.user.name()
        );
        boot::run(&machine, job, accelerator)
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
