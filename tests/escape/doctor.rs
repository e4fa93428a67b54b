//! What this machine cannot show, and why: the only source of skips.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::FsFlags;
use serde_json::Value;

use crate::account::{Account, User};
use crate::capture::capture;
use crate::control::control_user;
use crate::probe::{Launch, Need, Probe};
use crate::world::Party;

/// What `sandfork doctor --json` says for one user.
pub struct Doctor {
    namespaces: Result<(), String>,
    cgroup: Result<(), String>,
}

/// Why a test cannot be run here.
pub enum Skip {
    /// By the machine; nothing in reach of its user mends it.
    Forced(String),
    /// By its configuration.
    Mendable(String),
}

impl Doctor {
    pub fn ask(account: &Account, sandfork: &Path) -> Self {
        let arguments: [PathBuf; 3] = [sandfork.into(), "doctor".into(), "--json".into()];
        let answer = capture(account.command(Launch::Plain, &arguments), "");
        // A doctor that says nothing is no reason to skip anything.
        let answer: Value = answer
            .ok()
            .and_then(|captured| serde_json::from_str(&captured.stdout).ok())
            .unwrap_or_default();
        Self {
            namespaces: layer(&answer, "namespaces"),
            cgroup: layer(&answer, "cgroup"),
        }
    }
}

fn layer(answer: &Value, name: &str) -> Result<(), String> {
    let layers = answer["layers"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    match layers.iter().find(|layer| layer["layer"] == name) {
        Some(layer) if layer["state"] == "no" => Err(format!(
            "doctor: {name}: {}",
            layer["why"].as_str().unwrap_or("absent")
        )),
        _ => Ok(()),
    }
}

/// Whether the open control of `probe` cannot be run here.
pub fn skip_control(probe: &Probe, user: User, party: Option<&Party>) -> Option<Skip> {
    if !User::all().contains(&control_user(probe, user)) {
        return Some(Skip::Forced("its open control needs root".to_owned()));
    }
    if let Some(since) = &probe.header.since
        && kernel() < version(since)
    {
        return Some(Skip::Forced(format!("needs Linux {since}")));
    }
    probe
        .header
        .needs
        .iter()
        .find_map(|need| missing(*need, party?))
}

/// Whether the product cannot run for this user here.
pub fn skip_sandboxed(party: &Party) -> Option<Skip> {
    party.doctor.namespaces.clone().err().map(Skip::Mendable)
}

fn missing(need: Need, party: &Party) -> Option<Skip> {
    let forced = |met: bool, reason: &str| (!met).then(|| Skip::Forced(reason.to_owned()));
    match need {
        Need::UserNamespaces => skip_sandboxed(party),
        Need::TwoProcessors => {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            forced(processors > 1, "one processor")
        }
        Need::Ipv6Loopback => {
            let addresses = read("/proc/net/if_inet6");
            forced(
                addresses.lines().any(|line| line.ends_with(" lo")),
                "no IPv6 on the loopback",
            )
        }
        Need::DefaultRoute => {
            let is_default = |line: &str| line.split_whitespace().nth(1) == Some("00000000");
            forced(
                read("/proc/net/route").lines().any(is_default),
                "no default route",
            )
        }
        Need::IoUring => {
            let disabled = read("/proc/sys/kernel/io_uring_disabled");
            let open_to_all = matches!(disabled.trim(), "" | "0");
            (!open_to_all).then(|| Skip::Mendable("kernel.io_uring_disabled is set".to_owned()))
        }
        Need::MemfdNoexecSeal => {
            // The kernel's own word for it came in the same version, 6.3.
            let known = Path::new("/proc/sys/vm/memfd_noexec").exists();
            forced(known, "no MFD_NOEXEC_SEAL before Linux 6.3")
        }
        Need::NewSystemCalls => forced(
            kernel() >= (5, 17),
            "no new system call that an unprivileged process may make",
        ),
        Need::SupplementaryGroup => {
            let groups = nix::unistd::getgroups().unwrap_or_default();
            let own = nix::unistd::getgid();
            let can_leak =
                nix::unistd::geteuid().is_root() || groups.iter().any(|group| *group != own);
            forced(can_leak, "the user is in no second group")
        }
        Need::MemoryCgroup => party.doctor.cgroup.clone().err().map(Skip::Forced),
        Need::AccessTimes => {
            let noatime = nix::sys::statvfs::statvfs("/var/tmp")
                .is_ok_and(|found| found.flags().contains(FsFlags::ST_NOATIME));
            forced(!noatime, "no access times on the disk of /var/tmp")
        }
        Need::CallsOf32Bits => {
            let vdso = Path::new("/proc/sys/abi/vsyscall32").exists();
            forced(vdso, "the kernel has no system calls of 32 bits")
        }
        Need::OwnCgroup => {
            let of_its_own = |line: &str| line.splitn(3, ':').nth(2) != Some("/");
            let own = read("/proc/self/cgroup").lines().any(of_its_own);
            forced(own, "the harness is in no cgroup but the first")
        }
        Need::CoreFiles => {
            let pattern = read("/proc/sys/kernel/core_pattern");
            let here = !pattern.starts_with(['|', '/', '@']);
            forced(
                here,
                "kernel.core_pattern puts no core into the work directory",
            )
        }
    }
}

/// The kernel's version, as far as it counts.
fn kernel() -> (u32, u32) {
    version(&read("/proc/sys/kernel/osrelease"))
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
