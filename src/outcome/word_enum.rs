//! Enums whose variants have keywords in policy files, in reports and in JSON.

/// Declares an enum together with the keywords of its variants.
macro_rules! word_enum {
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
            /// The keywords, in the order of the variants.
            pub(crate) const WORDS: &[&str] = &[$($word),+];

            /// Every variant, in order.
            pub const ALL: [Self; Self::WORDS.len()] = [$(Self::$variant),+];

            /// Returns the keyword in policies, reports and JSON.
            pub const fn as_str(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::outcome::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let mut all = Self::ALL.into_iter();
                all.find(|one| one.as_str() == word)
                    .ok_or($crate::outcome::UnknownWord)
            }
        }
    };
}
pub(crate) use word_enum;

/// The error for a text that is not the keyword of a variant.
#[allow(
    unnameable_types,
    reason = "opaque: it says only that the keyword is unknown"
)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnknownWord;
