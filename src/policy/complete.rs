//! Completes partially typed overrides, for shells.

use super::keys::{Kind, NEVER, SECTIONS, keys_of};

/// Returns the completions of a partially typed override, each with its description: keys with their `=`, and after the
/// `=` the keywords that the key accepts.
pub fn overrides_beginning_with(text: &str) -> Vec<(String, &'static str)> {
    let keys = SECTIONS.iter().flat_map(|(section, _)| keys_of(section));
    let overrides = keys.flat_map(|key| {
        let begun = format!("{}=", key.name);
        let words: &[&str] = match key.kind {
            _ if !text.starts_with(&begun) => return vec![(begun, key.about)],
            Kind::Flag => &["true", "false"],
            Kind::Word(words) => words,
            Kind::Term => &[NEVER],
            Kind::Text(_) | Kind::List(_) | Kind::Rules | Kind::Variables | Kind::Limit(_) => &[],
        };
        let whole = |word: &&str| (format!("{begun}{word}"), "");
        words.iter().map(whole).collect()
    });
    let matches = |(whole, _): &(String, &str)| whole.starts_with(text);
    overrides.filter(matches).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completions(text: &str) -> Vec<String> {
        let found = overrides_beginning_with(text).into_iter();
        found.map(|(whole, _)| whole).collect()
    }

    #[test]
    fn section_completes_to_its_keys() {
        assert_eq!(
            completions("session."),
            [
                "session.idle=",
                "session.age=",
                "session.pause_after=",
                "session.snapshots=",
                "session.snapshot_bytes="
            ]
        );
        assert_eq!(completions("limits.w"), ["limits.wall="]);
        assert!(overrides_beginning_with("limits.wall")[0].1.len() > 10);
        assert!(completions("").contains(&"env.set=".to_owned()));
        assert_eq!(completions("extends"), [""; 0], "overrides cannot set it");
    }

    #[test]
    fn key_completes_to_its_values() {
        assert_eq!(
            completions("assurance.require=s"),
            ["assurance.require=standard"]
        );
        let flags = ["python.fresh=true", "python.fresh=false"];
        assert_eq!(completions("python.fresh="), flags);
        assert_eq!(completions("session.age="), ["session.age=never"]);
        assert_eq!(completions("limits.wall="), [""; 0]);
    }
}
