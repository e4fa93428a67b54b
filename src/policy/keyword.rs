//! Keys of a policy file that accept one of a few words.

use std::str::FromStr;

use crate::outcome::Level;

/// Declares an enum together with the words for its variants.
macro_rules! keyword {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// The words for the variants in a policy file.
            pub(super) const WORDS: &[&str] = &[$($word),+];
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord),
                }
            }
        }
    };
}

/// A word that the key does not accept.
#[allow(unnameable_types, reason = "opaque: the word is not one of a few")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnknownWord;

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
        /// TCP and UDP among the guest's own processes, over the loopback interface of a network namespace that no
        /// other worker has.
        Loopback = "loopback",
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

// The outcome's type: a policy names the lowest level at which a run may start.
impl FromStr for Level {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let mut levels = Self::ALL.into_iter();
        levels
            .find(|level| level.as_str() == word)
            .ok_or(UnknownWord)
    }
}
