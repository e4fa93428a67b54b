//! Reads lock files of other installers. Pure.

use super::requirement_line::requirement;

/// Converts the packages of a lock to lines of a requirements file.
///
/// # Errors
/// A description of the expected format, the problem, and the remedy.
pub fn locked_lines(text: &str) -> Result<Vec<String>, String> {
    let lock: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| invalid_lock(error.message()))?;
    let version = lock.get("lock-version").and_then(toml::Value::as_str);
    if !version.is_some_and(|version| version.starts_with("1.")) {
        return Err(invalid_lock("its `lock-version` is not 1.0"));
    }
    let empty = Vec::new();
    let packages = lock
        .get("packages")
        .and_then(toml::Value::as_array)
        .unwrap_or(&empty);
    packages.iter().map(locked_line).collect()
}

fn locked_line(package: &toml::Value) -> Result<String, String> {
    let text = |key: &str| package.get(key).and_then(toml::Value::as_str);
    let name = text("name").ok_or_else(|| invalid_lock("a package has no name"))?;
    let version =
        text("version").ok_or_else(|| invalid_lock(&format!("`{name}` has no version")))?;
    let marker = text("marker").map_or(String::new(), |marker| format!("; {marker}"));
    let wheels = package.get("wheels").and_then(toml::Value::as_array);
    let hashes = wheels
        .into_iter()
        .flatten()
        .filter_map(|wheel| wheel.get("hashes")?.get("sha256")?.as_str());
    let hashes: Vec<String> = hashes
        .map(|hash| format!(" --hash=sha256:{hash}"))
        .collect();
    if hashes.is_empty() {
        let problem =
            format!("`{name}` has no wheel with a SHA-256, and only wheels are installed");
        // `env export` writes this for a wheel that was built here.
        return Err(if package.get("sdist").is_some() {
            format!(
                "lock of wheels ({problem}): build it from its source with `sandfork env create NAME {name}=={version} --allow-build`"
            )
        } else {
            invalid_lock(&problem)
        });
    }
    let line = format!("{name}=={version}{marker}{}", hashes.concat());
    requirement(&line).map_err(|problem| invalid_lock(&problem))
}

fn invalid_lock(problem: &str) -> String {
    format!(
        "pylock.toml ({problem}): lock with `sandfork env export NAME`, `pip lock` or `uv export --format pylock.toml`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_read_as_hashed_requirements() {
        let text = "lock-version = \"1.0\"\n[[packages]]\nname = \"six\"\nversion = \"1.16.0\"\n\
            [[packages.wheels]]\nurl = \"https://x/six.whl\"\nhashes = { sha256 = \"00\" }\n\
            [[packages.wheels]]\nurl = \"https://x/other.whl\"\nhashes = { sha256 = \"11\" }\n";
        assert_eq!(
            locked_lines(text),
            Ok(vec![
                "six==1.16.0 --hash=sha256:00 --hash=sha256:11".to_owned()
            ])
        );
        for (text, expected) in [
            (
                "lock-version = 1",
                "pylock.toml (its `lock-version` is not 1.0): lock with `sandfork env export NAME`, ",
            ),
            (
                "lock-version = \"1.0\"\n[[packages]]\nversion = \"1\"",
                "pylock.toml (a package has no name): lock with ",
            ),
            (
                "lock-version = \"1.0\"\n[[packages]]\nname = \"a\"\nversion = \"1\"",
                "pylock.toml (`a` has no wheel with a SHA-256, and only wheels are installed): lock with ",
            ),
            (
                "lock-version = \"1.0\"\n[[packages]]\nname = \"a\"\nversion = \"1\"\nsdist = {}",
                "lock of wheels (`a` has no wheel with a SHA-256, and only wheels are installed): build it from its source \
                 with `sandfork env create NAME a==1 --allow-build`",
            ),
        ] {
            let error = locked_lines(text).expect_err("it is none");
            assert!(error.starts_with(expected), "{error}");
        }
        let hostile = "lock-version = \"1.0\"\n[[packages]]\nname = \"a\"\nversion = \"1\\n-r x\"\n\
            [[packages.wheels]]\nhashes = { sha256 = \"00\" }\n";
        assert!(locked_lines(hostile).is_err());
    }
}
