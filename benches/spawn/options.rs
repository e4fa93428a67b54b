//! The command line: `cargo bench --bench spawn -- [PART...] [--quick] [--python PATH]`.

use std::path::PathBuf;

/// The options of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// The parts to measure.
    pub parts: Vec<Part>,
    pub extent: Extent,
    /// The interpreter, if one was named.
    pub python: Option<PathBuf>,
}

/// The parts that can be measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// Fresh sandboxes and sessions, compared with the alternatives.
    Spawn,
    /// Memory of idle sessions, and a cell's time, as the number of live sessions grows.
    Memory,
    /// The same programs inside and outside a sandbox.
    Overhead,
}

impl Part {
    const ALL: [Self; 3] = [Self::Spawn, Self::Memory, Self::Overhead];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Spawn => "spawn",
            Self::Memory => "memory",
            Self::Overhead => "overhead",
        }
    }
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// Enough for the quantiles of the table.
    Full,
    /// Under half a minute for each part: the medians are meaningful, the tails are not.
    Quick,
}

pub const USAGE: &str =
    "usage: cargo bench --bench spawn -- [spawn|memory|overhead|all]... [--quick] [--python PATH]";

impl Options {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut extent = Extent::Full;
        let mut python = None;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                // Cargo adds this argument.
                "--bench" => {}
                "--quick" => extent = Extent::Quick,
                "--python" => {
                    let path = args.next().ok_or("--python needs a path")?;
                    python = Some(PathBuf::from(path));
                }
                "all" => parts.extend(Part::ALL),
                name => match Part::ALL.into_iter().find(|part| part.name() == name) {
                    Some(part) => parts.push(part),
                    None => return Err(format!("unknown argument `{name}`; {USAGE}")),
                },
            }
        }
        if parts.is_empty() {
            parts.push(Part::Spawn);
        }
        // In the order of `ALL`, each once.
        let parts = Part::ALL.into_iter().filter(|part| parts.contains(part));
        Ok(Self {
            parts: parts.collect(),
            extent,
            python,
        })
    }

    /// The number of rounds.
    pub const fn rounds(&self) -> usize {
        match self.extent {
            Extent::Full => 300,
            Extent::Quick => 40,
        }
    }

    /// The base name of the files.
    pub fn name(&self) -> &'static str {
        match self.parts[..] {
            [part] => part.name(),
            _ => "all",
        }
    }
}
