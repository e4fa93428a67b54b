//! Keys of a policy file that accept one of a few words.

use thiserror::Error;

use super::suggest::closest;
use super::text_value::{read_text, serialize_text};
use crate::outcome::Level;

/// A word that the key does not accept.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("\"{word}\" is not known: {hint}")]
pub struct UnknownWord {
    word: String,
    hint: String,
}

impl UnknownWord {
    fn new(word: &str, words: &[&str]) -> Self {
        let quoted = words.iter().map(|word| format!("\"{word}\""));
        let choices = quoted.collect::<Vec<_>>().join(" or ");
        Self {
            word: word.to_owned(),
            hint: match closest(word, words.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"? Write {choices}"),
                None => format!("write {choices}"),
            },
        }
    }
}

/// Implements the reading of an enum that has a word for each variant, and its JSON Schema.
macro_rules! read_keyword {
    ($name:ident, $($variant:ident = $word:literal,)+) => {
        impl $name {
            const WORDS: &'static [&'static str] = &[$($word),+];
        }

        impl std::str::FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    other => Err(UnknownWord::new(other, Self::WORDS)),
                }
            }
        }

        read_text!($name, concat!("one of", $(" \"", $word, "\""),+), "enum": $name::WORDS);
    };
}

/// Declares an enum together with the words for its variants, so that reading, writing, the JSON Schema
/// and the error message always agree.
macro_rules! keyword {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// The word for the variant in a policy file.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        read_keyword!($name, $($variant = $word,)+);
        serialize_text!($name);
    };
}

// The outcome's type: a policy names the lowest level at which a run may start.
read_keyword!(
    Level,
    Landlock = "landlock",
    Standard = "standard",
    Full = "full",
);

keyword! {
    /// The host's system directories that the guest sees, read-only.
    pub enum SystemFiles {
        /// Programs and libraries: `/usr`, `/bin`, `/sbin`, `/lib*`.
        Programs = "programs",
        /// Only libraries and data, with no executable programs.
        Libraries = "libraries",
    }
}

keyword! {
    /// The network that the guest has.
    pub enum NetworkMode {
        /// No network: an empty network namespace (network_namespaces(7)), if namespaces are available,
        /// and only unix sockets.
        None = "none",
    }
}

keyword! {
    /// What the guest reads on its standard input.
    pub enum Stdin {
        /// Nothing: end of file immediately.
        Closed = "closed",
        /// The caller's standard input.
        Pass = "pass",
    }
}
