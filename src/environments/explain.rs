//! Why packages could not be installed, in words. Pure.

use crate::outcome::Connection;

/// A text of the guest in one line, without what acts on a terminal.
pub fn plain(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(600)
        .collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Why pip found no wheels: what it says at its end, and why it passed over pages or files.
pub fn cause(said: &str, passed_over: &str) -> String {
    let lines = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ERROR: "));
    let causes: Vec<String> = lines.map(plain).filter(|line| !line.is_empty()).collect();
    // Some lines only repeat that something failed.
    let repeats = ["Failed to build one or more wheels", "ResolutionImpossible"];
    let says_more = |line: &&String| !repeats.iter().any(|it| line.starts_with(it));
    let last = causes.iter().rev().find(says_more);
    // How pip says which step of a build failed.
    let mut steps = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix('×'));
    let step = steps.next().map(plain);
    let last = last
        .or(step.as_ref())
        .map_or("a wheel cannot be built", String::as_str);
    // A fault within pip: the traceback that follows ends with what it is.
    let end = said.lines().rev().find(|line| !line.trim().is_empty());
    let fault = plain(end.unwrap_or_default());
    let last = if last == "Exception:" { &fault } else { last };
    if last.contains("DO NOT MATCH THE HASHES") {
        return format!(
            "{} has not the hash that the index or the lock says, so it was changed on its way, or the lock is of other files",
            wheel_with_another_hash(said).map_or("a wheel".to_owned(), plain)
        );
    }
    let Some(missing) = last.strip_prefix("No matching distribution found for ") else {
        return format!("pip says: {last}");
    };
    // Behind it stands the file that asks for it.
    let missing = missing.split(" (from ").next().unwrap_or(missing);
    let why = if passed_over.starts_with("No sources permitted") {
        "the index has no wheel of it for this interpreter; if it has a source distribution, building that runs its code; \
         `--allow-build` does so in a sandbox"
            .to_owned()
    } else if passed_over.starts_with("none of the wheel")
        || passed_over.ends_with("not compatible")
    {
        "its wheels are for other interpreters or machines".to_owned()
    } else if passed_over.is_empty() {
        "the index has no such version".to_owned()
    } else {
        format!("the index does not answer as one: {}", plain(passed_over))
    };
    format!("`{missing}` is not found: {why}")
}

/// The cause, with what the step of a build that failed printed at its end.
pub fn with_last_lines(cause: &str, lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
    if lines.is_empty() {
        return cause.to_owned();
    }
    let cause = cause.trim_end_matches('.');
    format!("{cause}; its last lines: {}", lines.join(" | "))
}

/// The name that follows on pip's complaint about a hash, at the end of a URL.
fn wheel_with_another_hash(said: &str) -> Option<&str> {
    let complaint = said
        .lines()
        .skip_while(|line| !line.contains("DO NOT MATCH THE HASHES"));
    let mut words = complaint.flat_map(|line| line.split([' ', '/', '#']));
    words.find(|word| word.strip_suffix(".whl").is_some())
}

/// Hosts that the sandbox was refused, for the end of a sentence.
pub fn refused_hosts(connections: &[Connection]) -> String {
    let refused = connections
        .iter()
        .filter(|it| it.verdict != "allowed" && !it.host.is_empty());
    let mut hosts: Vec<String> = refused
        .map(|it| match (it.verdict, it.reason) {
            ("refused", Some("host" | "port")) => {
                format!("`--allow-host {}` lets it reach that host", plain(&it.host))
            }
            // What the caller names may be on a private network.
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

/// The host and the port of a connection, as `--allow-host` takes them.
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
    fn a_fault_within_pip_is_told_by_the_end_of_its_traceback() {
        let said = "ERROR: Exception:\nTraceback (most recent call last):\nInvalidMarker: Expected a marker\n";
        assert_eq!(
            cause(said, ""),
            "pip says: InvalidMarker: Expected a marker"
        );
    }

    #[test]
    fn a_build_that_failed_is_told_with_its_last_lines() {
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
