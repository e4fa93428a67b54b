//! Formats amounts in readable units, and lists.

use std::time::Duration;

use crate::outcome::Unit;

/// Formats bytes in the largest unit that represents them exactly in at most four digits, or else with two decimals.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    for (unit, size) in UNITS {
        if count.is_multiple_of(size) && (1..10_000).contains(&(count / size)) {
            return format!("{} {unit}", count / size);
        }
    }
    match UNITS.into_iter().find(|(_, size)| count >= *size) {
        Some((unit, size)) => {
            let hundredths = u128::from(count) * 100 / u128::from(size);
            format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100)
        }
        None => format!("{count} bytes"),
    }
}

/// Joins the items in one line.
pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        "nothing".to_owned()
    } else {
        items.join(", ")
    }
}

/// Formats a duration in seconds.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// Formats the amount of a limit.
pub(super) fn amount(unit: Unit, amount: u64) -> String {
    match unit {
        Unit::Duration => seconds(Duration::from_millis(amount)),
        Unit::Size => bytes(amount),
        Unit::Count | Unit::Cores => unit.text(amount),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_use_readable_units() {
        for (count, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (64 << 20, "64 MiB"),
            (1536 << 20, "1536 MiB"),
            (24_684_084 << 10, "23.54 GiB"),
            (u64::MAX, "16777215.99 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn processors_are_written_as_in_a_policy() {
        for (millicores, text) in [(1000, "1"), (500, "0.5"), (10, "0.01"), (20_000, "20")] {
            assert_eq!(amount(Unit::Cores, millicores), text);
        }
    }

    #[test]
    fn seconds_keep_their_fraction() {
        assert_eq!(seconds(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(seconds(Duration::from_secs(30)), "30 s");
    }
}
