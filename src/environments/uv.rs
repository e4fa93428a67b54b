//! Resolves with uv.

use std::path::Path;

use serde::Deserialize;

use super::error::EnvironmentError;
use super::explain::{plain, refused_hosts};
use super::jail::{InstallJail, literal};
use super::lock::{LockedWheel, MAX_PACKAGES, too_many, wrong};
use super::requirements::Wanted;
use super::resolver::Uv;
use super::tags::fit;

/// The program that finds wheels.
const RESOLVE: &str = include_str!("guest/uv.py");

/// The maximum length of a lock in bytes: a kilobyte per package is more than real locks have.
const LONGEST_LOCK: usize = MAX_PACKAGES << 10;

/// The answer of the guest program.
#[derive(Deserialize)]
struct Answer {
    message: Option<String>,
    lock: Option<String>,
}

/// The part of a `pylock.toml` that locates wheels.
#[derive(Deserialize)]
struct Pylock {
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    wheels: Vec<File>,
}

#[derive(Deserialize)]
struct File {
    url: Option<String>,
    #[serde(default)]
    hashes: Hashes,
}

#[derive(Default, Deserialize)]
struct Hashes {
    #[serde(default)]
    sha256: String,
}

impl InstallJail {
    /// Finds the requested wheels with uv.
    ///
    /// # Errors
    /// If uv finds no set of wheels.
    pub(super) fn resolve_by_uv(
        &self,
        uv: &Uv,
        wanted: &Wanted,
    ) -> Result<Vec<LockedWheel>, EnvironmentError> {
        let mut options = options(&self.access.options);
        options.extend(["--only-binary", ":all:"].map(str::to_owned));
        if !wanted.constraints.is_empty() {
            options.extend(["--constraints", "constraints.txt"].map(str::to_owned));
        }
        let (program, options) = (literal(&uv.program), literal(&options));
        let call = format!("_resolve({program}, {options})");
        let request = self.request(RESOLVE, &call, wanted)?;
        let (answer, outcome): (Answer, _) = self.ask(request, "resolved")?;
        match answer.lock {
            Some(lock) => locked_wheels(&lock).map_err(EnvironmentError::Lock),
            None => Err(EnvironmentError::Unresolved {
                message: cause(&answer.message.unwrap_or_default()),
                hosts: refused_hosts(outcome.network()),
            }),
        }
    }
}

/// Converts pip's options to uv's. The names are the same, but uv fails if a directory does not exist.
fn options(of_pip: &[String]) -> Vec<String> {
    let mut options = Vec::new();
    let mut rest = of_pip.iter();
    while let Some(option) = rest.next() {
        if option != "--find-links" {
            options.push(option.clone());
            continue;
        }
        let links = rest
            .next()
            .filter(|links| !links.starts_with('/') || Path::new(links).is_dir());
        options.extend(
            links
                .into_iter()
                .flat_map(|links| [option.clone(), links.clone()]),
        );
    }
    options
}

/// Parses the wheels of a lock, which uv or code in its place has written.
fn locked_wheels(text: &str) -> Result<Vec<LockedWheel>, String> {
    if text.len() > LONGEST_LOCK {
        return Err(too_many());
    }
    let lock: Pylock = toml::from_str(text).map_err(|error| {
        let problem = plain(error.message());
        format!("the resolver did not write a lock ({problem})")
    })?;
    let wheels = lock.packages.into_iter().map(|package| {
        let wrong = |what: &str| wrong(&plain(&package.name), what);
        // uv lists every wheel that fits the interpreter.
        let fit = |wheel: &&File| fit(wheel.url.as_deref().unwrap_or_default());
        let wheel = package.wheels.iter().max_by_key(fit);
        let wheel = wheel.ok_or_else(|| wrong("no wheel"))?;
        let url = wheel
            .url
            .clone()
            .ok_or_else(|| wrong("a wheel without a URL"))?;
        Ok(LockedWheel {
            name: package.name,
            version: package.version,
            file: String::new(),
            url,
            sha256: wheel.hashes.sha256.clone(),
            source: None,
        })
    });
    wheels.collect()
}

