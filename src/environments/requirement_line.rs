//! Parses lines of requirements files. Pure.

use crate::policy::Requirement;

/// Returns whether a requirement lists hashes for its file.
pub fn has_hash(line: &str) -> bool {
    line.contains(" --hash=")
}

/// How the lines of a file are used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// As required packages.
    Require,
    /// As version constraints.
    Constrain,
}

/// Returns the file that a line includes.
pub fn include(line: &str, purpose: Purpose) -> Option<(Purpose, &str)> {
    let behind = |flags: [&str; 2]| {
        flags.iter().find_map(|flag| {
            let rest = line.strip_prefix(flag)?;
            rest.starts_with([' ', '\t', '=']).then(|| rest[1..].trim())
        })
    };
    let required = behind(["-r", "--requirement"]).map(|file| (purpose, file));
    required.or_else(|| behind(["-c", "--constraint"]).map(|file| (Purpose::Constrain, file)))
}

/// Splits a line with an option into its name and value.
pub fn option_of(line: &str) -> (&str, &str) {
    match line.find(['=', ' ', '\t']) {
        Some(end) => (&line[..end], line[end + 1..].trim()),
        None => (line, ""),
    }
}

/// Returns the local package directory that a line names. Other `--find-links` are on the network.
pub fn local_links(line: &str) -> Option<&str> {
    let (name, value) = option_of(line);
    let is_local = !value.contains("://") || value.starts_with("file://");
    (matches!(name, "-f" | "--find-links") && is_local && !value.is_empty()).then_some(value)
}

/// Parses a line with a package into its requirement and the hashes for its file.
///
/// # Errors
/// The problem with the line.
pub fn requirement(line: &str) -> Result<String, String> {
    let mut parts = line.split(" --");
    let requirement: Requirement = parts.next().unwrap_or_default().parse()?;
    let mut text = requirement.to_string();
    for option in parts {
        let digest = option
            .trim()
            .strip_prefix("hash")
            .map(|rest| rest.trim_start_matches([' ', '=']));
        let is_hash = |digest: &str| {
            digest.split_once(':').is_some_and(|(kind, digits)| {
                matches!(kind, "sha256" | "sha384" | "sha512")
                    && digits.chars().all(|c| c.is_ascii_hexdigit())
            })
        };
        match digest.map(str::trim).filter(|digest| is_hash(digest)) {
            Some(digest) => {
                text.push_str(" --hash=");
                text.push_str(digest);
            }
            None => {
                return Err(format!(
                    "`--{}` is not a hash (`--hash=sha256:...`): remove it",
                    option.trim()
                ));
            }
        }
    }
    Ok(text)
}

/// Returns the lines without comments, with continuation lines joined, each with its first line number.
pub fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        let comment = line.find(" #").or_else(|| line.find("\t#"));
        let line = if line.starts_with('#') {
            ""
        } else {
            &line[..comment.unwrap_or(line.len())]
        };
        let (line, more) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| continues) {
            Some((_, begun)) => {
                begun.push(' ');
                begun.push_str(line.trim());
            }
            None => lines.push((index + 1, line.trim().to_owned())),
        }
        continues = more;
    }
    lines.retain(|(_, line)| !line.is_empty());
    lines
}
