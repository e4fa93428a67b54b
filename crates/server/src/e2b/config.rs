//! What a client starts, and what lists say of it.

use serde::{Deserialize, Serialize};

use super::registry::Texts;

/// Bytes of a program's arguments and variables that lists have.
const MOST_LISTED: usize = 16 << 10;
/// What a text takes beside its bytes.
const OF_TEXT: usize = 64;

/// What a client starts, in the words of the protocol.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Config {
    pub cmd: String,
    pub args: Vec<String>,
    pub envs: Texts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

impl Config {
    /// What lists say of it, and stays in memory: texts that are too long end with `…`, and those after them are missing.
    pub fn shortened(mut self) -> Self {
        let mut left = Left(MOST_LISTED);
        left.shorten(&mut self.cmd);
        self.cwd.iter_mut().for_each(|cwd| _ = left.shorten(cwd));
        self.args.retain_mut(|arg| left.shorten(arg));
        self.args.shrink_to_fit();
        self.envs
            .retain(|name, text| left.take(name.len()) && left.shorten(text));
        self
    }
}

/// The bytes that are left for what lists say.
struct Left(usize);

impl Left {
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }

    /// Leaves of a text what there is room for, if there is any.
    fn shorten(&mut self, text: &mut String) -> bool {
        let has_room = self.take(OF_TEXT);
        let room = self.0;
        if !self.take(text.len()) {
            let end = (0..=room).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or_default());
            text.push('…');
            text.shrink_to_fit();
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_the_beginning_of_a_long_command() {
        let long = "é".repeat(MOST_LISTED);
        let config = Config {
            cmd: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), long.clone(), long.clone(), String::new()],
            envs: Texts::from([("A".to_owned(), long)]),
            cwd: Some("/work".to_owned()),
        };
        let all = config.shortened();
        assert_eq!((&*all.cmd, all.cwd.as_deref()), ("/bin/sh", Some("/work")));
        let [first, second] = &all.args[..] else {
            panic!("the others are missing");
        };
        assert_eq!(first, "-c");
        assert!(second.ends_with("é…") && second.len() <= MOST_LISTED);
        assert!(all.envs.is_empty());
        let short = Config {
            args: vec!["x".to_owned(); 100],
            envs: Texts::from([("A".to_owned(), "b".to_owned())]),
            ..Config::default()
        };
        let kept = short.clone().shortened();
        assert_eq!((kept.args, kept.envs), (short.args, short.envs));
    }
}
