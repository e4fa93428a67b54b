//! Runs code once at each level and evaluates the result.

use serde_json::Value;

use super::image::SYSTEM_PYTHON;
use super::job::Program;
use super::judge::Ran;

/// The levels, strongest first.
pub const LEVELS: [&str; 3] = ["full", "standard", "landlock"];

/// The result of a policy that requires a level.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The code ran at this level, as verified from outside.
    Given(String),
    /// Nothing ran. Holds the error message.
    Refused(String),
    /// Neither happened, which is a defect.
    Broken(String),
}

/// Returns a run that requires `level` and prints the level that it got.
pub fn program(level: &str, sandfork: &str) -> Program {
    let require = format!("assurance.require={level}");
    let python = format!("python.interpreter={SYSTEM_PYTHON}");
    let words = [
        sandfork, "run", "--json", "--set", &require, "--set", &python, "-c", "6 * 7",
    ];
    Program {
        name: name(level),
        words: words.map(str::to_owned).into(),
    }
}

/// Returns the name of the run among a guest's programs.
pub fn name(level: &str) -> String {
    format!("level {level}")
}

/// Parses the output of the run of a level.
pub fn answer(ran: &Ran) -> Answer {
    let text = ran.lines.join("\n");
    if let Ok(outcome) = serde_json::from_str::<Value>(&text)
        && outcome["value"] == 42
        && let Some(level) = outcome["enforced"]["level"].as_str()
    {
        return Answer::Given(level.to_owned());
    }
    match ran.lines.as_slice() {
        [sentence] if ran.status == Some(125) => {
            let cause = sentence.strip_prefix("sandfork: ").unwrap_or(sentence);
            Answer::Refused(cause.to_owned())
        }
        _ => Answer::Broken(format!("status {:?}: {text}", ran.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(status: i32, lines: &[&str]) -> Ran {
        Ran {
            name: name("full"),
            status: Some(status),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    #[test]
    fn level_comes_from_the_outcome() {
        let lines = [
            "{",
            "\"value\": 42,",
            "\"enforced\": {\"level\": \"standard\"}",
            "}",
        ];
        let given = Answer::Given("standard".to_owned());
        assert_eq!(answer(&ran(0, &lines)), given);
    }

    #[test]
    fn refusal_is_one_line_with_status_125() {
        let line = ["sandfork: default requires level `full`: no cgroups"];
        let cause = "default requires level `full`: no cgroups".to_owned();
        assert_eq!(answer(&ran(125, &line)), Answer::Refused(cause));
        assert!(matches!(answer(&ran(1, &line)), Answer::Broken(_)));
        assert!(matches!(answer(&ran(125, &[])), Answer::Broken(_)));
    }

    #[test]
    fn an_outcome_with_another_value_is_a_defect() {
        let lines = ["{\"value\": 41, \"enforced\": {\"level\": \"full\"}}"];
        assert!(matches!(answer(&ran(0, &lines)), Answer::Broken(_)));
    }
}
