//! Explains why packages could not be installed. Pure.

use crate::outcome::Connection;

/// Reduces a guest's text to one line without control characters.
pub fn plain(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(600)
        .collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Explains why pip found no wheels, from its last messages and the reason why it skipped pages or files.
pub fn cause(output: &str, skipped: &str) -> String {
    let lines = output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ERROR: "));
    let causes: Vec<String> = lines.map(plain).filter(|line| !line.is_empty()).collect();
    // Some lines only repeat that a step failed.
    let repeats = ["Failed to build one or more wheels", "ResolutionImpossible"];
    let says_more = |line: &&String| !repeats.iter().any(|it| line.starts_with(it));
    let last = causes.iter().rev().find(says_more);
    // pip marks the failed step of a build with this character.
    let mut steps = output
        .lines()
        .filter_map(|line| line.trim().strip_prefix('×'));
    let step = steps.next().map(plain);
    let last = last
        .or(step.as_ref())
        .map_or("a wheel cannot be built", String::as_str);
    // An exception within pip: the last line of the traceback names it.
    let end = output.lines().rev().find(|line| !line.trim().is_empty());
    let fault = plain(end.unwrap_or_default());
    let last = if last == "Exception:" { &fault } else { last };
    if last.contains("DO NOT MATCH THE HASHES") {
        return format!(
            "{} does not have the hash that the index or the lock gives: it was changed in transit, or the lock is for other files",
            wheel_with_another_hash(output).map_or("a wheel".to_owned(), plain)
        );
    }
    let Some(missing) = last.strip_prefix("No matching distribution found for ") else {
        return format!("pip says: {last}");
    };
    // Drop the file that requires it.
    let missing = missing.split(" (from ").next().unwrap_or(missing);
    let why = if skipped.starts_with("No sources permitted") {
        "the index has no wheel of it for this interpreter; if it has a source distribution, building that runs its code; \
         `--allow-build` does so in a sandbox"
            .to_owned()
    } else if skipped.starts_with("none of the wheel") || skipped.ends_with("not compatible") {
        "its wheels are for other interpreters or machines".to_owned()
    } else if skipped.is_empty() {
        "the index has no such version".to_owned()
    } else {
        format!("the index sent no valid answer: {}", plain(skipped))
    };
    format!("`{missing}` is not found: {why}")
}

/// Appends the last output of the failed build step.
pub fn with_last_lines(cause: &str, lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
    if lines.is_empty() {
        return cause.to_owned();
    }
    let cause = cause.trim_end_matches('.');
    format!("{cause}; its last lines: {}", lines.join(" | "))
}

/// Returns the wheel's name from the URL that follows pip's message about a wrong hash.
fn wheel_with_another_hash(output: &str) -> Option<&str> {
    let complaint = output
        .lines()
        .skip_while(|line| !line.contains("DO NOT MATCH THE HASHES"));
    let mut words = complaint.flat_map(|line| line.split([' ', '/', '#']));
    words.find(|word| word.strip_suffix(".whl").is_some())
}

/// Lists the hosts that the sandbox could not reach, as the end of a sentence.
pub fn refused_hosts(connections: &[Connection]) -> String {
    let refused = connections
        .iter()
        .filter(|it| it.verdict != "allowed" && !it.host.is_empty());
    let mut hosts: Vec<String> = refused
        .map(|it| match (it.verdict, it.reason) {
            ("refused", Some("host" | "port")) => {
                format!("`--allow-host {}` lets it reach that host", plain(&it.host))
            }
            // Only hosts that the caller names may be on a private network.
            ("refused", Some("private-address" | "own-address")) => format!(
                "only a requirements file names {}, which is on a private network: `--allow-host {}` lets the installation reach it",
                plain(&it.host),
                place_of(it)
            ),
            ("refused", Some("clear-credential")) => format!(
                "the password of {} is sent over https alone, unless `--allow-host {}` says that it is on a private network",
                plain(&it.host),
                place_of(it)
            ),
            (_, reason) => format!("{}: {}", plain(&it.host), reason.unwrap_or("failed")),
        })
        .collect();
    hosts.sort();
    hosts.dedup();
    hosts.truncate(3);
    match &hosts[..] {
        [] => String::new(),
        some => format!(" ({})", some.join("; ")),
    }
}

/// Returns a connection's host and port in the syntax of `--allow-host`.
fn place_of(connection: &Connection) -> String {
    let host = plain(&connection.host);
    let is_ipv6 = host.contains(':');
    let host = if is_ipv6 { format!("[{host}]") } else { host };
    connection
        .port
        .map_or(host.clone(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pip_exception_is_named_by_its_last_line() {
        let output = "ERROR: Exception:\nTraceback (most recent call last):\nInvalidMarker: Expected a marker\n";
        assert_eq!(
            cause(output, ""),
            "pip says: InvalidMarker: Expected a marker"
        );
    }

    #[test]
    fn failed_build_is_shown_with_its_last_lines() {
        let lines = [
            "a.c:1:2:  error: no".to_owned(),
            "\u{1b}[1mfailed".to_owned(),
        ];
        assert_eq!(
            with_last_lines("pip says: It did not run.", &lines),
            "pip says: It did not run; its last lines: a.c:1:2: error: no | [1mfailed"
        );
        assert_eq!(with_last_lines("pip says: No.", &[]), "pip says: No.");
    }
}
