//! Synthesizes the files of `/proc` and `/sys` that describe a machine, from the policy's limits.
//!
//! The files never change, so a guest learns neither the host's resources nor its load. Values that vary on a real
//! machine, such as free memory, are those at the start of a sandbox.

use std::fmt::{Display, Write as _};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::program::RootEntry;

/// The machine that `/sys`, and `/proc` where there is one, describe to programs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release, as uname(2) reports it.
    pub kernel: String,
    /// The number of processors.
    pub processors: u32,
    /// The lines of proc_cpuinfo(5) that describe each processor.
    pub processor_kind: String,
    /// The numbers that processors of the host can have, in list format.
    pub processors_possible: String,
    /// The CPU quota, in thousandths of a processor.
    pub millicores: u32,
    /// Total memory, bytes.
    pub memory: u64,
    /// The memory that a process can use before it gets a `MemoryError`, bytes.
    pub memory_available: u64,
    /// The maximum number of processes and threads.
    pub pids: u64,
}

/// The directory in the zygote's root with the files that replace some of the kernel's in `/proc`.
pub const PROC_SOURCE: &str = "/.proc";

macro_rules! proc_files {
    ($($name:literal),+) => {
        [$((concat!("/.proc/", $name), concat!("/proc/", $name))),+]
    };
}

/// Bind mounts over the entries of a worker's `/proc` that describe the machine: source in [`PROC_SOURCE`], and target.
/// The kernel's own entries become unreachable.
pub const PROC_FILES: [(&str, &str); 9] = proc_files![
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "stat",
    "sys",
    "uptime",
    "version",
    "vmstat"
];

/// The period of the cgroup's CPU quota, microseconds.
const CPU_PERIOD: u64 = 100_000;

/// The longest session that a policy allows. Every uptime that a guest sees is at least this long.
pub const LONGEST_SESSION: Duration = Duration::from_secs(720 * 3600);

const CPU: &str = "devices/system/cpu";
const NODE: &str = "devices/system/node";

/// The boot time by the guest's clocks, and the time since. In a time namespace that is the zygote's start.
#[derive(Clone, Copy, Debug)]
pub struct Boot {
    at: Duration,
    since: Duration,
}

impl Boot {
    /// Reads the clocks that a guest can read.
    pub fn read_clocks() -> Self {
        let since = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Into::into);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            at: now.unwrap_or_default().saturating_sub(since),
            since,
        }
    }
}

/// Returns the sources of [`PROC_FILES`].
pub fn in_proc(machine: &Machine, hostname: &str, boot: Boot) -> Vec<RootEntry> {
    let Machine { kernel, pids, .. } = machine;
    let pids = pids.to_string();
    // Programs compute a process's age as uptime minus start time, and do not expect a negative result.
    let uptime = format!("{}.00 0.00\n", (boot.since + LONGEST_SESSION).as_secs());
    let files = [
        ("cpuinfo", cpuinfo(machine)),
        (
            "filesystems",
            "nodev\ttmpfs\nnodev\tproc\nnodev\tdevpts\n".to_owned(),
        ),
        ("loadavg", "0.00 0.00 0.00 1/1 2\n".to_owned()),
        ("meminfo", meminfo(machine)),
        ("stat", stat(machine, boot)),
        ("uptime", uptime),
        (
            "version",
            format!("Linux version {kernel} ({hostname}@{hostname}) #1 SMP\n"),
        ),
        ("vmstat", vmstat()),
    ];
    let settings = [
        ("fs/file-max", "9223372036854775807"),
        ("kernel/domainname", "(none)"),
        ("kernel/hostname", hostname),
        ("kernel/ngroups_max", "65536"),
        ("kernel/osrelease", kernel),
        ("kernel/ostype", "Linux"),
        // The maximum of any kernel: programs size tables by it.
        ("kernel/pid_max", "4194304"),
        ("kernel/threads-max", &pids),
        ("net/core/somaxconn", "4096"),
        ("net/ipv4/ip_local_port_range", "32768\t60999"),
        ("vm/max_map_count", "65530"),
        ("vm/overcommit_memory", "0"),
    ];
    let settings = settings.map(|(name, value)| (format!("sys/{name}"), format!("{value}\n")));
    let files = files.map(|(name, contents)| (name.to_owned(), contents));
    files
        .into_iter()
        .chain(settings)
        .map(|(name, contents)| RootEntry::File {
            target: Path::new(PROC_SOURCE).join(name),
            contents,
        })
        .collect()
}

