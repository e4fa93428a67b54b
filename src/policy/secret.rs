//! Parses references to secrets, which a policy contains in place of the secrets.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::keys::VARIABLE;

/// A text with references to secrets: `Bearer ${GITHUB_TOKEN}`, or `${file:/run/secrets/token}`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Part {
    Text(String),
    Reference(Reference),
}

/// The location of a secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reference {
    /// A variable of the caller's environment.
    Variable(String),
    /// A file that the caller can read. Its final line break is not part of the secret.
    File(PathBuf),
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let (inside, after) = behind.split_once('}').ok_or_else(|| {
                "unterminated reference: write `${NAME}` for a variable of your environment, or \
                 `${file:/path}`"
                    .to_owned()
            })?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Reference(inside.parse()?));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("file:") {
            Some(path) if path.starts_with('/') => Ok(Self::File(path.into())),
            Some(path) => Err(format!(
                "\"{path}\" is a relative path: write the absolute path of the secret's file"
            )),
            None => (VARIABLE.read)(text, None).map(Self::Variable),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Template {
    /// Returns the references.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        self.0.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Reference(reference) => Some(reference),
        })
    }

    /// Replaces each reference with the secret that `find` returns for it.
    ///
    /// # Errors
    /// If `find` fails. Returns its first error.
    pub fn fill<E>(
        &self,
        mut find: impl FnMut(&Reference) -> Result<String, E>,
    ) -> Result<String, E> {
        let parts = self.0.iter().map(|part| match part {
            Part::Text(text) => Ok(text.clone()),
            Part::Reference(reference) => find(reference),
        });
        parts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_filled() {
        let template: Template = "a${ONE}b${file:/two}".parse().expect("a template");
        let filled = template.fill(|reference| Ok::<_, ()>(format!("<{reference}>")));
        assert_eq!(filled, Ok("a<ONE>b</two>".to_owned()));
        assert_eq!(template.fill(|_| Err(7)), Err(7));
        let plain: Template = "$ {x} $x".parse().expect("a template");
        assert_eq!(plain.references().count(), 0);
    }

    #[test]
    fn invalid_references_are_rejected() {
        for text in [
            "${",
            "${NAME",
            "${}",
            "${a b}",
            "${1}",
            "${file:}",
            "${file:token}",
        ] {
            assert!(text.parse::<Template>().is_err(), "{text}");
        }
    }
}
