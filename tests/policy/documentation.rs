//! Tests that docs/policy.md matches the parser.

use std::collections::BTreeSet;

use sandfork::internals::outcome::limit_spec;
use sandfork::internals::policy::schema;
use sandfork::{LimitName, Policy};
use sandfork_egress::refusal::{Failure, Refusal};

use crate::support::Files;

const DOCUMENT: &str = include_str!("../../docs/policy.md");

/// Returns the fenced blocks of a language, in order, each with the block that directly follows it.
fn fenced(document: &str) -> Vec<(&str, &str)> {
    let mut blocks = Vec::new();
    let mut rest = document;
    while let Some((_, opened)) = rest.split_once("\n```") {
        let (language, body) = opened.split_once('\n').expect("a fence ends its line");
        let (body, after) = body.split_once("\n```").expect("a fence is closed");
        blocks.push((language, body));
        rest = after;
    }
    blocks
}

fn load(text: &str) -> Result<Policy, String> {
    let files = Files::new([("tenant.toml", text)]);
    Policy::load("tenant.toml", &[], &files).map_err(|error| error.to_string())
}

#[test]
fn each_policy_shown_is_valid_or_gives_the_error_shown_beneath() {
    let blocks = fenced(DOCUMENT);
    let mut refused = 0;
    for (index, (language, body)) in blocks.iter().enumerate() {
        if *language != "toml" {
            continue;
        }
        match blocks.get(index + 1) {
            Some(("text", shown)) => {
                assert_eq!(load(body).expect_err(body), *shown);
                refused += 1;
            }
            _ => assert!(load(body).is_ok(), "{body}\n{:?}", load(body)),
        }
    }
    assert!(refused >= 8, "{refused} errors shown");
}

#[test]
fn each_key_has_a_row_and_each_row_a_key() {
    let rows: BTreeSet<String> = DOCUMENT
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(key, _)| key.to_owned())
        .collect();
    let schema = schema();
    let mut keys = BTreeSet::new();
    for (name, value) in schema["properties"].as_object().unwrap() {
        match value["properties"].as_object() {
            Some(table) => keys.extend(table.keys().map(|key| format!("{name}.{key}"))),
            None => drop(keys.insert(name.clone())),
        }
    }
    assert_eq!(rows, keys);
}

#[test]
fn the_defaults_in_the_rows_are_those_of_standard() {
    let standard: toml::Table = Policy::default().to_toml().parse().unwrap();
    let mut checked = 0;
    for line in DOCUMENT.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line
            .split(" | ")
            .map(|cell| cell.trim_matches(['|', ' ']))
            .collect();
        let key = cells[0].trim_matches('`');
        let Some(default) = cells[2]
            .strip_prefix('`')
            .and_then(|cell| cell.strip_suffix('`'))
        else {
            continue;
        };
        let value = key
            .split('.')
            .try_fold(&toml::Value::Table(standard.clone()), |table, name| {
                table.get(name)
            })
            .cloned();
        let shown: toml::Value = default.parse().expect(line);
        assert_eq!(value, Some(shown), "{line}");
        checked += 1;
    }
    assert!(checked > 25, "{checked} defaults shown");
}

#[test]
fn the_python_client_has_the_noun_of_each_limit() {
    let endings = include_str!("../../python/src/sandfork/_endings.py");
    for name in LimitName::ALL {
        let entry = format!("    \"{}\": \"{}\",\n", name.key(), limit_spec(name).noun);
        assert!(endings.contains(&entry), "{entry}");
    }
}

#[test]
fn each_reason_of_the_egress_process_is_explained() {
    let document = include_str!("../../docs/network.md");
    let refusals = Refusal::ALL.iter().map(|it| it.as_str());
    let failures = Failure::ALL.iter().map(|it| it.as_str());
    let rows: BTreeSet<&str> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next())
        .flat_map(|cell| cell.split(", "))
        .map(|word| word.trim_matches('`'))
        .collect();
    for reason in refusals.chain(failures) {
        assert!(rows.contains(reason), "{reason}");
    }
}
