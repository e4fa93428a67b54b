//! Determines the kind of the machine's processors.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};

/// What a guest may know about the machine's processors.
///
/// Any program can query the processor itself (CPUID), so the kind is not a secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Processors {
    /// The lines of proc_cpuinfo(5) that describe one processor's kind, without those about its position.
    pub kind: String,
    /// The possible processor numbers of this machine, in the format of `/sys/devices/system/cpu/possible`.
    pub possible: String,
}

/// The keys that describe the kind. The others concern a processor's position, load or known flaws.
const KEYS: [&str; 25] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "cpu MHz",
    "cache size",
    "fpu",
    "fpu_exception",
    "cpuid level",
    "wp",
    "flags",
    "bogomips",
    "clflush size",
    "cache_alignment",
    "address sizes",
    "power management",
    // aarch64
    "BogoMIPS",
    "Features",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
    "Hardware",
];

impl Processors {
    pub(super) fn probe() -> Self {
        let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        let cpuinfo = File::open("/proc/cpuinfo");
        let cpuinfo = cpuinfo.and_then(|file| first_block(BufReader::with_capacity(4096, file)));
        Self {
            kind: kind(&cpuinfo.unwrap_or_default()),
            possible: match possible.trim() {
                // The kernel's maximum.
                "" => "0-8191".to_owned(),
                possible => possible.to_owned(),
            },
        }
    }
}

/// Reads the lines before the first empty line. The kernel queries each processor as its block is read, which is slow
/// on a large machine.
fn first_block(file: impl BufRead) -> io::Result<String> {
    let mut text = String::new();
    for line in file.lines() {
        match line?.trim_end() {
            "" => break,
            line => text = text + line + "\n",
        }
    }
    Ok(text)
}

/// Returns the lines of one processor that describe its kind.
///
/// The frequency is the nominal one, because the current one depends on the host's load. On x86, `bogomips` is twice
/// the nominal frequency.
fn kind(cpuinfo: &str) -> String {
    let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let bogomips = fields().find(|(key, _)| key.trim() == "bogomips");
    let nominal = bogomips.and_then(|(_, value)| value.trim().parse::<f64>().ok());
    let mut kind = String::new();
    for (key, value) in fields() {
        // Writing to a String cannot fail.
        let _ = match (key.trim(), nominal) {
            ("cpu MHz", Some(bogomips)) => writeln!(kind, "{key}: {:.3}", bogomips / 2.0),
            ("cpu MHz", None) => Ok(()),
            (name, _) if KEYS.contains(&name) => writeln!(kind, "{key}:{value}"),
            _ => Ok(()),
        };
    }
    kind.truncate(kind.trim_end_matches('\n').len());
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_kind_excludes_position_and_load() {
        let x86 = "processor\t: 0\nvendor_id\t: V\nmicrocode\t: 0x1\ncpu MHz\t\t: 3101.512\ncore id\t\t: 7\n\
            bogomips\t: 5200.00\npower management:\n\nprocessor\t: 1\nvendor_id\t: W\n";
        let expected =
            "vendor_id\t: V\ncpu MHz\t\t: 2600.000\nbogomips\t: 5200.00\npower management:";
        let of_one = |cpuinfo: &str| kind(&first_block(cpuinfo.as_bytes()).unwrap_or_default());
        assert_eq!(of_one(x86), expected);
        let arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU part\t: 0xd0c\n\n";
        assert_eq!(of_one(arm), "BogoMIPS\t: 50.00\nCPU part\t: 0xd0c");
        assert_eq!(of_one(""), "");
    }
}
