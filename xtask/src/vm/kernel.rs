//! Debian's cloud kernels: finds them, and downloads each once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::Error;

const MIRROR: &str = "https://deb.debian.org/debian";

/// A script that needs only CPython, which the project needs anyway.
const SCRIPT: &str = include_str!("kernel.py");

/// The modules that the guest needs to mount its disk, and one for a socket that escape tests try,
/// in load order. Any of them may be built into the kernel.
pub const MODULES: [&str; 7] = [
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "vsock",
];

/// A line of kernels that Debian maintains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Line {
    /// Debian 12.
    V6_1,
    /// Debian 13.
    V6_12,
}

impl Line {
    /// All lines, oldest first.
    pub const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
        }
    }

    /// The name in `--kernel`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }
}

impl FromStr for Line {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|line| line.name() == text);
        known.ok_or_else(|| format!("unknown kernel `{text}`: there are 6.1 and 6.12").into())
    }
}

/// A kernel on this machine.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its line.
    pub line: Line,
    /// The version in the package's name.
    pub version: String,
    directory: PathBuf,
}

impl Kernel {
    /// Finds the newest kernel of a line and downloads it, unless it is in `cache`. If Debian is
    /// out of reach, it uses the newest one in `cache`.
    pub fn obtain(line: Line, cache: &Path) -> Result<Self, Error> {
        let newest = cache.join(line.name()).join("newest");
        let index = format!(
            "{MIRROR}/dists/{}/main/binary-amd64/Packages.xz",
            line.suite()
        );
        match python(&["index", &index]) {
            Ok(stanzas) => {
                let package = newest_cloud_kernel(&stanzas)
                    .ok_or_else(|| format!("{index} has no cloud kernel"))?;
                let kernel = Self {
                    line,
                    directory: cache.join(line.name()).join(&package.version),
                    version: package.version.clone(),
                };
                kernel.fetch(&package)?;
                fs::write(&newest, &kernel.version)?;
                Ok(kernel)
            }
            Err(error) => {
                let version = fs::read_to_string(newest).map_err(|_| error)?;
                Ok(Self {
                    line,
                    directory: cache.join(line.name()).join(&version),
                    version,
                })
            }
        }
    }

    fn fetch(&self, package: &Package) -> Result<(), Error> {
        if self.directory.exists() {
            return Ok(());
        }
        println!("fetching {} (once)", package.filename);
        let partial = self.directory.with_extension("partial");
        let url = format!("{MIRROR}/{}", package.filename);
        let directory = partial.display().to_string();
        let mut arguments = vec!["fetch", &url, &package.sha256, &directory];
        arguments.extend(MODULES);
        python(&arguments)?;
        fs::rename(&partial, &self.directory)?;
        Ok(())
    }

    /// The path of the kernel image.
    pub fn image(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// The path of a module; `None` if it is built in.
    pub fn module(&self, name: &str) -> Option<PathBuf> {
        let file = self.directory.join(name).with_extension("ko");
        file.exists().then_some(file)
    }
}

fn python(arguments: &[&str]) -> Result<String, Error> {
    let output = Command::new("python3")
        .args(["-I", "-c", SCRIPT])
        .args(arguments)
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().next_back().unwrap_or("no reason given");
        return Err(format!("could not fetch {}: {last}", arguments[1]).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A package in Debian's index.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Package {
    version: String,
    filename: String,
    sha256: String,
}

/// The kernel on which the package without a version depends, which is the newest.
fn newest_cloud_kernel(stanzas: &str) -> Option<Package> {
    let by_name = |name: &str| {
        let named = |stanza: &&str| field(stanza, "Package") == Some(name);
        stanzas.split("\n\n").find(named)
    };
    let depends = field(by_name("linux-image-cloud-amd64")?, "Depends")?;
    let name = depends.split([' ', ',']).next()?;
    let stanza = by_name(name)?;
    Some(Package {
        version: field(stanza, "Version")?.to_owned(),
        filename: field(stanza, "Filename")?.to_owned(),
        sha256: field(stanza, "SHA256")?.to_owned(),
    })
}

fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    stanza
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "\
Package: linux-image-6.1.0-47-cloud-amd64
Version: 6.1.170-3
Filename: pool/47.deb
SHA256: aa

Package: linux-image-6.1.0-50-cloud-amd64
Version: 6.1.176-1
Depends: kmod, linux-base
Filename: pool/50.deb
SHA256: bb

Package: linux-image-cloud-amd64
Version: 6.1.176-1
Depends: linux-image-6.1.0-50-cloud-amd64 (= 6.1.176-1)
Filename: pool/meta.deb
SHA256: cc
";

    #[test]
    fn the_newest_is_what_the_unversioned_package_depends_on() {
        let expected = Package {
            version: "6.1.176-1".to_owned(),
            filename: "pool/50.deb".to_owned(),
            sha256: "bb".to_owned(),
        };
        assert_eq!(newest_cloud_kernel(INDEX), Some(expected));
    }

    #[test]
    fn an_index_without_it_has_none() {
        let versioned = INDEX.split("\n\nPackage: linux-image-cloud").next();
        assert_eq!(versioned.and_then(newest_cloud_kernel), None);
    }

    #[test]
    fn an_unknown_line_is_refused() {
        let error = "5.10".parse::<Line>().expect_err("there is none");
        assert_eq!(
            error.to_string(),
            "unknown kernel `5.10`: there are 6.1 and 6.12"
        );
    }
}
