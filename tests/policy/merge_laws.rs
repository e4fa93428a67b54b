//! Property tests of merging: lists append and never replace, scalars override, and splitting a policy
//! into several files does not change it.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sandfork::internals::policy::PolicySettings as _;
use sandfork::{Override, Policy};

use crate::support::Files;

/// Part of a policy: the model to check the product against.
#[derive(Clone, Debug, Default)]
struct Fragment {
    wall_seconds: Option<u32>,
    pids: Option<u32>,
    require: Option<&'static str>,
    env: BTreeMap<String, String>,
    read: Vec<String>,
    preload: Vec<String>,
    deny: Vec<String>,
}

impl Fragment {
    /// Merges two files into one: the later file's scalars, both lists.
    fn then(&self, later: &Self) -> Self {
        let mut env = self.env.clone();
        env.extend(later.env.clone());
        Self {
            wall_seconds: later.wall_seconds.or(self.wall_seconds),
            pids: later.pids.or(self.pids),
            require: later.require.or(self.require),
            env,
            read: [self.read.clone(), later.read.clone()].concat(),
            preload: [self.preload.clone(), later.preload.clone()].concat(),
            deny: [self.deny.clone(), later.deny.clone()].concat(),
        }
    }

    /// Returns the assignments, one key each.
    fn assignments(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut say = |key: &str, value: String| lines.push((key.to_owned(), value));
        if let Some(seconds) = self.wall_seconds {
            say("limits.wall", format!("'{seconds}s'"));
        }
        if let Some(pids) = self.pids {
            say("limits.pids", pids.to_string());
        }
        if let Some(level) = self.require {
            say("assurance.require", format!("'{level}'"));
        }
        for (name, value) in &self.env {
            say(&format!("env.set.{name}"), format!("'{value}'"));
        }
        for (key, list) in [
            ("filesystem.read", &self.read),
            ("python.preload", &self.preload),
            ("syscalls.deny", &self.deny),
        ] {
            if !list.is_empty() {
                say(key, format!("{list:?}"));
            }
        }
        lines
    }

    fn file(&self, extends: Option<&str>) -> String {
        let extends = extends.map(|base| ("extends".to_owned(), format!("'{base}'")));
        let lines = extends.into_iter().chain(self.assignments());
        let lines: Vec<_> = lines
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        lines.join("\n")
    }

    fn overrides(&self) -> Vec<Override> {
        let assignments = self.assignments();
        let texts = assignments
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        texts.map(|text| text.parse().unwrap()).collect()
    }
}

/// Generates a fragment whose list items contain `tag`, so that no two fragments share one.
fn fragment(tag: &'static str) -> impl Strategy<Value = Fragment> {
    let items = move |prefix: &'static str| {
        (0_usize..4).prop_map(move |count| {
            (0..count)
                .map(|i| format!("{prefix}{tag}{i}"))
                .collect::<Vec<_>>()
        })
    };
    (
        option::of(1_u32..1000),
        option::of(1_u32..1000),
        option::of(prop::sample::select(&["landlock", "standard", "full"][..])),
        vec(("[AB]", "[a-z]{0,3}"), 0..3),
        items("/srv/"),
        items("module_"),
        items("call_"),
    )
        .prop_map(
            |(wall_seconds, pids, require, env, read, preload, deny)| Fragment {
                wall_seconds,
                pids,
                require,
                env: env.into_iter().collect(),
                read,
                preload,
                deny,
            },
        )
}

/// Loads the policy of the files, each of which extends the next one.
fn chain(topmost_first: &[&Fragment]) -> Policy {
    let name = |index: usize| format!("{index}.toml");
    let files = topmost_first.iter().enumerate().map(|(index, fragment)| {
        let base = name(index + 1);
        let extends = (index + 1 < topmost_first.len()).then_some(base.as_str());
        (name(index), fragment.file(extends))
    });
    Policy::load(&name(0), &[], &Files::new(files)).unwrap()
}

proptest! {
    #[test]
    fn merging_is_associative(a in fragment("a"), b in fragment("b"), c in fragment("c")) {
        let apart = chain(&[&c, &b, &a]);
        let first_two = chain(&[&c, &a.then(&b)]);
        let last_two = chain(&[&b.then(&c), &a]);
        let in_one = chain(&[&a.then(&b).then(&c)]);
        for other in [first_two, last_two, in_one] {
            prop_assert_eq!(apart.to_toml(), other.to_toml());
            prop_assert_eq!(apart.sha256(), other.sha256());
        }
    }

    #[test]
    fn lists_append_in_order(a in fragment("a"), b in fragment("b")) {
        let policy = chain(&[&b, &a]);
        let read: Vec<_> = policy.filesystem().read.iter().map(|item| item.value.to_str().unwrap()).collect();
        prop_assert_eq!(read, [a.read, b.read].concat());
        let preload: Vec<_> = policy.python().preload.iter().map(|item| item.value.module()).collect();
        prop_assert_eq!(preload, [a.preload, b.preload].concat());
        let deny: Vec<_> = policy.syscalls().deny.iter().map(|item| item.value.as_str()).collect();
        prop_assert_eq!(deny, [a.deny, b.deny].concat());
    }

    #[test]
    fn the_last_scalar_wins(a in fragment("a"), b in fragment("b")) {
        let policy = chain(&[&b, &a]);
        let standard = Policy::default();
        let wall = b.wall_seconds.or(a.wall_seconds).map(u64::from);
        prop_assert_eq!(policy.limits().wall().as_secs(), wall.unwrap_or(standard.limits().wall().as_secs()));
        prop_assert_eq!(policy.limits().pids(), b.pids.or(a.pids).map_or(standard.limits().pids(), u64::from));
        for (name, value) in standard.env().set.iter().chain(&a.env).chain(&b.env) {
            let last = b.env.get(name).or(a.env.get(name)).unwrap_or(value);
            prop_assert_eq!(policy.env().set.get(name), Some(last));
        }
    }

    #[test]
    fn an_empty_file_changes_nothing(a in fragment("a"), b in fragment("b")) {
        let empty = Fragment::default();
        let without = chain(&[&b, &a]);
        for with in [chain(&[&empty, &b, &a]), chain(&[&b, &empty, &a]), chain(&[&b, &a, &empty])] {
            prop_assert_eq!(without.sha256(), with.sha256());
        }
    }

    #[test]
    fn overrides_are_one_more_file(a in fragment("a"), b in fragment("b")) {
        let files = Files::new([("0.toml", a.file(None))]);
        let overridden = Policy::load("0.toml", &b.overrides(), &files).unwrap();
        prop_assert_eq!(overridden.to_toml(), chain(&[&b, &a]).to_toml());
    }

    #[test]
    fn a_rendered_policy_means_the_same(a in fragment("a")) {
        let policy = chain(&[&a]);
        let files = Files::new([("shown.toml", policy.to_toml())]);
        let again = Policy::load("shown.toml", &[], &files).unwrap();
        prop_assert_eq!(again.sha256(), policy.sha256());
        prop_assert_eq!(again.to_toml(), policy.to_toml());
    }

    #[test]
    fn the_hash_tells_policies_apart(a in fragment("a"), b in fragment("b")) {
        let (one, other) = (chain(&[&a]), chain(&[&b]));
        prop_assert_eq!(one.sha256() == other.sha256(), one.to_toml() == other.to_toml());
    }
}
