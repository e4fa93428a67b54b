//! Generates inputs from those of a corpus.

use std::borrow::Cow;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use regex::bytes::Regex;

type Bytes = Vec<u8>;

/// The longest input.
const LONGEST: usize = 1 << 16;

/// Strings, numbers and words of JSON, TOML or text; every other byte is a separate token.
const TOKEN: &str = r#"(?s-u)"(?:\\.|[^"\\])*"?|-?[0-9][0-9.eE+-]*|[A-Za-z_]+|."#;
/// Lists and tables that contain no others.
const GROUP: &str = r"(?s-u)\[[^\[\]]*\]|\{[^{}]*\}";

/// Numbers at the boundaries of arithmetic and limits.
const EDGES: [u64; 14] = [
    0,
    1,
    63,
    64,
    127,
    255,
    0xffff,
    1 << 16,
    1 << 31,
    1 << 32,
    (1 << 53) + 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// A change of an input. Positions are tokens.
#[derive(Clone, Debug)]
enum Edit {
    Replace {
        at: Index,
        removed: usize,
        inserted: Vec<Bytes>,
    },
    /// Replaces bytes within a token.
    Within {
        at: Index,
        place: Index,
        removed: usize,
        inserted: Bytes,
    },
    /// For nested, long or quadratic cases.
    Repeat {
        at: Index,
        count: usize,
        times: usize,
    },
}

/// Generates inputs of the corpus with a few changes: a mostly valid input gets further.
pub fn inputs(corpus: &[Bytes], words: Vec<Bytes>) -> impl Strategy<Value = Bytes> + use<> {
    let corpus: Arc<[Vec<Bytes>]> = corpus
        .iter()
        .map(|input| matches_of(TOKEN, input))
        .collect();
    let mut pool = words;
    pool.extend(corpus.iter().flat_map(|tokens| {
        let groups = matches_of(GROUP, &tokens.concat());
        tokens.iter().cloned().chain(groups)
    }));
    pool.sort_unstable();
    pool.dedup();
    let edits = vec(edit(pool), 1..4);
    (0..corpus.len(), edits).prop_map(move |(number, edits)| {
        let mut tokens = corpus[number].iter().map(Cow::from).collect();
        for edit in &edits {
            edit.apply(&mut tokens);
        }
        let mut input = tokens.concat();
        input.truncate(LONGEST);
        input
    })
}

fn matches_of(pattern: &str, input: &[u8]) -> Vec<Bytes> {
    let pattern = Regex::new(pattern).expect("a pattern");
    let found = pattern.find_iter(input);
    found.map(|it| it.as_bytes().to_vec()).collect()
}

fn edit(pool: Vec<Bytes>) -> impl Strategy<Value = Edit> {
    let edge =
        (select(&EDGES[..]), 0..3_u64).prop_map(|(edge, by)| edge.wrapping_add(by).wrapping_sub(1));
    let piece = prop_oneof![
        6 => select(pool),
        1 => vec(any::<u8>(), 0..9),
        1 => (edge.clone(), select(vec![1, 2, 4, 8])).prop_map(|(edge, width)| edge.to_le_bytes()[..width].to_vec()),
        1 => (edge, select(vec!["", "-"])).prop_map(|(edge, sign)| format!("{sign}{edge}").into_bytes()),
    ];
    let replace = (any::<Index>(), 0..4_usize, vec(piece.clone(), 0..3));
    let within = (any::<Index>(), any::<Index>(), 0..9_usize, piece);
    let repeat = (any::<Index>(), 1..9_usize, select(vec![1, 2, 9, 130, 1200]));
    prop_oneof![
        6 => replace.prop_map(|(at, removed, inserted)| Edit::Replace { at, removed, inserted }),
        3 => within.prop_map(|(at, place, removed, inserted)| Edit::Within { at, place, removed, inserted }),
        1 => repeat.prop_map(|(at, count, times)| Edit::Repeat { at, count, times }),
    ]
}

impl Edit {
    fn apply<'a>(&'a self, tokens: &mut Vec<Cow<'a, [u8]>>) {
        let part = |at: &Index, count: usize, all: usize| {
            let start = at.index(all + 1);
            start..all.min(start + count)
        };
        match self {
            Self::Replace {
                at,
                removed,
                inserted,
            } => {
                let part = part(at, *removed, tokens.len());
                tokens.splice(part, inserted.iter().map(Cow::from));
            }
            Self::Within {
                at,
                place,
                removed,
                inserted,
            } if !tokens.is_empty() => {
                let token = at.get_mut(tokens).to_mut();
                let part = part(place, *removed, token.len());
                token.splice(part, inserted.iter().copied());
            }
            Self::Within { .. } => {}
            Self::Repeat { at, count, times } => {
                let part = part(at, *count, tokens.len());
                let repeated = tokens[part.clone()].concat();
                let most = LONGEST / repeated.len().max(1);
                tokens.insert(part.end, Cow::Owned(repeated.repeat(most.min(*times))));
            }
        }
    }
}
