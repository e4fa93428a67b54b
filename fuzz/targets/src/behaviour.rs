//! How a reader answered: the stable engine's substitute for the coverage that libFuzzer measures.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// How a reader answered an input, without details of the input: numbers, and everything from a
/// quotation on, are removed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Behaviour {
    /// The reader accepted the input. Holds a digest of its shape.
    Taken(u64),
    /// The reader refused the input. Holds a digest of the reason.
    Refused(u64),
}

impl Behaviour {
    /// The reader accepted the input; `shape` describes it.
    pub fn taken(shape: &str) -> Self {
        Self::Taken(digest(shape))
    }

    /// The reader refused the input with this message.
    pub fn refused(message: &str) -> Self {
        Self::Refused(digest(message))
    }

    /// Whether the reader accepted the input.
    pub const fn is_taken(self) -> bool {
        matches!(self, Self::Taken(_))
    }
}

/// `DefaultHasher::new` has no random key, so that digests are equal in every process of one build.
fn digest(text: &str) -> u64 {
    const MOST: usize = 120;
    let mut hasher = DefaultHasher::new();
    text.chars()
        .take_while(|character| !matches!(character, '`' | '"'))
        .filter(|character| !character.is_ascii_digit())
        .take(MOST)
        .for_each(|character| character.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_quotations_make_no_difference() {
        let one = Behaviour::refused("unknown field `a` at column 7");
        assert_eq!(one, Behaviour::refused("unknown field `bcd` at column 12"));
        assert_ne!(one, Behaviour::refused("missing field `a` at column 7"));
        assert_ne!(one, Behaviour::taken("unknown field `a` at column 7"));
    }
}
