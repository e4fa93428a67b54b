//! Writes a policy file from a base policy and single settings, each with its reason as a comment.

use std::fmt::Write as _;

use serde::Serialize;

use super::error::{PolicyError, Refused};
use super::keys::{SECTIONS, keys_of};
use super::overrides::Override;
use super::values::{Item, ListChange, Value, Values};

/// A setting, and the reason for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The setting.
    pub set: Override,
    /// The reason, which may quote a guest.
    pub why: String,
}

/// Returns the text of a policy file that extends `base` and has these settings. If two settings give one key a single
/// value, the later one wins. `about` is the first comment. Relative paths are resolved against `directory`.
///
/// # Errors
/// If a setting is invalid.
pub fn learnt(
    about: &str,
    base: &str,
    grants: &[Grant],
    directory: Option<&std::path::Path>,
) -> Result<String, PolicyError> {
    let mut read: Vec<(Values, &str)> = Vec::new();
    for grant in grants {
        let layer = grant
            .set
            .layer(directory)
            .map_err(|errors| Refused::from(errors).first())?;
        if let Some(error) = layer.errors.into_iter().next() {
            return Err(error);
        }
        read.push((layer.values, &grant.why));
    }
    let mut file = format!("{}extends = {}\n", comment(about), notation(base));
    for (section, _) in SECTIONS {
        let mut lines = String::new();
        for key in keys_of(section) {
            let settings: Vec<(&Value, &str)> = read
                .iter()
                .filter_map(|(values, why)| Some((values.value(key.name)?, *why)))
                .collect();
            write_key(key.parts().1, &settings, &mut lines);
        }
        if !lines.is_empty() {
            // Writing to a string cannot fail.
            _ = write!(file, "\n[{section}]\n{lines}");
        }
    }
    Ok(file)
}

fn write_key(name: &str, settings: &[(&Value, &str)], file: &mut String) {
    let Some((last, why)) = settings.last() else {
        return;
    };
    match last {
        Value::List(_) => write_list(name, settings, file),
        Value::Variables(_) => {
            for (value, why) in settings {
                if let Value::Variables(set) = value {
                    for (variable, value) in set {
                        _ = writeln!(
                            file,
                            "{}{name}.{variable} = {}",
                            comment(why),
                            notation(&value.value)
                        );
                    }
                }
            }
        }
        other => _ = writeln!(file, "{}{name} = {}", comment(why), notation(other)),
    }
}

fn write_list(name: &str, settings: &[(&Value, &str)], file: &mut String) {
    let lists: Vec<(&ListChange, &str)> = settings
        .iter()
        .filter_map(|(value, why)| match value {
            Value::List(list) => Some((list, *why)),
            _ => None,
        })
        .collect();
    if lists.iter().all(|(list, _)| list.remove.is_empty()) {
        _ = writeln!(file, "{name} = [");
        for (list, why) in lists {
            for item in &list.add {
                _ = writeln!(
                    file,
                    "  {}, # {}",
                    notation(&Item(&item.value)),
                    one_line(why)
                );
            }
        }
        file.push_str("]\n");
        return;
    }
    // An inline table must be on one line, so the reasons precede it.
    let texts = |pick: fn(&ListChange) -> &Vec<super::Located<String>>| {
        let items = lists.iter().flat_map(|(list, _)| pick(list));
        items
            .map(|item| notation(&Item(&item.value)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for (_, why) in &lists {
        file.push_str(&comment(why));
    }
    let (remove, add) = (texts(|list| &list.remove), texts(|list| &list.add));
    let add = if add.is_empty() {
        String::new()
    } else {
        format!(", add = [{add}]")
    };
    _ = writeln!(file, "{name} = {{ remove = [{remove}]{add} }}");
}

/// Formats a value as TOML.
fn notation<T: Serialize + ?Sized>(value: &T) -> String {
    let value = toml::Value::try_from(value).expect("a value of a policy is one of TOML");
    value.to_string()
}

fn comment(text: &str) -> String {
    format!("# {}\n", one_line(text))
}

/// Replaces line breaks and other control characters, which would end a comment.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Policy, PolicySource};

    /// A single policy file.
    struct File(String);

    impl PolicySource for File {
        fn read(&self, _: &std::path::Path) -> std::io::Result<String> {
            Ok(self.0.clone())
        }

        fn current_dir(&self) -> std::io::Result<std::path::PathBuf> {
            Ok("/srv".into())
        }
    }

    fn grants(sets: &[(&str, &str)]) -> Vec<Grant> {
        let grant = |(set, why): &(&str, &str)| Grant {
            set: set.parse().unwrap(),
            why: (*why).to_owned(),
        };
        sets.iter().map(grant).collect()
    }

    fn written(grants: &[Grant]) -> String {
        learnt("Learnt.", "strict", grants, Some("/srv".as_ref())).unwrap()
    }

    /// Checks that the file has the same effect as the settings.
    fn assert_same_effect(grants: &[Grant]) {
        let text = written(grants);
        let file = Policy::load("./learnt.toml", &[], &File(text.clone()));
        let sets: Vec<Override> = grants.iter().map(|grant| grant.set.clone()).collect();
        let set = Policy::load("strict", &sets, &File(String::new())).unwrap();
        assert_eq!(file.unwrap().sha256(), set.sha256(), "{text}");
    }

    #[test]
    fn each_line_has_its_reason() {
        let grants = grants(&[
            (
                "filesystem.read=/srv/in.csv",
                "open /srv/in.csv (train.py:3)",
            ),
            (
                "syscalls.deny={ remove = [\"execve\"] }",
                "execve by seccomp",
            ),
            ("limits.wall=1m", "limit 30s on the clock"),
            ("filesystem.read=/srv/it's \"here\"", "open (train.py:4)"),
            ("limits.pids=32", "fork"),
            ("network.mode=loopback", "socket AF_INET"),
            ("limits.wall=2m", "limit 1m on the clock"),
            ("env.set.A=b", "given"),
            ("session.idle=never", "given"),
            ("filesystem.work_exec=true", "run /work/a.out"),
        ]);
        insta::assert_snapshot!(written(&grants));
        assert_same_effect(&grants);
    }

    #[test]
    fn host_with_conditions_is_written_as_a_table() {
        let grants = grants(&[
            ("network.allow=a.example", "connect a.example"),
            (
                "network.allow={ host = 'b.example', ports = [8443], methods = ['GET'] }",
                "connect b.example:8443",
            ),
        ]);
        let text = written(&grants);
        assert!(text.contains("host = \"b.example\""), "{text}");
        assert_same_effect(&grants);
    }

    /// A reason may quote a path that a hostile guest chose.
    #[test]
    fn reason_cannot_inject_a_key() {
        let hostile = "open /a\n[syscalls]\nallow = ['splice']\r\u{85}\u{2028}x # ]";
        let grants = grants(&[
            ("filesystem.read=/srv/x", hostile),
            ("filesystem.work_exec=true", hostile),
            ("syscalls.deny={ remove = [\"execve\"] }", hostile),
        ]);
        assert_same_effect(&grants);
    }

    #[test]
    fn invalid_setting_is_rejected() {
        let grants = grants(&[("filesystem.read=/proc/1", "")]);
        assert!(learnt("", "standard", &grants, None).is_err());
    }

    proptest! {
        #[test]
        fn any_path_and_reason_round_trip(
            path in "/srv/[^\0]{1,20}", why in any::<String>()
        ) {
            let set: Override = format!("filesystem.read={path}").parse().unwrap();
            if set.is_valid() {
                assert_same_effect(&[Grant { set, why }]);
            }
        }
    }
}
