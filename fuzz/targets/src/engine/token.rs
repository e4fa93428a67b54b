//! Finds the strings, numbers, words, lists and tables of JSON or TOML in a text.

/// The first token that starts at `from` or later.
pub(super) fn token(text: &[u8], from: usize) -> Option<(usize, usize)> {
    let rest = text.get(from..)?;
    let skipped = rest.iter().position(|byte| begins(*byte))?;
    let start = from + skipped;
    Some((start, start + length(&text[start..])))
}

const fn begins(byte: u8) -> bool {
    matches!(byte, b'"' | b'[' | b'{' | b'-') || byte.is_ascii_alphanumeric()
}

/// The length of the token at the start of `text`, or of all of it if the token does not end.
fn length(text: &[u8]) -> usize {
    match text[0] {
        b'"' => string_length(text),
        b'[' | b'{' => group_length(text),
        _ => {
            let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"-+._".contains(byte);
            text.iter().take_while(|byte| inside(byte)).count()
        }
    }
}

fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    for (place, byte) in text.iter().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return place + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn group_length(text: &[u8]) -> usize {
    let (mut depth, mut place) = (0usize, 0);
    while let Some(byte) = text.get(place) {
        match byte {
            b'"' => {
                place += string_length(&text[place..]);
                continue;
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        place += 1;
        if depth == 0 {
            return place;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_end_where_they_end() {
        let text = br#"{"a": [1, "]\"", -2.5e3], b = true"#;
        let found = |from| {
            token(text, from)
                .map(|(start, end)| String::from_utf8_lossy(&text[start..end]).into_owned())
        };
        assert_eq!(found(1).as_deref(), Some(r#""a""#));
        assert_eq!(found(5).as_deref(), Some(r#"[1, "]\"", -2.5e3]"#));
        assert_eq!(found(9).as_deref(), Some(r#""]\"""#));
        assert_eq!(found(17).as_deref(), Some("-2.5e3"));
        assert_eq!(found(text.len() - 4).as_deref(), Some("true"));
        assert_eq!(found(0).map(|whole| whole.len()), Some(text.len()));
        assert_eq!(token(b", :", 0), None);
    }
}
