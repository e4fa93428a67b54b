//! Replaces the references in a policy with secrets. Only the egress process receives the result.

use std::fmt;
use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sandfork_egress::control;
use sandfork_egress::rules::{Rule, Rules};

use crate::error::ErrorKind;
use crate::host::CallerEnvironment;
use crate::policy::{Proxy, Reference, Template};
use crate::supervisor::error::SupervisorError;

/// Returns the rules with their secrets.
pub(super) fn filled_rules(
    rules: &Rules,
    environment: &CallerEnvironment,
) -> Result<Rules, SupervisorError> {
    let filled: Result<Vec<Rule>, _> = rules.iter().map(|rule| fill(rule, environment)).collect();
    // The rules are valid without secrets, and secrets cannot make them contradict each other.
    Ok(Rules::new(filled?).unwrap_or_default())
}

fn fill(rule: &Rule, environment: &CallerEnvironment) -> Result<Rule, SupervisorError> {
    let Some(credential) = rule.credential() else {
        return Ok(rule.clone());
    };
    let what = || format!("`{}` for {}", credential.header, rule.hosts());
    let template: Result<Template, String> = credential.value.parse();
    let template = template.map_err(|cause| unusable(what(), cause))?;
    let value = template.fill(|reference| find(reference, environment))?;
    let filled = rule.clone().with_secret(value);
    let checked = filled.check_secret();
    checked.map_err(|error| unusable(what(), error))?;
    Ok(filled)
}

/// Returns the proxy with its user.
pub(super) fn filled_proxy(
    proxy: Option<&Proxy>,
    environment: &CallerEnvironment,
) -> Result<Option<control::Proxy>, SupervisorError> {
    let Some(proxy) = proxy else { return Ok(None) };
    let user = proxy.user.as_ref();
    let user = user.map(|user| user.fill(|reference| find(reference, environment)));
    let authorization = user.transpose()?;
    Ok(Some(control::Proxy {
        host: proxy.host.clone(),
        port: proxy.port,
        authorization: authorization.map(|user| format!("Basic {}", BASE64_STANDARD.encode(user))),
    }))
}

/// Looks up the secret that a reference names.
fn find(reference: &Reference, environment: &CallerEnvironment) -> Result<String, SupervisorError> {
    let found = match reference {
        Reference::Variable(name) => {
            let value = environment.text(name).map(str::to_owned);
            value.ok_or_else(|| "it is not set, or not text".to_owned())
        }
        Reference::File(path) => match fs::read_to_string(path) {
            Ok(mut text) => {
                // An editor or `echo` adds the final line feed.
                if text.ends_with('\n') {
                    text.pop();
                }
                Ok(text)
            }
            Err(error) => Err(error.to_string()),
        },
    };
    found.map_err(|cause| unusable(reference, cause))
}

/// Builds the error for a secret that cannot be used. `what` is a variable, a file or a header.
fn unusable(what: impl fmt::Display, cause: impl fmt::Display) -> SupervisorError {
    SupervisorError::new(
        ErrorKind::Policy,
        format!(
            "the secret {what} of the policy cannot be used: {cause}; check what the policy's `${{...}}` names"
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn filled(value: &str, token: &str) -> Result<String, String> {
        let rule =
            format!(r#"{{"host":"a.b","credential":{{"header":"X-Key","value":"{value}"}}}}"#);
        let rules = Rules::new(vec![rule.parse().unwrap()]).unwrap();
        let environment = CallerEnvironment::default().changed_by([("TOKEN", Some(token))]);
        let filled = filled_rules(&rules, &environment).map_err(|error| error.to_string())?;
        let credential = filled.iter().next().unwrap().credential().unwrap().clone();
        Ok(credential.value)
    }

    #[test]
    fn references_are_replaced_by_secrets() {
        assert_eq!(
            filled("Bearer ${TOKEN}", "abc"),
            Ok("Bearer abc".to_owned())
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "s3cret\n").unwrap();
        let reference = format!("${{file:{}}}", file.path().display());
        assert_eq!(filled(&reference, ""), Ok("s3cret".to_owned()));
    }

    #[test]
    fn unusable_secret_is_named_and_not_shown() {
        let missing = filled("${OTHER}", "").unwrap_err();
        assert!(missing.contains("OTHER"), "{missing}");
        let absent = filled("${file:/nowhere/token}", "").unwrap_err();
        assert!(absent.contains("/nowhere/token"), "{absent}");
        let broken = filled("${TOKEN}", "hunter2\nX: y").unwrap_err();
        assert!(
            broken.contains("X-Key") && !broken.contains("hunter2"),
            "{broken}"
        );
    }

    #[test]
    fn proxy_user_is_base64_encoded() {
        let proxy: Proxy = "http://me:${TOKEN}@proxy.example:3128".parse().unwrap();
        let environment = CallerEnvironment::default().changed_by([("TOKEN", Some("a:b"))]);
        let filled = filled_proxy(Some(&proxy), &environment).unwrap().unwrap();
        assert_eq!(filled.authorization.as_deref(), Some("Basic bWU6YTpi"));
        assert!(!format!("{filled:?}").contains("bWU6"));
    }
}
