//! Boots a guest under qemu and reads its output.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cpio::newc::Builder;
use xshell::{Shell, cmd};

use super::job::{Event, Job};
use super::judge::Report;
use super::kernel::{self, Kernel};
use super::{guest, libraries};

/// How the guest's instructions are executed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Accelerator {
    /// By the CPU (`/dev/kvm`).
    Kvm,
    /// By software emulation: slower, but available everywhere.
    Tcg,
}

impl Accelerator {
    /// Returns its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "software emulation",
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // Five-level page tables only cost time here. Also, qemu 7.2 corrupts the flags
            // after cmpxchg16b, which crashes the kernel's allocator.
            Self::Tcg => [
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                "max,la57=off,cx16=off",
            ],
        }
    }
}

/// A guest's machine.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// The kernel to boot.
    pub kernel: &'a Kernel,
    /// The root file system. Writes to it are discarded.
    pub image: &'a Path,
    /// The directory with this boot's files: the initramfs, and the kernel's log.
    pub directory: &'a Path,
    /// Added to the kernel's command line.
    pub boot_options: &'a str,
}

const QEMU: &str = "qemu-system-x86_64";
/// The time within which a working kernel reports that it has booted; with a broken KVM it may hang.
const BOOTS: Duration = Duration::from_secs(60);
/// The time for boot and shutdown, in addition to the job's own deadlines.
const GRACE: Duration = Duration::from_secs(120);

/// Returns whether qemu is installed.
pub fn is_possible() -> bool {
    let mut version = Command::new(QEMU);
    version.arg("--version").stdout(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Returns KVM if a guest without a job boots with it, otherwise software emulation.
pub fn best_accelerator(machine: &Machine) -> Result<Accelerator> {
    let may_try = fs::File::options().read(true).write(true).open("/dev/kvm");
    if may_try.is_ok() {
        let initrd = initramfs(machine, "")?;
        let trial = Running::start(machine, &initrd, Accelerator::Kvm)?;
        let until = Instant::now() + BOOTS / 3;
        while let Some(line) = trial.line(until) {
            if matches!(Event::from_line(&line), Some((_, Event::Booted(_)))) {
                return Ok(Accelerator::Kvm);
            }
        }
    }
    Ok(Accelerator::Tcg)
}

/// Runs a job in a guest, and prints each line of its programs as it arrives.
pub fn run(machine: &Machine, job: &Job, accelerator: Accelerator) -> Result<Report> {
    let initrd = initramfs(machine, &serde_json::to_string(job)?)?;
    let running = Running::start(machine, &initrd, accelerator)?;
    let mut report = Report::default();
    let mut until = Instant::now() + BOOTS;
    while let Some(line) = running.line(until) {
        if let Some((_, Event::Booted(_) | Event::Began(_))) = Event::from_line(&line) {
            until = Instant::now() + job.deadline + GRACE;
        }
        if let Some(printed) = report.read_line(&line) {
            println!("{printed}");
        }
    }
    if !report.is_finished() {
        report.fail(&format!("the guest fell silent; {}", running.last_words()));
    }
    Ok(report)
}

/// Makes the initramfs: this program, the modules that it loads, and the job.
fn initramfs(machine: &Machine, job: &str) -> Result<PathBuf> {
    let init = std::env::current_exe()?;
    // The kernel opens a console for its first program, which also always reads the modules' directory.
    let mut entries = BTreeMap::from(["dev", guest::MODULES].map(|it| (PathBuf::from(it), None)));
    let mut add = |path: &str, content: Vec<u8>| {
        let path = Path::new(path.trim_start_matches('/'));
        for above in path.ancestors().skip(1).filter(|it| *it != Path::new("")) {
            entries.insert(above.to_owned(), None);
        }
        entries.insert(path.to_owned(), Some(content));
    };
    for library in libraries::of(std::slice::from_ref(&init))? {
        add(&library.display().to_string(), fs::read(&library)?);
    }
    add("init", fs::read(init)?);
    add(guest::JOB, job.as_bytes().to_vec());
    for (number, name) in kernel::MODULES.iter().enumerate() {
        if let Some(module) = machine.kernel.module(name) {
            add(
                &format!("{}/{number}-{name}.ko", guest::MODULES),
                fs::read(module)?,
            );
        }
    }
    // A directory must come before its contents.
    let entries = entries.into_iter().map(|(path, content)| {
        let mode = if content.is_some() {
            0o100_755
        } else {
            0o040_755
        };
        let entry = Builder::new(&path.to_string_lossy()).mode(mode).nlink(1);
        (entry, Cursor::new(content.unwrap_or_default()))
    });
    let path = machine.directory.join("initramfs");
    cpio::write_cpio(entries, fs::File::create(&path)?)?;
    Ok(path)
}

/// A running guest, which is killed when dropped.
struct Running {
    qemu: Child,
    lines: Receiver<String>,
    console: PathBuf,
}

impl Running {
    fn start(machine: &Machine, initrd: &Path, by: Accelerator) -> Result<Self> {
        let console = machine.directory.join("console.log");
        let options = format!(
            "console=ttyS0 loglevel=4 panic=-1 rdinit=/init {}",
            machine.boot_options
        );
        let (kernel, image) = (machine.kernel.image(), machine.image.display());
        let (console_log, by) = (console.display(), by.arguments());
        let disk = format!("file={image},if=none,id=disk,format=raw,snapshot=on");
        let serial = format!("file:{console_log}");
        let sh = Shell::new()?;
        let mut command: Command = cmd!(
            sh,
            "{QEMU} {by...} -nodefaults -no-user-config -no-reboot -display none -smp 2 -m 3072
             -kernel {kernel} -initrd {initrd} -append {options}
             -drive {disk} -device virtio-blk-pci,drive=disk -serial {serial} -serial stdio"
        )
        .into();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut qemu = command
            .spawn()
            .with_context(|| format!("could not run {QEMU}"))?;
        let output = qemu.stdout.take().context("no output")?;
        Ok(Self {
            qemu,
            lines: listen(output),
            console,
        })
    }

    /// Returns the next line; `None` after the last one or on timeout.
    fn line(&self, until: Instant) -> Option<String> {
        let left = until.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).ok()
    }

    fn last_words(&self) -> String {
        let console = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&console);
        let last: Vec<&str> = text.lines().rev().take(12).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        format!("its kernel said last:\n{}", last.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.qemu.kill();
        _ = self.qemu.wait();
    }
}

fn listen(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        let mut texts = lines.map(|line| {
            String::from_utf8_lossy(&line)
                .trim_end_matches('\r')
                .to_owned()
        });
        texts.try_for_each(|text| sender.send(text))
    });
    receiver
}
