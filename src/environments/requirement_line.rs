//! The lines of requirements files. Pure.

use crate::policy::Requirement;

/// Whether a requirement names the hashes that its file may have.
pub fn has_hash(line: &str) -> bool {
    line.contains(" --hash=")
}

/// What the lines of a file are for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// Packages that it is to have.
    Require,
    /// Bounds of versions.
    Constrain,
}

/// The file that a line includes.
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

/// The name and the value of a line with an option.
pub fn option_of(line: &str) -> (&str, &str) {
    match line.find(['=', ' ', '\t']) {
        Some(end) => (&line[..end], line[end + 1..].trim()),
        None => (line, ""),
    }
}

/// The directory of packages that a line names. Others are on the network.
pub fn local_links(line: &str) -> Option<&str> {
    let (name, value) = option_of(line);
    let is_local = !value.contains("://") || value.starts_with("file://");
    (matches!(name, "-f" | "--find-links") && is_local && !value.is_empty()).then_some(value)
}

/// A line with a package: its requirement, and the hashes that its file may have.
///
/// # Errors
/// What is wrong with it.
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
                    "`--{}` is no hash (`--hash=sha256:...`): remove it",
                    option.trim()
                ));
            }
        }
    }
    Ok(text)
}

/// The lines without comments, those that go on joined, with the number of their first.
pub fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
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
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, begun)) => {
                begun.push(' ');
                begun.push_str(line.trim());
            }
            None => lines.push((index + 1, line.trim().to_owned())),
        }
        goes_on = more;
    }
    lines.retain(|(_, line)| !line.is_empty());
    lines
}
