//! Operations on page ranges of two processes. Pure.

use std::cmp::Ordering;
use std::ops::Range;

/// Which of the two processes has a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Who {
    /// Only the captured process.
    Source,
    /// Only the process that is restored.
    Target,
    /// Both.
    Both,
}

/// Merges two ordered lists of page ranges into runs that the same processes have.
pub fn compare(
    source: impl Iterator<Item = Range<u64>>,
    target: impl Iterator<Item = Range<u64>>,
) -> Vec<(Range<u64>, Who)> {
    let (mut source, mut target) = (source, target);
    let (mut left, mut right) = (source.next(), target.next());
    let mut found = Vec::new();
    loop {
        match (&mut left, &mut right) {
            (None, None) => return found,
            (Some(pages), None) => {
                found.push((pages.clone(), Who::Source));
                left = source.next();
            }
            (None, Some(pages)) => {
                found.push((pages.clone(), Who::Target));
                right = target.next();
            }
            (Some(a), Some(b)) => {
                let (end, who) = match a.start.cmp(&b.start) {
                    Ordering::Less => (a.end.min(b.start), Who::Source),
                    Ordering::Greater => (b.end.min(a.start), Who::Target),
                    Ordering::Equal => (a.end.min(b.end), Who::Both),
                };
                found.push((a.start.min(b.start)..end, who));
                if who != Who::Target {
                    a.start = end;
                }
                if who != Who::Source {
                    b.start = end;
                }
                if a.is_empty() {
                    left = source.next();
                }
                if right.as_ref().is_some_and(Range::is_empty) {
                    right = target.next();
                }
            }
        }
    }
}

/// Splits a range into parts of at most `most` bytes.
pub fn parts(pages: &Range<u64>, most: u64) -> impl Iterator<Item = Range<u64>> {
    let end = pages.end;
    let mut start = pages.start;
    std::iter::from_fn(move || {
        let part = start..end.min(start + most);
        start = part.end;
        (!part.is_empty()).then_some(part)
    })
}

/// Splits a range at the bounds of ordered ranges. Each part comes with whether one of them contains it.
pub fn split(range: &Range<u64>, within: &[Range<u64>]) -> Vec<(Range<u64>, bool)> {
    let parts = split_by(range, within, |one| one).into_iter();
    parts.map(|(part, one)| (part, one.is_some())).collect()
}

/// Splits a range at the bounds of ordered items. Each part comes with the item that contains it, if there is one.
pub fn split_by<'a, T>(
    range: &Range<u64>,
    items: &'a [T],
    range_of: impl Fn(&T) -> &Range<u64>,
) -> Vec<(Range<u64>, Option<&'a T>)> {
    let mut found = Vec::new();
    let mut start = range.start;
    let first = items.partition_point(|item| range_of(item).end <= start);
    for item in &items[first..] {
        let one = range_of(item);
        if one.start >= range.end {
            break;
        }
        if start < one.start {
            found.push((start..one.start, None));
        }
        let end = one.end.min(range.end);
        found.push((start.max(one.start)..end, Some(item)));
        start = end;
    }
    if start < range.end {
        found.push((start..range.end, None));
    }
    found
}

/// Sorts and merges ranges, and drops empty ranges and those that are not whole pages.
pub fn in_order(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|one| {
        one.start < one.end && one.start.is_multiple_of(PAGE) && one.end.is_multiple_of(PAGE)
    });
    ranges.sort_by_key(|one| one.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for one in ranges {
        match merged.last_mut() {
            Some(last) if one.start <= last.end => last.end = last.end.max(one.end),
            _ => merged.push(one),
        }
    }
    merged
}

/// The page size of x86-64.
pub const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_merged_with_their_holders() {
        let (source, target) = ([0..3, 5..6, 8..9], [1..2, 5..9]);
        let merged = compare(source.into_iter(), target.into_iter());
        let wanted = [
            (0..1, Who::Source),
            (1..2, Who::Both),
            (2..3, Who::Source),
            (5..6, Who::Both),
            (6..8, Who::Target),
            (8..9, Who::Both),
        ];
        assert_eq!(merged, wanted);
    }

    #[test]
    fn range_is_split_at_the_bounds_of_others() {
        let others = [0..2, 4..6, 9..20];
        let parts = split(&(1..10), &others);
        assert_eq!(
            parts,
            [
                (1..2, true),
                (2..4, false),
                (4..6, true),
                (6..9, false),
                (9..10, true)
            ]
        );
        assert_eq!(split(&(6..8), &others), [(6..8, false)]);
        assert_eq!(split(&(1..1), &[]), []);
    }

    #[test]
    fn ranges_from_a_guest_are_sorted_and_merged() {
        let named = vec![
            0x5000..0x6000,
            0x1000..0x3000,
            0x2000..0x2000,
            7..0x9000,
            0x2000..0x4000,
        ];
        assert_eq!(in_order(named), [0x1000..0x4000, 0x5000..0x6000]);
    }
}
