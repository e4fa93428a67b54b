//! Inside: this program as process 1. First in the initramfs, to reach the disk; then on it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::termios::{self, SetArg};
use nix::unistd::{chdir, chroot};

use super::job::{Event, Job, User};
use super::{cgroups, image, programs};
use crate::Error;

/// Where the host put what the guest is to do.
pub const JOB: &str = "job.json";
/// Where it put the modules, in the order of their names.
pub const MODULES: &str = "modules";

/// The line on which results are told; the first is the kernel's own.
const RESULTS: &str = "/dev/ttyS1";
const DISK: &str = "/dev/vda";
/// Disks are found while the first program already runs.
const DISK_APPEARS: Duration = Duration::from_secs(30);

/// Never returns: the machine is switched off.
pub fn main() -> ! {
    if let Err(error) = work() {
        eprintln!("{error}");
        tell(&Event::Failed(error.to_string()));
    }
    nix::unistd::sync();
    // A restart, which the host takes for the end, needs no firmware, as switching off does.
    _ = reboot(RebootMode::RB_AUTOBOOT);
    loop {
        std::thread::park();
    }
}

fn work() -> Result<(), Error> {
    mount_at("devtmpfs", "/dev", "mode=0755")?;
    raw(&OpenOptions::new().read(true).write(true).open(RESULTS)?)?;
    mount_at("proc", "/proc", "")?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    tell(&Event::Booted(release.trim().to_owned()));
    let job = Job::from_json(&fs::read_to_string(Path::new("/").join(JOB))?)?;
    load_modules()?;
    enter_disk()?;
    mount_rest()?;
    for (name, value) in &job.settings {
        let path = Path::new("/proc/sys").join(name);
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    loopback_up()?;
    let home = match job.user {
        User::Root => "/root",
        _ => "/home/ordinary",
    };
    let place = cgroups::arrange(job.user)?;
    programs::run(&job, &place, Path::new(home), &tell)
}

/// Whatever cannot be told is missed by the host, which then says so.
fn tell(event: &Event) {
    say(format!("\n{}\n", event.to_line()).as_bytes());
}

/// Passes on what a program prints.
pub fn say(bytes: &[u8]) {
    if let Ok(mut results) = File::options().write(true).open(RESULTS) {
        _ = results.write_all(bytes);
    }
}

/// Lines arrive as they are written.
fn raw(line: &File) -> Result<(), Error> {
    let mut settings = termios::tcgetattr(line)?;
    termios::cfmakeraw(&mut settings);
    Ok(termios::tcsetattr(line, SetArg::TCSANOW, &settings)?)
}

fn mount_at(kind: &str, place: &str, options: &str) -> Result<(), Error> {
    fs::create_dir_all(place)?;
    let flags = MsFlags::MS_NOSUID;
    let done = mount(Some(kind), place, Some(kind), flags, Some(options));
    done.map_err(|errno| format!("mount {place}: {errno}").into())
}

fn load_modules() -> Result<(), Error> {
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
        loaded.map_err(|errno| format!("{}: {errno}", module.display()))?;
    }
    Ok(())
}

/// What switch_root(8) does. The root is then a mount of its own, which pivot_root(2) can leave.
fn enter_disk() -> Result<(), Error> {
    let since = Instant::now();
    while !fs::metadata(DISK).is_ok_and(|disk| disk.file_type().is_block_device()) {
        if since.elapsed() > DISK_APPEARS {
            return Err(format!("{DISK} does not appear").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::create_dir_all("/disk")?;
    let none: Option<&str> = None;
    mount(Some(DISK), "/disk", Some("ext4"), MsFlags::empty(), none)
        .map_err(|errno| format!("mount {DISK}: {errno}"))?;
    for moved in ["/dev", "/proc"] {
        let place = format!("/disk{moved}");
        mount(Some(moved), place.as_str(), none, MsFlags::MS_MOVE, none)?;
    }
    chdir("/disk")?;
    mount(Some("/disk"), "/", none, MsFlags::MS_MOVE, none)?;
    chroot(".")?;
    // As systemd has it.
    mount(none, "/", none, MsFlags::MS_SHARED | MsFlags::MS_REC, none)?;
    Ok(chdir("/")?)
}

fn mount_rest() -> Result<(), Error> {
    mount_at("sysfs", "/sys", "")?;
    mount_at("tmpfs", "/run", "mode=0755")?;
    mount_at("tmpfs", "/dev/shm", "mode=1777")?;
    mount_at("devpts", "/dev/pts", "gid=0,mode=0620,ptmxmode=0666")?;
    mount_at("mqueue", "/dev/mqueue", "")?;
    mount_at(
        "cgroup2",
        "/sys/fs/cgroup",
        "nsdelegate,memory_recursiveprot",
    )
}

/// There is no safe call for it but Python's.
fn loopback_up() -> Result<(), Error> {
    let up = "import fcntl, socket, struct\n\
              up_and_running = struct.pack('16sH22x', b'lo', 0x1 | 0x40)\n\
              fcntl.ioctl(socket.socket(), 0x8914, up_and_running)";
    let status = Command::new(image::SYSTEM_PYTHON)
        .args(["-I", "-c", up])
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the loopback interface stays down: {status}").into())
    }
}
