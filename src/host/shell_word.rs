//! Quotes an argument for a shell, so that a person can copy it.

/// Returns the argument as one word of a POSIX shell.
pub fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn shell_reads_the_argument_back() {
        for (argument, word) in [
            ("limits.wall=2s", "limits.wall=2s"),
            ("filesystem.read=/a b", "'filesystem.read=/a b'"),
            ("x='$(id)'`id`", r"'x='\''$(id)'\''`id`'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(argument), word);
            let echo = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(argument))])
                .output()
                .expect("there is a shell");
            assert_eq!(String::from_utf8_lossy(&echo.stdout), argument);
        }
    }
}
