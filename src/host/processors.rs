//! The kind of the machine's processors.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};

/// What a program may know of the machine's processors.
///
/// Any program can ask the processor itself for its kind (CPUID), so that it is no secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Processors {
    /// The lines of proc_cpuinfo(5) that say of what kind one processor is, without those about its place.
    pub kind: String,
    /// The numbers that processors of this machine can have, as `/sys/devices/system/cpu/possible` lists them.
    pub possible: String,
}

/// The keys that describe a kind. The others are about a processor's place and load, or about known flaws.
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
                // What the kernel has at most.
                "" => "0-8191".to_owned(),
                possible => possible.to_owned(),
            },
        }
    }
}

/// The lines before the first empty one. The kernel asks each processor as it is read about, which takes long on a
/// large machine.
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

/// The lines about one processor that say of what kind it is.
///
/// Its frequency is the nominal one, because the present one depends on what the host does: on x86, `bogomips` is twice
/// the nominal one.
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
    fn a_kind_has_neither_place_nor_load() {
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
