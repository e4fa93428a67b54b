//! Compares two policies, and reports which of them allows more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::effective::Policy;
use super::keys::{SECTIONS, keys_of};
use super::keyword::{NetworkMode, Stdin, SystemFiles};
use super::module_name::ImportPattern;
use super::origin::Located;
use super::values::{ListChange, Value, given};
use crate::outcome::{Level, Unit, word_enum};
use sandfork_egress::rules::Rule;

/// One difference between two policies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// The change from the first policy to the second.
    pub change: String,
    /// The effect of the change on a guest.
    pub effect: Effect,
}

word_enum! {
    /// The effect of a change on a guest.
    pub enum Effect {
        /// The guest may do more.
        Wider = "wider",
        /// The guest may do less.
        Narrower = "narrower",
        /// Neither, or the effect is unknown.
        Other = "other",
    }
}

impl Effect {
    fn opposite(self) -> Self {
        match self {
            Self::Wider => Self::Narrower,
            Self::Narrower => Self::Wider,
            Self::Other => Self::Other,
        }
    }

    /// Returns the effect of changing a value of which a greater one allows more.
    fn of<T: PartialOrd>(before: &T, after: &T) -> Self {
        if after > before {
            Self::Wider
        } else {
            Self::Narrower
        }
    }
}

/// What a guest may do as the value of a key grows, its list gets longer, or its flag becomes true.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Allows {
    /// The guest may do more.
    More,
    /// The guest may do less.
    Less,
    /// The values have no order.
    Neither,
}

/// Returns the direction of a key.
fn direction(key: &str) -> Allows {
    match key {
        "syscalls.deny" | "assurance.require" | "python.fresh" | "network.ask" => Allows::Less,
        "python.interpreter"
        | "python.environment"
        | "python.packages"
        | "python.preload"
        | "environments.create"
        | "env.set"
        | "session.pause_after"
        | "extends"
        | "description" => Allows::Neither,
        _ => Allows::More,
    }
}

impl Policy {
    /// Returns the changes from this policy to `other`, in the order of a policy file. The description has no
    /// effect and is left out.
    pub(crate) fn differences(&self, other: &Self) -> Vec<Difference> {
        let mut all = Vec::new();
        for (section, _) in SECTIONS {
            for key in keys_of(section) {
                let (before, after) = (self.values.value(key.name), other.values.value(key.name));
                let differ = Differ {
                    key: key.name,
                    this: self,
                    other,
                };
                differ.of(given(before), given(after), &mut all);
            }
        }
        all
    }
}

/// Compares the values of one key.
struct Differ<'a> {
    key: &'static str,
    this: &'a Policy,
    other: &'a Policy,
}

