//! The command line of a program, and the shortened form of it in process lists.

use serde::{Deserialize, Serialize};

use super::registry::StringMap;

/// The maximum number of bytes of a program's arguments and variables that lists show.
const MAX_LISTED: usize = 16 << 10;
/// The memory overhead in bytes of each string.
const STRING_OVERHEAD: usize = 64;

/// The command line of a program, as in the protocol.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Config {
    pub cmd: String,
    pub args: Vec<String>,
    pub envs: StringMap,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

impl Config {
    /// Returns the part that lists show and that stays in memory: strings that are too long end with `…`, and the
    /// strings after them are omitted.
    pub fn shortened(mut self) -> Self {
        let mut left = Left(MAX_LISTED);
        left.shorten(&mut self.cmd);
        self.cwd.iter_mut().for_each(|cwd| _ = left.shorten(cwd));
        self.args.retain_mut(|arg| left.shorten(arg));
        self.args.shrink_to_fit();
        self.envs
            .retain(|name, text| left.take(name.len()) && left.shorten(text));
        self
    }
}

/// The remaining byte budget.
struct Left(usize);

impl Left {
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }

    /// Truncates a string to the remaining budget. Returns whether any budget was left.
    fn shorten(&mut self, text: &mut String) -> bool {
        let has_room = self.take(STRING_OVERHEAD);
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
    fn long_command_lines_are_truncated() {
        let long = "é".repeat(MAX_LISTED);
        let config = Config {
            cmd: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), long.clone(), long.clone(), String::new()],
            envs: StringMap::from([("A".to_owned(), long)]),
            cwd: Some("/work".to_owned()),
        };
        let all = config.shortened();
        assert_eq!((&*all.cmd, all.cwd.as_deref()), ("/bin/sh", Some("/work")));
        let [first, second] = &all.args[..] else {
            panic!("the others are missing");
        };
        assert_eq!(first, "-c");
        assert!(second.ends_with("é…") && second.len() <= MAX_LISTED);
        assert!(all.envs.is_empty());
        let short = Config {
            args: vec!["x".to_owned(); 100],
            envs: StringMap::from([("A".to_owned(), "b".to_owned())]),
            ..Config::default()
        };
        let kept = short.clone().shortened();
        assert_eq!((kept.args, kept.envs), (short.args, short.envs));
    }
}
