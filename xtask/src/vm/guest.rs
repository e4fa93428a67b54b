//! Runs inside the guest, as process 1: first from the initramfs, to mount the disk, then
//! from the disk.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::termios::{self, SetArg};
use nix::unistd::{chdir, chroot};

use super::job::{Event, Job, User};
use super::{cgroups, image, programs};

/// The file with the guest's job.
pub const JOB: &str = "job.json";
/// The directory with the modules, which are loaded in the order of their names.
pub const MODULES: &str = "modules";

/// The serial line for results; the kernel uses the first line.
const RESULTS: &str = "/dev/ttyS1";
const DISK: &str = "/dev/vda";
/// How long a disk may take to appear: the kernel probes disks while the first program already
/// runs.
const DISK_APPEARS: Duration = Duration::from_secs(30);

/// Runs the job and powers the machine off.
pub fn main() -> ! {
    if let Err(error) = work() {
        eprintln!("{error:#}");
        report(&Event::Failed(format!("{error:#}")));
    }
    nix::unistd::sync();
    // Unlike a power-off, a restart needs no firmware. The host treats it as the end.
    _ = reboot(RebootMode::RB_AUTOBOOT);
    loop {
        std::thread::park();
    }
}

fn work() -> Result<()> {
    mount_at("devtmpfs", "/dev", "mode=0755")?;
    raw(&OpenOptions::new().read(true).write(true).open(RESULTS)?)?;
    mount_at("proc", "/proc", "")?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    report(&Event::Booted(release.trim().to_owned()));
    let job: Job = serde_json::from_str(&fs::read_to_string(Path::new("/").join(JOB))?)?;
    load_modules()?;
    enter_disk()?;
    mount_rest()?;
    for (name, value) in &job.settings {
        let path = Path::new("/proc/sys").join(name);
        fs::write(&path, value).with_context(|| path.display().to_string())?;
    }
    loopback_up()?;
    let home = match job.user {
        User::Root => "/root",
        _ => "/home/ordinary",
    };
    cgroups::mount(job.cgroups)?;
    programs::run(&job, Path::new(home), &report)
}

/// Reports an event. If that fails, the host reports the missing event.
fn report(event: &Event) {
    forward_output(format!("\n{}\n", event.to_line()).as_bytes());
}

/// Forwards a program's output.
pub fn forward_output(bytes: &[u8]) {
    if let Ok(mut results) = File::options().write(true).open(RESULTS) {
        _ = results.write_all(bytes);
    }
}

/// Sets the line to raw mode, so that bytes pass unchanged.
fn raw(line: &File) -> Result<()> {
    let mut settings = termios::tcgetattr(line)?;
    termios::cfmakeraw(&mut settings);
    Ok(termios::tcsetattr(line, SetArg::TCSANOW, &settings)?)
}

/// Mounts a file system at a directory, which is created if it is missing.
pub fn mount_at(kind: &str, place: &str, options: &str) -> Result<()> {
    fs::create_dir_all(place)?;
    let flags = MsFlags::MS_NOSUID;
    let done = mount(Some(kind), place, Some(kind), flags, Some(options));
    done.with_context(|| format!("mount {place}"))
}

fn load_modules() -> Result<()> {
    let mut modules: Vec<_> = fs::read_dir(Path::new("/").join(MODULES))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    modules.sort();
    for module in modules {
        let loaded = nix::kmod::finit_module(
            &File::open(&module)?,
            c"",
            nix::kmod::ModuleInitFlags::empty(),
        );
        loaded.with_context(|| module.display().to_string())?;
    }
    Ok(())
}

/// Does what switch_root(8) does. The root is then a separate mount, which pivot_root(2) can leave.
fn enter_disk() -> Result<()> {
    let since = Instant::now();
    while !fs::metadata(DISK).is_ok_and(|disk| disk.file_type().is_block_device()) {
        ensure!(since.elapsed() <= DISK_APPEARS, "{DISK} does not appear");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::create_dir_all("/disk")?;
    let none: Option<&str> = None;
    mount(Some(DISK), "/disk", Some("ext4"), MsFlags::empty(), none)
        .with_context(|| format!("mount {DISK}"))?;
    for moved in ["/dev", "/proc"] {
        let place = format!("/disk{moved}");
        mount(Some(moved), place.as_str(), none, MsFlags::MS_MOVE, none)?;
    }
    chdir("/disk")?;
    mount(Some("/disk"), "/", none, MsFlags::MS_MOVE, none)?;
    chroot(".")?;
    // As systemd does.
    mount(none, "/", none, MsFlags::MS_SHARED | MsFlags::MS_REC, none)?;
    Ok(chdir("/")?)
}

fn mount_rest() -> Result<()> {
    mount_at("sysfs", "/sys", "")?;
    mount_at("tmpfs", "/run", "mode=0755")?;
    mount_at("tmpfs", "/dev/shm", "mode=1777")?;
    mount_at("devpts", "/dev/pts", "gid=0,mode=0620,ptmxmode=0666")?;
    mount_at("mqueue", "/dev/mqueue", "")?;
    // As udev does.
    for (link, target) in [
        ("fd", ""),
        ("stdin", "/0"),
        ("stdout", "/1"),
        ("stderr", "/2"),
    ] {
        symlink(
            format!("/proc/self/fd{target}"),
            Path::new("/dev").join(link),
        )?;
    }
    Ok(())
}

/// Brings up the loopback interface, in Python because Rust has no safe call for it.
fn loopback_up() -> Result<()> {
    let up = "import fcntl, socket, struct\n\
              up_and_running = struct.pack('16sH22x', b'lo', 0x1 | 0x40)\n\
              fcntl.ioctl(socket.socket(), 0x8914, up_and_running)";
    let status = Command::new(image::SYSTEM_PYTHON)
        .args(["-I", "-c", up])
        .status()?;
    ensure!(
        status.success(),
        "the loopback interface stays down: {status}"
    );
    Ok(())
}