/// Explains why uv found no wheels, from its last messages, and adds this command's remedy.
fn cause(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    let lines: Vec<&str> = lines
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .map(|line| line.strip_prefix("cause: ").unwrap_or(line))
        // The following lines repeat this one.
        .filter(|line| !line.is_empty() && !line.starts_with("No solution found when"))
        .collect();
    let remedy = if message.contains("building from source is disabled") {
        "; building a source distribution runs its code; `--allow-build` does so in a sandbox"
    } else {
        ""
    };
    format!("uv says: {}{remedy}", plain(&lines.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uv_lock_is_parsed() {
        let text = "lock-version = \"1.0\"\ncreated-by = \"uv\"\n[[packages]]\nname = \"shapes\"\nversion = \"2.0\"\n\
            wheels = [{ url = \"https://i.example/shapes-2.0-py3-none-any.whl\", upload-time = 2026-05-18T23:33:29Z, size = 7, \
            hashes = { sha256 = \"00\" } }]\n";
        let found = locked_wheels(text).expect("a lock");
        assert_eq!(
            found,
            [LockedWheel {
                name: "shapes".to_owned(),
                version: "2.0".to_owned(),
                file: String::new(),
                url: "https://i.example/shapes-2.0-py3-none-any.whl".to_owned(),
                sha256: "00".to_owned(),
                source: None,
            }]
        );
        let refused = |text: &str| {
            let wheels = locked_wheels(text);
            wheels
                .and_then(super::super::lock::Lock::new)
                .expect_err("refused")
        };
        for (of, to, expected) in [
            (
                "sha256 = \"00\"",
                "",
                "its package `shapes` has no SHA-256 at the index",
            ),
            (
                "url = \"",
                "path = \"",
                "its package `shapes` has a wheel without a URL",
            ),
            ("wheels", "archives", "its package `shapes` has no wheel"),
            (
                "[[packages]]",
                "[[packages]",
                "the resolver did not write a lock (",
            ),
        ] {
            let message = refused(&text.replacen(of, to, 1));
            assert!(message.starts_with(expected), "{message}");
        }
        assert_eq!(refused(&"#".repeat(LONGEST_LOCK + 1)), too_many());
    }

    #[test]
    fn most_specific_wheel_is_chosen() {
        let of = |tags: &str| {
            format!(
                "{{ url = \"https://i.example/shapes-2.0-{tags}.whl\", hashes = {{ sha256 = \"00\" }} }}"
            )
        };
        let exact = "cp311-cp311-manylinux1_x86_64.manylinux_2_28_x86_64";
        let wheels = ["cp37-abi3-manylinux1_x86_64", exact, "py3-none-any"];
        let text = format!(
            "[[packages]]\nname = \"shapes\"\nversion = \"2.0\"\nwheels = [{}]\n",
            wheels.map(of).join(", ")
        );
        let found = locked_wheels(&text).expect("a lock");
        let url = format!("https://i.example/shapes-2.0-{exact}.whl");
        assert_eq!(
            found.iter().map(|wheel| &wheel.url).collect::<Vec<_>>(),
            [&url]
        );
    }

    #[test]
    fn uv_message_becomes_one_line_with_a_remedy() {
        let message = "error: No solution found when resolving dependencies\n  cause: Because source==1.0 has no usable wheels\n         \
            And because you require it\n\nhint: Wheels are required for `source` because building from source is disabled\n";
        assert_eq!(
            cause(message),
            "uv says: Because source==1.0 has no usable wheels And because you require it hint: Wheels are required for `source` \
             because building from source is disabled; building a source distribution runs its code; `--allow-build` does so in a \
             sandbox"
        );
    }

    #[test]
    fn missing_directory_is_left_out() {
        let pip = |options: &[&str]| -> Vec<String> {
            options.iter().map(|it| (*it).to_owned()).collect()
        };
        let given = pip(&[
            "--no-index",
            "--find-links",
            "/nowhere",
            "--find-links",
            "/usr",
            "--find-links",
            "https://x/",
            "--pre",
        ]);
        let taken = pip(&[
            "--no-index",
            "--find-links",
            "/usr",
            "--find-links",
            "https://x/",
            "--pre",
        ]);
        assert_eq!(options(&given), taken);
    }
}