impl Differ<'_> {
    fn of(&self, before: &Value, after: &Value, all: &mut Vec<Difference>) {
        match (before, after) {
            (Value::List(before), Value::List(after)) => {
                let items = |list: &ListChange| -> BTreeSet<String> {
                    list.add.iter().map(|item| item.value.clone()).collect()
                };
                let (before, after) = (items(before), items(after));
                for item in before.difference(&after) {
                    let effect = self.effect(self.covers(self.other, item)).opposite();
                    all.push(self.item('-', item, effect));
                }
                for item in after.difference(&before) {
                    let effect = self.effect(self.covers(self.this, item));
                    all.push(self.item('+', item, effect));
                }
            }
            (Value::Variables(before), Value::Variables(after)) => {
                let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
                for name in names {
                    let values = [before, after].map(|set| set.get(name).map(|value| &value.value));
                    let change = match values {
                        [Some(before), Some(after)] if before != after => {
                            format!("{name}: {before:?} -> {after:?}")
                        }
                        [Some(before), None] => format!("- {name}={before:?}"),
                        [None, Some(after)] => format!("+ {name}={after:?}"),
                        _ => continue,
                    };
                    all.push(self.scalar(change, Effect::Other));
                }
            }
            _ if before == after => {}
            _ => {
                let change = format!("{} -> {}", text(before), text(after));
                let effect = match direction(self.key) {
                    Allows::Neither => Effect::Other,
                    Allows::More => self.order(before, after),
                    Allows::Less => self.order(before, after).opposite(),
                };
                all.push(self.scalar(change, effect));
            }
        }
    }

    /// Returns the effect of adding a list item. `covered` means that other items allow the same already.
    fn effect(&self, covered: bool) -> Effect {
        match direction(self.key) {
            _ if covered => Effect::Other,
            Allows::More => Effect::Wider,
            Allows::Less => Effect::Narrower,
            Allows::Neither => Effect::Other,
        }
    }

    /// Returns whether the policy already allows everything that a list item allows.
    fn covers(&self, policy: &Policy, item: &str) -> bool {
        let beneath = |paths: &[Located<PathBuf>]| {
            paths
                .iter()
                .any(|path| Path::new(item).starts_with(&path.value))
        };
        match self.key {
            "imports.allow" => {
                let item: Option<ImportPattern> = item.parse().ok();
                let listed = &policy.imports.allow;
                item.is_some_and(|item| listed.iter().any(|pattern| pattern.covers(&item)))
            }
            "filesystem.read" => {
                beneath(&policy.filesystem.read) || beneath(&policy.filesystem.write)
            }
            "filesystem.write" => beneath(&policy.filesystem.write),
            // Of all entries for a host, the most specific ones decide, so one more entry may allow less.
            "network.allow" => item.parse().is_ok_and(|item: Rule| {
                let mut listed = policy.network.allow.iter();
                listed.any(|rule| rule.value.hosts().meets(item.hosts()))
            }),
            _ => false,
        }
    }

    /// Returns the effect of changing a value of which a greater one allows more.
    fn order(&self, before: &Value, after: &Value) -> Effect {
        fn words<T: std::str::FromStr + PartialOrd>(before: &str, after: &str) -> Effect {
            match (before.parse::<T>(), after.parse::<T>()) {
                (Ok(before), Ok(after)) => Effect::of(&before, &after),
                _ => Effect::Other,
            }
        }
        match (before, after) {
            (Value::Flag(before), Value::Flag(after)) => Effect::of(before, after),
            (Value::Limit(_, before), Value::Limit(_, after)) => Effect::of(before, after),
            (Value::Term(before), Value::Term(after)) => {
                let longest = |time: &Option<u64>| time.unwrap_or(u64::MAX);
                Effect::of(&longest(before), &longest(after))
            }
            (Value::Text(before), Value::Text(after)) => match self.key {
                // The operands of `SystemFiles` are swapped because its first variant is the wider one.
                "network.mode" => words::<NetworkMode>(before, after),
                "stdio.stdin" => words::<Stdin>(before, after),
                "filesystem.system" => words::<SystemFiles>(after, before),
                "assurance.require" => words::<Level>(before, after),
                "python.project" if before.is_empty() => Effect::Wider,
                "python.project" if after.is_empty() => Effect::Narrower,
                _ => Effect::Other,
            },
            _ => Effect::Other,
        }
    }

    fn item(&self, sign: char, item: &str, effect: Effect) -> Difference {
        self.scalar(format!("{sign} {item}"), effect)
    }

    fn scalar(&self, change: String, effect: Effect) -> Difference {
        Difference {
            key: self.key.to_owned(),
            change,
            effect,
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Flag(flag) => flag.to_string(),
        Value::Text(text) => text.clone(),
        Value::Limit(limit, amount) => limit.spec().unit.text(*amount),
        Value::Term(Some(time)) => Unit::Duration.text(*time),
        Value::Term(None) => super::keys::NEVER.to_owned(),
        Value::List(_) | Value::Variables(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::policy::BuiltInsOnly;

    fn with(sets: &[&str]) -> Policy {
        let sets: Vec<_> = sets.iter().map(|set| set.parse().unwrap()).collect();
        Policy::load("standard", &sets, &BuiltInsOnly).unwrap()
    }

    fn shown(before: &Policy, after: &Policy) -> Vec<String> {
        let differences = before.differences(after);
        let lines = differences
            .iter()
            .map(|it| format!("{} {} {}", it.key, it.change, it.effect));
        lines.collect()
    }

    #[test]
    fn policy_has_no_differences_from_itself() {
        let policy = with(&["filesystem.read=/srv", "limits.wall=2s"]);
        assert_eq!(shown(&policy, &policy), [""; 0]);
    }

    /// Each case changes one key. The reverse change has the opposite effect.
    #[test]
    fn each_key_has_its_direction() {
        let cases: &[(&[&str], &str)] = &[
            (&["filesystem.read=/srv"], "filesystem.read + /srv wider"),
            (&["filesystem.write=/srv"], "filesystem.write + /srv wider"),
            (
                &["filesystem.system=libraries"],
                "filesystem.system programs -> libraries narrower",
            ),
            (
                &["filesystem.proc=false"],
                "filesystem.proc true -> false narrower",
            ),
            (
                &["filesystem.work_exec=true"],
                "filesystem.work_exec false -> true wider",
            ),
            (
                &["network.mode=loopback"],
                "network.mode none -> loopback wider",
            ),
            (
                &["network.mode=none", "network.allow=a.b"],
                "network.allow + a.b wider",
            ),
            (&["network.ask=true"], "network.ask false -> true narrower"),
            (
                &["network.proxy=http://a.b"],
                "network.proxy  -> http://a.b other",
            ),
            (&["python.path=/srv"], "python.path + /srv wider"),
            (&["python.project=/srv"], "python.project  -> /srv wider"),
            (
                &["python.fresh=true"],
                "python.fresh false -> true narrower",
            ),
            (&["python.preload=numpy"], "python.preload + numpy other"),
            (
                &["python.interpreter=python3.12"],
                "python.interpreter python3 -> python3.12 other",
            ),
            (&["env.set.A=b"], "env.set + A=\"b\" other"),
            (&["env.set.TZ=b"], "env.set TZ: \"UTC\" -> \"b\" other"),
            (&["env.pass=A"], "env.pass + A wider"),
            (&["stdio.stdin=pass"], "stdio.stdin closed -> pass wider"),
            (&["limits.wall=2s"], "limits.wall 30s -> 2s narrower"),
            (
                &["limits.memory=1GiB"],
                "limits.memory 512MiB -> 1GiB wider",
            ),
            (&["session.idle=never"], "session.idle 1h -> never wider"),
            (&["syscalls.allow=splice"], "syscalls.allow + splice wider"),
            (&["syscalls.deny=execve"], "syscalls.deny + execve narrower"),
            (
                &["assurance.require=landlock"],
                "assurance.require standard -> landlock wider",
            ),
        ];
        let standard = with(&[]);
        for (sets, expected) in cases {
            let changed = with(sets);
            assert_eq!(shown(&standard, &changed), [*expected], "{sets:?}");
            let back = changed.differences(&standard);
            assert_eq!(back.len(), 1);
            let forth = standard.differences(&changed)[0].effect;
            assert_eq!(back[0].effect, forth.opposite(), "{sets:?}");
        }
    }

    #[test]
    fn entry_for_a_host_that_is_listed_has_no_known_effect() {
        let domain = "network.allow=*.example.org";
        let wide = with(&[domain]);
        let (narrower, wider) = (
            with(&[domain, "network.allow=api.example.org"]),
            with(&[domain, "network.allow=example.org"]),
        );
        let expected = ["network.allow + api.example.org other"];
        assert_eq!(shown(&wide, &narrower), expected);
        assert_eq!(shown(&wide, &wider), ["network.allow + example.org wider"]);
    }

    #[test]
    fn import_list_replaces_the_wildcard() {
        let listed = with(&["imports.allow=math"]);
        assert_eq!(
            shown(&with(&[]), &listed),
            ["imports.allow - * narrower", "imports.allow + math other"]
        );
    }

    #[test]
    fn item_that_is_already_covered_is_not_wider() {
        let wide = with(&["filesystem.read=/srv", "imports.allow=[\"numpy.*\"]"]);
        let more = with(&[
            "filesystem.read=[\"/srv\", \"/srv/in\"]",
            "imports.allow=[\"numpy.*\", \"numpy.linalg\"]",
        ]);
        assert_eq!(
            shown(&wide, &more),
            [
                "imports.allow + numpy.linalg other",
                "filesystem.read + /srv/in other"
            ]
        );
    }
}