/// Renders proc_cpuinfo(5): one socket with one core per processor.
fn cpuinfo(machine: &Machine) -> String {
    let count = machine.processors;
    let mut text = String::new();
    for number in 0..count {
        let topology = [
            ("physical id", 0),
            ("siblings", count),
            ("core id", number),
            ("cpu cores", count),
            ("apicid", number),
            ("initial apicid", number),
        ];
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "processor\t: {number}\n{}", machine.processor_kind);
        for (key, value) in topology {
            let _ = writeln!(text, "{key}\t: {value}");
        }
        text.push('\n');
    }
    text
}

/// Renders proc_meminfo(5).
fn meminfo(machine: &Machine) -> String {
    const ZERO: &str = "Buffers Cached SwapCached Active Inactive SwapTotal SwapFree Dirty Writeback AnonPages \
        Mapped Shmem Slab SReclaimable SUnreclaim";
    let rows = [
        ("MemTotal", machine.memory),
        ("MemFree", machine.memory_available),
        ("MemAvailable", machine.memory_available),
    ];
    let mut text = String::new();
    for (key, bytes) in rows
        .into_iter()
        .chain(ZERO.split_whitespace().map(|key| (key, 0)))
    {
        let _ = writeln!(text, "{:<16}{:>8} kB", format!("{key}:"), bytes / 1024);
    }
    text
}

/// Renders proc_stat(5).
fn stat(machine: &Machine, boot: Boot) -> String {
    const TIMES: &str = "0 0 0 0 0 0 0 0 0 0";
    let mut text = format!("cpu  {TIMES}\n");
    for number in 0..machine.processors {
        let _ = writeln!(text, "cpu{number} {TIMES}");
    }
    let _ = writeln!(
        text,
        "intr 0\nctxt 0\nbtime {}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0",
        boot.at.as_secs()
    );
    text
}

/// Renders proc_vmstat(5).
fn vmstat() -> String {
    const KEYS: &str = "nr_free_pages pgpgin pgpgout pswpin pswpout pgfault pgmajfault oom_kill";
    let line = |key| format!("{key} 0\n");
    KEYS.split_whitespace().map(line).collect()
}

/// Returns the entries of the sandbox's `/sys`: its processors, and its limits in the layout of both cgroup versions.
pub fn in_sys(machine: &Machine) -> Vec<RootEntry> {
    let mut entries = cgroup(machine);
    entries.extend(processors(machine));
    entries.extend((0..machine.processors).flat_map(|number| topology(number, machine.processors)));
    // Programs take an empty directory for a machine without disks.
    entries.push(RootEntry::Directory {
        target: "/sys/block".into(),
    });
    entries
}

fn sys_file(name: impl AsRef<Path>, value: impl Display) -> RootEntry {
    RootEntry::File {
        target: Path::new("/sys").join(name),
        contents: format!("{value}\n"),
    }
}

fn cgroup(machine: &Machine) -> Vec<RootEntry> {
    let quota = u64::from(machine.millicores) * CPU_PERIOD / 1000;
    let (memory, pids) = (machine.memory.to_string(), machine.pids.to_string());
    let files = [
        ("cgroup.controllers", "cpuset cpu memory pids".to_owned()),
        ("cpu.max", format!("{quota} {CPU_PERIOD}")),
        ("cpuset.cpus.effective", numbers(machine.processors)),
        ("memory.high", "max".to_owned()),
        ("memory.max", memory.clone()),
        ("memory.swap.max", "0".to_owned()),
        ("pids.max", pids.clone()),
        ("cpu/cpu.cfs_period_us", CPU_PERIOD.to_string()),
        ("cpu/cpu.cfs_quota_us", quota.to_string()),
        ("memory/memory.limit_in_bytes", memory.clone()),
        ("memory/memory.soft_limit_in_bytes", memory),
        ("pids/pids.max", pids),
    ];
    let directory = Path::new("fs/cgroup");
    files
        .map(|(name, value)| sys_file(directory.join(name), value))
        .into()
}

/// Returns the topology of one socket in one NUMA node.
///
/// `possible` is the host's list: memory allocators size their tables by it, and index them by the number of the
/// processor that a thread runs on (rseq(2)), which is a number of the host.
fn processors(machine: &Machine) -> [RootEntry; 7] {
    let all = numbers(machine.processors);
    [
        sys_file(format!("{CPU}/online"), &all),
        sys_file(format!("{CPU}/present"), &all),
        sys_file(format!("{CPU}/possible"), &machine.processors_possible),
        sys_file(format!("{NODE}/online"), 0),
        sys_file(format!("{NODE}/possible"), 0),
        sys_file(format!("{NODE}/node0/cpumap"), mask(0..machine.processors)),
        sys_file(format!("{NODE}/node0/cpulist"), all),
    ]
}

