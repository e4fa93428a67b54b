//! Follows the chain of `extends` from a policy to the built-in `standard`.

use std::path::{Path, PathBuf};

use super::builtin::{self, BuiltIn, STANDARD};
use super::error::PolicyError;
use super::layer::{Layer, Source};
use super::origin::Origin;
use super::paths::normalize;
use super::source::PolicySource;
use super::suggest::closest;

/// The maximum length of a chain. A cycle through symbolic links looks like an endless chain of new paths.
const LONGEST: usize = 16;

/// A reference to a policy, by name or by path.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Reference {
    BuiltIn(&'static BuiltIn),
    File(PathBuf),
}

impl Reference {
    /// Parses a reference. A built-in name takes precedence over a file of that name, which is written `./name`.
    fn new(text: &str, beside: Option<&Path>) -> Self {
        if let Some(builtin) = builtin::find(text) {
            return Self::BuiltIn(builtin);
        }
        Self::File(match beside {
            Some(directory) => directory.join(text),
            None => PathBuf::from(text),
        })
    }

    fn display(&self) -> String {
        match self {
            Self::BuiltIn(builtin) => builtin.name.to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Returns the reference in a form that is equal for two spellings of one path.
    fn identity(&self, current_dir: Option<&Path>) -> Self {
        match self {
            Self::File(path) => Self::File(normalize(&match current_dir {
                Some(directory) => directory.join(path),
                None => path.clone(),
            })),
            Self::BuiltIn(_) => self.clone(),
        }
    }
}

/// The place where a reference was written, for error messages.
struct Mention {
    text: String,
    origin: Origin,
    key: Option<&'static str>,
}

impl Mention {
    fn error(&self, problem: String) -> PolicyError {
        match self.key {
            Some(key) => PolicyError::new(self.origin.clone(), key, problem),
            None => PolicyError::of_file(self.origin.clone(), problem),
        }
    }
}

/// Returns the layers of a policy, starting with `standard`, and the errors of the first text that cannot be read. The
/// layers then lack that text and the policies that it extends, except for `standard`.
pub(super) fn layers(
    name_or_path: &str,
    current_dir: Option<&Path>,
    source: &dyn PolicySource,
) -> (Vec<Layer>, Vec<PolicyError>) {
    let mut reference = Reference::new(name_or_path, None);
    let mut mention = Mention {
        text: name_or_path.to_owned(),
        origin: Origin::of_file("policy"),
        key: None,
    };
    let mut seen: Vec<Reference> = Vec::new();
    let mut layers: Vec<Layer> = Vec::new();
    let mut unread = Vec::new();
    loop {
        let layer = check_chain(&seen, &reference, current_dir, &mention)
            .map_err(|error| vec![error])
            .and_then(|()| read(&reference, current_dir, source, &mention));
        let layer = match layer {
            Ok(layer) => layer,
            Err(errors) => {
                unread = errors;
                layers.push(Layer::builtin(&STANDARD).expect("it is built in"));
                break;
            }
        };
        let next = next(&layer, &reference);
        seen.push(reference);
        layers.push(layer);
        match next {
            Some((found, named)) => (reference, mention) = (found, named),
            None => break,
        }
    }
    layers.reverse();
    (layers, unread)
}

fn check_chain(
    seen: &[Reference],
    reference: &Reference,
    current_dir: Option<&Path>,
    mention: &Mention,
) -> Result<(), PolicyError> {
    let identity = reference.identity(current_dir);
    let earlier = seen
        .iter()
        .position(|other| other.identity(current_dir) == identity);
    if let Some(start) = earlier {
        let cycle = seen.iter().skip(start).chain([reference]);
        let chain = cycle.map(Reference::display).collect::<Vec<_>>();
        let chain = chain.join(" -> ");
        return Err(mention.error(format!("{chain} is a cycle: remove one `extends`")));
    }
    if seen.len() == LONGEST {
        return Err(mention.error(format!(
            "the chain of `extends` has more than {LONGEST} policies: merge some of them into one file"
        )));
    }
    Ok(())
}

fn read(
    reference: &Reference,
    current_dir: Option<&Path>,
    source: &dyn PolicySource,
    mention: &Mention,
) -> Result<Layer, Vec<PolicyError>> {
    match reference {
        Reference::BuiltIn(builtin) => Layer::builtin(builtin),
        Reference::File(path) => {
            let text = source
                .read(path)
                .map_err(|cause| vec![mention.error(unreadable(path, &cause, &mention.text))])?;
            if !source.is_file(path) {
                return Layer::parse(&Source::inline(), &text, directory(path, current_dir));
            }
            let file = Source::file(path.display().to_string(), &text);
            Ok(Layer {
                file: current_dir
                    .map(|directory| directory.join(path))
                    .or_else(|| path.is_absolute().then(|| path.clone())),
                ..Layer::parse(&file, &text, directory(path, current_dir))?
            })
        }
    }
}

/// Returns the absolute directory of a policy file.
fn directory(path: &Path, current_dir: Option<&Path>) -> Option<PathBuf> {
    let parent = path.parent()?;
    if parent.is_absolute() {
        return Some(parent.to_owned());
    }
    current_dir.map(|directory| directory.join(parent))
}

/// Describes why a policy cannot be read. A bare word that is not a file was probably meant as a built-in name.
fn unreadable(path: &Path, cause: &std::io::Error, text: &str) -> String {
    let is_word = !text.contains(['/', '.']);
    if !is_word || cause.kind() != std::io::ErrorKind::NotFound {
        let path = path.display();
        let remedy = match cause.kind() {
            // The error of `FileSystem` for a file that is not a policy, as opposed to one of the kernel.
            std::io::ErrorKind::Other => "name a policy, which is a file of at most 1 MiB in UTF-8",
            _ => "check the path and its permissions",
        };
        return format!("{path} cannot be read: {cause}; {remedy}");
    }
    let names = builtin::builtin_names().collect::<Vec<_>>().join(", ");
    let hint = match closest(text, builtin::builtin_names()) {
        Some(near) => format!("did you mean `{near}`? The built-in policies are {names}"),
        None => format!("write the path of a file or one of {names}"),
    };
    format!("no built-in policy and no file is called \"{text}\": {hint}")
}

/// Returns the policy that a layer extends. A file without `extends` extends `standard`, so a key that no file
/// sets never means "no limit".
fn next(layer: &Layer, reference: &Reference) -> Option<(Reference, Mention)> {
    let beside = match reference {
        Reference::File(path) => path.parent(),
        Reference::BuiltIn(_) => None,
    };
    match layer.values.text::<String>("extends") {
        Some(extends) => Some((
            Reference::new(&extends.value, beside),
            Mention {
                text: extends.value,
                origin: extends.origin,
                key: Some("extends"),
            },
        )),
        None if *reference == Reference::BuiltIn(&STANDARD) => None,
        None => Some((
            Reference::BuiltIn(&STANDARD),
            Mention {
                text: STANDARD.name.to_owned(),
                origin: layer.whole.clone(),
                key: None,
            },
        )),
    }
}
