//! Keys of a policy file that accept one of a few words.

use thiserror::Error;

use super::suggest::closest;
use super::text_value::text_value;

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
            const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for the variant in a policy file.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
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

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        text_value!($name, concat!("one of", $(" \"", $word, "\""),+), "enum": $name::WORDS);
    };
}

keyword! {
    /// The lowest level at which a run may start, weakest first.
    pub enum Level {
        /// Without namespaces: Landlock, seccomp and rlimits. For hosts and containers that
        /// forbid user namespaces.
        Landlock = "landlock",
        /// Every layer but the cgroup: rlimits and the supervisor's watchdog limit memory.
        Standard = "standard",
        /// Every layer.
        Full = "full",
    }
}

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
