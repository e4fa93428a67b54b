//! The command line: `cargo bench --bench spawn -- [--quick] [--python PATH]`.

use std::path::PathBuf;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each contestant has its turn.
    pub rounds: usize,
    pub extent: Extent,
    /// The interpreter; the one that the default policy finds, unless this is given.
    pub python: Option<PathBuf>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// Enough for the quantiles of the table.
    Full,
    /// Under half a minute, for CI: the medians mean something, the 99th percentiles little.
    Quick,
}

pub const USAGE: &str = "usage: cargo bench --bench spawn -- [--quick] [--python PATH]";

impl Options {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut extent = Extent::Full;
        let mut python = None;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                // What cargo itself adds.
                "--bench" => {}
                "--quick" => extent = Extent::Quick,
                "--python" => {
                    let path = args.next().ok_or("--python needs a path")?;
                    python = Some(PathBuf::from(path));
                }
                other => return Err(format!("unknown argument `{other}`; {USAGE}")),
            }
        }
        let rounds = match extent {
            Extent::Full => 300,
            Extent::Quick => 40,
        };
        Ok(Self {
            rounds,
            extent,
            python,
        })
    }
}