/// Returns the topology entries of one processor, as a core of its own.
fn topology(number: u32, count: u32) -> Vec<RootEntry> {
    let directory = format!("{CPU}/cpu{number}/topology");
    let file = |name: &str, value: &dyn Display| sys_file(format!("{directory}/{name}"), value);
    let link = |name: &str, points_at: String| RootEntry::Symlink {
        target: Path::new("/sys").join(&directory).join(name),
        points_at: points_at.into(),
    };
    let mut entries = vec![
        file("core_id", &number),
        file("core_cpus_list", &number),
        file("thread_siblings", &mask(number..number + 1)),
        link("thread_siblings_list", "core_cpus_list".to_owned()),
    ];
    // Values that all processors share are files of the first one and links for the others, to save pages on a large
    // machine.
    let shared: [(&str, &dyn Fn() -> String); 3] = [
        ("physical_package_id", &|| "0".to_owned()),
        ("core_siblings", &|| mask(0..count)),
        ("core_siblings_list", &|| numbers(count)),
    ];
    entries.extend(shared.map(|(name, value)| match number {
        0 => file(name, &value()),
        _ => link(name, format!("../../cpu0/topology/{name}")),
    }));
    entries
}

/// Formats the numbers of `count` processors as a list.
fn numbers(count: u32) -> String {
    match count {
        0 | 1 => "0".to_owned(),
        _ => format!("0-{}", count - 1),
    }
}

/// Formats processors as a kernel CPU mask: 32-bit words in hexadecimal, highest first.
fn mask(processors: Range<u32>) -> String {
    let last = processors.end.saturating_sub(1) / 32;
    let word = |word: u32| {
        let bits = (0..32).filter(|bit| processors.contains(&(word * 32 + bit)));
        bits.fold(0_u32, |mask, bit| mask | 1 << bit)
    };
    let words: Vec<String> = (0..=last)
        .rev()
        .map(|index| format!("{:08x}", word(index)))
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(processors: u32) -> Machine {
        Machine {
            kernel: "6.18.0".into(),
            processors,
            processor_kind: "model name\t: Processor".into(),
            processors_possible: "0-255".into(),
            millicores: processors * 1000 - 500,
            memory: 512 << 20,
            memory_available: 480 << 20,
            pids: 64,
        }
    }

    #[test]
    fn every_proc_file_has_a_source() {
        let boot = Boot {
            at: Duration::from_secs(1_700_000_000),
            since: Duration::from_millis(1250),
        };
        let entries = in_proc(&machine(2), "sandfork", boot);
        for (beneath, name) in PROC_FILES {
            let count = entries
                .iter()
                .filter(|entry| entry.target().starts_with(beneath));
            assert!(count.count() > 0, "{name}");
        }
        let contents = |name: &str| {
            let found = entries.iter().find_map(|entry| match entry {
                RootEntry::File { target, contents } if target.ends_with(name) => Some(contents),
                _ => None,
            });
            found.cloned().unwrap_or_default()
        };
        assert_eq!(contents("uptime"), "2592001.00 0.00\n");
        assert!(
            contents("stat").contains("\ncpu1 0 "),
            "{}",
            contents("stat")
        );
        assert!(contents("stat").contains("\nbtime 1700000000\n"));
        assert!(contents("meminfo").starts_with("MemTotal:         524288 kB\n"));
        assert_eq!(
            contents("cpuinfo")
                .matches("model name\t: Processor\n")
                .count(),
            2
        );
    }

    #[test]
    fn half_a_processor_is_one_with_a_quota() {
        let entries = in_sys(&machine(1));
        let has = |path: &str, text: &str| {
            entries.contains(&RootEntry::File {
                target: path.into(),
                contents: text.to_owned(),
            })
        };
        assert!(has("/sys/fs/cgroup/cpu.max", "50000 100000\n"));
        assert!(has("/sys/devices/system/cpu/online", "0\n"));
        assert!(has("/sys/devices/system/cpu/possible", "0-255\n"));
    }

    #[test]
    fn masks_have_words_of_32_bits() {
        assert_eq!(mask(0..1), "00000001");
        assert_eq!(mask(0..2), "00000003");
        assert_eq!(mask(33..34), "00000002,00000000");
        assert_eq!(mask(0..34), "00000003,ffffffff");
    }
}
